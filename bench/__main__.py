"""`python -m bench`: run the suite, print ratios and bars, save JSON and plots.

Owns the lifetime of everything: the work folder, the targets, the results folder.
"""

import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from bench import kafka, machine, options, report
from bench.runner import Rows
from bench.suite import Suite
from bench.targets import Bare, Dmq, Remote, Target

console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 190)


def make_targets(chosen: options.Options, work: Path) -> list[Target]:
    """The systems to measure; a peer that can't run here is said and left out."""
    makers = {"dmq": Dmq, "bare": Bare}
    targets: list[Target] = [makers[name](work) for name in chosen.targets]
    if chosen.peer == "kafka":
        problem = kafka.available()
        if problem:
            console.print(f"[yellow]no Apache Kafka here ({problem}): its column stays empty")
        else:
            targets.append(kafka.Kafka(work))
    elif chosen.peer:
        targets.append(Remote(work, chosen.peer))
    return targets


def main() -> int:
    """One bench run; exit code 0 unless `--strict` and a bar does not hold."""
    chosen = options.parse(sys.argv[1:])
    # Told to stop in any way, it stops the brokers that it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started = time.perf_counter()
    rows = Rows()
    with ExitStack() as stack:
        work = chosen.work or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="dmq-bench-"))
        )
        work.mkdir(parents=True, exist_ok=True)
        facts = machine.facts(work)
        console.print(report.machine_line(facts))
        targets = make_targets(chosen, work)
        for target in targets:
            stack.callback(target.stop)
        suite = Suite(chosen, targets, rows, work, console.print)
        try:
            suite.run()
        except KeyboardInterrupt:
            console.print("[yellow]stopped; the figures so far:")
    bars = report.print_all(console, rows, chosen)
    facts["seconds"] = round(time.perf_counter() - started)
    saved = report.save(chosen, rows, bars, facts)
    console.print(f"saved: {saved} ({facts['seconds']} s)")
    return int(chosen.strict and any(bar.holds is False for bar in bars))


if __name__ == "__main__":
    sys.exit(main())
