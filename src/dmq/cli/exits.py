"""Exit codes, and the one exception by which a command ends early.

Imports nothing, because `up` and `serve` pay for every import on their way to ready.
"""

import enum


class Exit(enum.IntEnum):
    """What a command's exit code says. A contract with scripts: never renumbered."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_REACHABLE = 3
    NOT_FOUND = 4
    PARTLY_FAILED = 5
    STOPPED_ITSELF = 70
    INTERRUPTED = 130


MEANING = {
    Exit.OK: "done",
    Exit.FAILURE: "failed",
    Exit.USAGE: "the command was called wrongly",
    Exit.NOT_REACHABLE: "no broker could be reached, or none did in time what was asked",
    Exit.NOT_FOUND: "the topic, partition, setting or file does not exist",
    Exit.PARTLY_FAILED: "some of the work was done and some failed",
    Exit.STOPPED_ITSELF: "the broker stopped itself: it could no longer keep its promises",
    Exit.INTERRUPTED: "interrupted by Ctrl-C",
}


class CommandError(Exception):
    """Ends a command: a sentence that says what is wrong, and one that says what to do."""

    def __init__(self, message: str, *, hint: str = "", code: Exit = Exit.FAILURE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


def usage(message: str, hint: str = "") -> CommandError:
    """Arguments that contradict each other or say nothing."""
    return CommandError(message, hint=hint, code=Exit.USAGE)


def not_found(message: str, hint: str = "") -> CommandError:
    """A thing that was named does not exist."""
    return CommandError(message, hint=hint, code=Exit.NOT_FOUND)


def worst(done: int, failed: int, code: Exit = Exit.FAILURE) -> Exit:
    """The exit code of work on many things: `code` when nothing at all was done."""
    if not failed:
        return Exit.OK
    return Exit.PARTLY_FAILED if done else code
