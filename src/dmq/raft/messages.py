"""What replicas of one group say to each other: epochs and positions, ranges instead of bytes.

Every message begins with the sender's epoch; a request for a vote, with the epoch that is asked for.
An `Append` names records by offsets; who carries it puts their bytes beside it. `Envelope` is a
message with its address and the link session that it was made in: in a later session it is void,
because what it says may have been true only for a former life of the peer.

Plain values. Made and read by the roles (follower, candidate, leader); the peer door encodes them.
"""

from enum import IntEnum
from typing import NamedTuple

from dmq.types import Mark, Position, Voter


class Refusal(IntEnum):
    """Why a vote is not given."""

    EPOCH = 1
    """The epoch asked for is older than the voter's."""
    VOTED = 2
    """The voter gave this epoch's vote to another one."""
    LEASE = 3
    """The voter's link to its leader lives and the leader claims the group: ask again soon."""
    LOG = 4
    """The voter's log is newer; it stands itself."""
    RECOVERING = 5
    """The voter may have lost what it acknowledged, and not all voters are connected; or it has been
    here before, and had more than the candidate has."""
    BARRED = 6
    """By an operator's order another log is the group's; the candidate's does not descend from it."""


class PreVote(NamedTuple):
    """Would you vote for me in this epoch? Nothing is written for the question or its answer."""

    epoch: int
    end: Position
    is_settled: bool = False
    """Whoever may have what was committed is among the voters of this end; see voting.py."""


class PreVoteReply(NamedTuple):
    epoch: int
    asked_epoch: int
    refusal: Refusal | None
    is_recovering: bool


class Vote(NamedTuple):
    """Vote for me in this epoch."""

    epoch: int
    end: Position
    is_transfer: bool
    """The leader asked for it: its own lease does not stand in the way."""
    is_settled: bool = False
    """As in `PreVote`."""


class VoteReply(NamedTuple):
    """`epoch` is the voter's own, which stays behind `asked_epoch` if its leader's lease runs."""

    epoch: int
    asked_epoch: int
    refusal: Refusal | None
    is_recovering: bool
    """The voter lost its tail: its vote counts only if all voters give theirs."""


class Append(NamedTuple):
    """The part of the leader's log after `prev` up to `end`.

    `marks` are the marks in between; records are those with offsets from prev.offset up to
    end.offset, in whole batches.
    """

    epoch: int
    prev: Position
    marks: tuple[Mark, ...]
    end: Position
    leader_end: Position
    """The leader's log end when it sent this: what a recovering voter must reach."""
    commit: Position
    wants_ack: bool
    """False if it only tells the commit point."""
    unclean_epoch: int = -1
    """The last epoch of the leader's log that began with a loss; what was committed before it may
    be gone. -1: none that the log remembers."""

    def epoch_at(self, offset: int) -> int:
        """The epoch that the batch at this offset must carry; else it is not of this log."""
        epoch = self.prev.epoch
        for mark in self.marks:
            if mark.offset > offset:
                break
            epoch = mark.epoch
        return epoch


class Reset(NamedTuple):
    """You are below the beginning of my log: begin again there."""

    epoch: int
    base: Mark
    log_start: int
    leader_end: Position
    unclean_epoch: int = -1

    @property
    def position(self) -> Position:
        return Position(self.base.epoch, self.base.change, self.log_start)


class Ack(NamedTuple):
    """My log is durable up to `end`, and up to there it is yours."""

    epoch: int
    end: Position


class Nack(NamedTuple):
    """I don't have `prev` (or don't take a reset to it); `floor` is the nearest that I have."""

    epoch: int
    prev: Position
    floor: Position | None
    """None: my log has no beginning yet."""
    is_unable: bool
    """The positions fit, but my disk is full or my log damaged: come back later."""


class TimeoutNow(NamedTuple):
    """Stand at once: I hand the leadership over to you. Back from the heir: I can't, keep it."""

    epoch: int
    number: int
    """Rises with each that this leader says in its epoch: an answer is to this one, not to another."""


Message = PreVote | PreVoteReply | Vote | VoteReply | Append | Reset | Ack | Nack | TimeoutNow


class Envelope(NamedTuple):
    """A message on its way. It must leave in `session` or never."""

    to: Voter
    session: int
    message: Message
