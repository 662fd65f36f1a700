"""`make chain N=100`: consume, transform, produce in transactions, under kill -9 of members and brokers.

    python -m tests.chain --kills 100 --seed 7

Exit code 0: the output is the input, exactly. 1: findings.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.chain.run import FAULTS, Options, Run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chain", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--members", type=int, default=2, help="of each of the two hops")
    parser.add_argument("--faults", default=",".join(FAULTS), help="which kinds, as often as named")
    parser.add_argument("--folder", type=Path, help="where history, data and logs go")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = Options(
        folder=given.folder or Path(tempfile.mkdtemp(prefix="dmq-chain-")),
        seed=given.seed,
        kills=given.kills,
        members=given.members,
        faults=tuple(given.faults.split(",")),
    )
    run = Run(options, lambda line: print(line, flush=True))
    problems = run.run()
    print(run.summary(), end="")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
