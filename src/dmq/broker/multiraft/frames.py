"""What travels between two brokers, as values: one frame per peer and turn, for all groups.

A frame has a heartbeat, a leadership table, messages of groups, or several of these. A message of a
group is one of Raft's, with the record bytes that an append names beside it, or a question about
bytes that went bad. `encode` and `decode` turn frames and hellos into bytes and back (codec.py).
"""

from typing import NamedTuple
from uuid import UUID

from dmq.raft.messages import Message
from dmq.storage.files import Buffer
from dmq.types import Position, Voter


class GroupKey(NamedTuple):
    """A group as all brokers name it; a uid is only known to its own broker."""

    topic_id: UUID
    partition: int


class Hello(NamedTuple):
    """Who begins a session; said once in it, before anything else.

    Nothing of features: whether a broker can run those of the cluster is told when it registers, which
    it does before it serves anything. It then ends with the reason; refused here it would wait for ever.
    """

    cluster_id: str
    me: Voter
    incarnation: int
    """Rises with every start of this directory: of two processes the older one is refused."""
    protocol_min: int
    protocol_max: int


class Digest(NamedTuple):
    """Groups, by their number and the sum of their hashes with their epochs (mod 2^64)."""

    groups: int
    total: int


NO_GROUPS = Digest(0, 0)


class Heartbeat(NamedTuple):
    """I live; this is what I lead you in, and what I follow you in."""

    sent_at: int
    """By the sender's clock; only ever given back to it."""
    echo: int
    """`sent_at` of your last heartbeat; -1: I had none in this session."""
    sync_ms: int
    """How long my last sync took, or how long the one under way has taken so far."""
    leads: Digest
    follows: Digest


class Claim(NamedTuple):
    """A group and the epoch in which it is led or followed."""

    key: GroupKey
    epoch: int


class Table(NamedTuple):
    """All groups that I lead and you are in, and all that I follow you in, at this time of mine."""

    sent_at: int
    leads: tuple[Claim, ...]
    follows: tuple[Claim, ...]
    wants_reply: bool


class RangeRequest(NamedTuple):
    """Send me the batches with offsets start <= offset < end.offset: mine went bad."""

    epoch: int
    start: int
    end: Position
    """A position of mine: whoever has it too has the same records below it."""


class RangeReply(NamedTuple):
    """The batches from `start` on as far as they fit, up to the offset `stop`."""

    epoch: int
    start: int
    stop: int


class GroupMessage(NamedTuple):
    """One message of one group."""

    key: GroupKey
    message: Message | RangeRequest | RangeReply
    cargo: Buffer = b""
    """Whole batches: of an append, or of a reply with a range."""
    tag: int = 0
    """A leader's number for this stay of a follower in the group, given back with its answers: what
    a replica acknowledged before it left does not count when it is back, in the same session."""


class Frame(NamedTuple):
    """All that one broker says to another one at one moment."""

    heartbeat: Heartbeat | None = None
    table: Table | None = None
    messages: tuple[GroupMessage, ...] = ()


class Outgoing(NamedTuple):
    """A frame on its way out. It leaves in `session` or never."""

    to: Voter
    session: int
    is_bulk: bool
    """Record bytes: belongs on the connection that may be slow."""
    frame: Frame
