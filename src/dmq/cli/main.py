"""The way in: `dmq …` and `python -m dmq …`.

Owns nothing but the choice of the road: `up` and `serve` in their plain form go straight to the
broker, because typer alone costs a third of the time to ready; everything else goes to typer.
"""

import os
import sys

from dmq.cli.fast import start


def main() -> int:
    """Run the command line in `sys.argv` to its exit code."""
    args = sys.argv[1:]
    if "_DMQ_COMPLETE" not in os.environ:  # A shell that asks for completions runs nothing.
        started = start(args)
        if started is not None:
            return started
    from dmq.cli.app import run
    from dmq.cli.interrupts import take_over

    # Asked to end by whomever, a command ends as it does on Ctrl-C: what it holds is flushed.
    take_over()
    return run(args)
