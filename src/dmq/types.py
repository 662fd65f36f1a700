"""A name for every number, and the few values that every layer passes around.

Owns no behaviour beyond reading and printing itself. Everybody imports it; it imports nobody.
"""

from typing import NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
"""The number of a record in its partition; where an end is meant, the next one to be written."""

Epoch = NewType("Epoch", int)
"""Leader epoch of a partition: Raft's term."""

NodeId = NewType("NodeId", int)
"""A broker's number in its cluster."""

ProducerId = NewType("ProducerId", int)

Millis = NewType("Millis", int)
"""Milliseconds: since 1970 where a moment is meant, else a length of time."""

NO_EPOCH = Epoch(-1)
NO_LEADER = NodeId(-1)
NIL_UUID = UUID(int=0)
"""Kafka's zero uuid: "no topic id"."""

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)
"""Kafka's reserved id of the metadata topic."""


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Mark(NamedTuple):
    """An entry without an offset that Raft writes between records (SPEC: positions).

    `offset` is where the next record goes. Tuple order of the first three fields is log order.
    """

    epoch: int
    change: int
    offset: int
    voters: tuple["Voter", ...]
    log_start: int


class Position(NamedTuple):
    """A place in a log: (epoch, change) of the last mark at or before it, and the offset.

    Tuple order is log order. Ends, commits, cuts are positions, never bare offsets.
    """

    epoch: int
    change: int
    offset: int


class Voter(NamedTuple):
    """A replica that votes. Who may have forgotten a promise returns under another directory id."""

    node: int
    directory: UUID
