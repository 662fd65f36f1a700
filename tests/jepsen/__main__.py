"""`make jepsen`: real brokers, real clients, real faults, and a judge over the history.

    python -m tests.jepsen --minutes 30 --brokers 5 --seed 7
    python -m tests.jepsen --bootstrap HOST:PORT --minutes 1     another Kafka, without faults

Exit code 0: nothing was found. 1: findings, or a broker or client that failed.
"""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.jepsen import kafka
from tests.jepsen.nemesis import DECK
from tests.jepsen.run import Options, Run


def parse() -> Options:
    parser = argparse.ArgumentParser(prog="python -m tests.jepsen", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=100, help="records per second and producer")
    parser.add_argument("--short", action="store_true", help="each fault once, each briefly")
    parser.add_argument("--network", default="auto", choices=("auto", "namespaces", "proxy"))
    parser.add_argument("--bootstrap", default="", help="brokers that run already; no faults")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka instead of our brokers")
    parser.add_argument("--faults", default=",".join(dict.fromkeys(DECK)), help="which kinds")
    parser.add_argument("--folder", type=Path, help="where histories and logs go")
    given = parser.parse_args()
    wanted = set(given.faults.split(",")) - set(kafka.NO_FAULTS if given.kafka else ())
    folder = given.folder or Path(tempfile.mkdtemp(prefix="dmq-jepsen-"))
    return Options(
        folder=folder,
        seed=given.seed,
        seconds=0.0 if given.short else given.minutes * 60,
        brokers=given.brokers,
        network=given.network,
        rate=given.rate,
        is_short=given.short,
        bootstrap=given.bootstrap,
        is_kafka=given.kafka,
        faults=tuple(kind for kind in DECK if kind in wanted),
    )


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = Run(parse(), lambda line: print(line, flush=True))
    report = run.run()
    print(run.summary(report))
    return 1 if report.findings or run.problems else 0


if __name__ == "__main__":
    sys.exit(main())
