"""What brokers say to each other beside Raft, in a simulated network: calls, their answers, casts."""

from typing import NamedTuple

from dmq.errors import ErrorCode


class Note(NamedTuple):
    """A frame. A cast has no number; an answer has no verb."""

    verb: str
    number: int
    body: bytes
    code: ErrorCode = ErrorCode.NONE
    text: str = ""
