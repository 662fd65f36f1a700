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
    import signal

    from dmq.cli.app import run

    # Asked to end by whomever, a command ends as it does on Ctrl-C: what it holds is flushed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return run(args)
