"""The one exception of pipelines: a sentence that says what is wrong, and one that says what to do."""

import re
from collections.abc import Iterable

from dmq.errors import DmqError

_OURS = re.compile(
    r"dmq\.spark\.[\w.]+Error: |ModuleNotFoundError: (?=the Python of a Spark executor)"
)
"""An executor that lacks dmq has no error of ours, only its words: see `dmq.spark.shipping`."""


class PipelineError(DmqError):
    """Something that a person can mend."""

    def __init__(self, message: str, hint: str = "", *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.is_missing = is_missing
        """A thing that was named does not exist."""


def first_line(error: BaseException) -> str:
    """What an error of Spark says, without the stack traces of Java and Python below it.

    What our own source or sink has to say is at the end of the Python one.
    """
    text = str(error)
    reason = getattr(error, "desc", None)
    if isinstance(reason, str) and reason:
        text = reason
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return our_words(lines) or (lines[0] if lines else type(error).__name__)


def our_words(lines: Iterable[str]) -> str | None:
    """What an error of ours says somewhere in these lines of a stack trace."""
    ours = [line.partition(": ")[2] for line in lines if _OURS.match(line)]
    return ours[-1] if ours else None


def is_gone(error: BaseException) -> bool:
    """Whether a Connect server does not answer any more."""
    return "StatusCode.UNAVAILABLE" in str(error)
