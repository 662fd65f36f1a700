"""`make crash N=1000`: the long form of the crash test."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.crash.harness import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="make crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, help="keep the data directory here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dmq-crash-") as temporary:
        data_dir = arguments.data or Path(temporary)
        findings = run(
            arguments.kills, arguments.seed, data_dir, lambda line: print(line, flush=True)
        )
    for problem in findings.problems[:20]:
        print(problem)
    print(findings)
    return 1 if findings.problems else 0


if __name__ == "__main__":
    sys.exit(main())
