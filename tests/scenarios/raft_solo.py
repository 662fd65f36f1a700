"""One real core among peers that only say what the test says: for rules, one at a time.

solo = Solo(3, marks=[(1, 0, 0)], end=4, epoch=1)
solo.hears(2, Vote(2, Position(1, 0, 4), False))
assert solo.says() == [(2, VoteReply(2, 2, None, False))]
"""

from collections.abc import Sequence
from typing import Any

from scenarios.raft_cluster import Cluster, Host, Image, ListLog, Record, voter

from dmq.raft.core import RaftCore
from dmq.raft.marks import Marks
from dmq.raft.messages import Ack, Append, Message, PreVote, PreVoteReply, Vote, VoteReply
from dmq.raft.quorum import NOTHING
from dmq.raft.settings import RaftSettings
from dmq.types import Mark, Position, Voter

P = Position
PLAIN = RaftSettings(jitter_ms=0)


class Solo:
    """Node 1 of a group; nodes 2, 3 … are connected unless told otherwise."""

    def __init__(
        self,
        voters_count: int = 3,
        *,
        marks: Sequence[tuple[int, int, int]] = ((0, 0, 0),),
        end: int = 0,
        epoch: int = 0,
        vote: int | None = None,
        log_start: int = 0,
        commit: Position | None = None,
        is_recovering: bool = False,
        is_damaged: bool = False,
        is_unclean_allowed: bool = False,
        is_connected: bool = True,
        remembered: Position = NOTHING,
        settings: RaftSettings = PLAIN,
    ) -> None:
        self.cluster = Cluster(voters_count, settings=settings)
        self.voters = tuple(voter(n + 1) for n in range(voters_count))
        self.host: Host = self.cluster.hosts[1]
        kept = Marks(tuple(Mark(*mark, self.voters, log_start) for mark in marks))
        data: list[Record] = [(kept.epoch_at(o), o) for o in range(log_start, end)]
        vote_for = voter(vote) if vote is not None else None
        image = Image(max(epoch, kept.last.epoch), vote_for, kept, log_start, tuple(data))
        self.host.log = ListLog(image)
        core = RaftCore(
            self.host.links,
            settings,
            self.cluster.dice,
            marks=kept,
            end_offset=end,
            log_start=log_start,
            epoch=image.epoch,
            vote=vote_for,
            is_recovering=is_recovering,
            is_damaged=is_damaged,
            is_unclean_allowed=is_unclean_allowed,
            remembered=remembered,
            **({} if commit is None else {"commit": commit}),
        )
        self.host.core = core
        self.host.is_recovering = is_recovering
        self.host.commit = core.commit
        if is_connected:
            for node in range(2, voters_count + 1):
                self.connect(node)

    @property
    def core(self) -> RaftCore:
        return self.host.core

    @property
    def now(self) -> int:
        return self.cluster.now

    @property
    def me(self) -> Voter:
        return self.host.me

    # ---- the world

    def connect(self, node: int) -> None:
        """A new session with this peer."""
        self.cluster.sessions += 1
        self.host.links.open(voter(node), self.cluster.sessions)
        self.core.peer_changed(voter(node), self.now)
        self.host.stage()

    def disconnect(self, node: int) -> None:
        self.host.links.close(voter(node))
        self.core.peer_changed(voter(node), self.now)
        self.host.stage()

    def suspect(self, node: int) -> None:
        self.host.links.suspect(voter(node))
        self.core.peer_changed(voter(node), self.now)
        self.host.stage()

    def hears(self, node: int, message: Message, cargo: Sequence[Record] | None = None) -> None:
        """A message of the present session arrives; by default with the records that it names."""
        if cargo is None and isinstance(message, Append):
            offsets = range(message.prev.offset, message.end.offset)
            cargo = [(message.epoch_at(offset), offset) for offset in offsets]
        session = self.host.links.session(voter(node))
        self.host.receive(voter(node), session, message, list(cargo or ()))

    def passes(self, time_ms: int) -> None:
        """Time passes, and the timer that is due fires."""
        self.cluster.now += time_ms
        self.host.tick()

    def says(self) -> list[tuple[int, Message]]:
        """All that leaves after as many turns as there is something to do."""
        said: list[tuple[int, Message]] = []
        while True:
            self.host.turn()
            self.host.turn()
            if not self.cluster.net:
                return said
            flights, self.cluster.net = self.cluster.net, []
            said += [(flight.envelope.to.node, flight.envelope.message) for flight in flights]

    def says_before_sync(self) -> list[tuple[int, Message]]:
        """What leaves when a turn has begun and its sync has not returned."""
        self.host.begin_turn()
        flights, self.cluster.net = self.cluster.net, []
        return [(flight.envelope.to.node, flight.envelope.message) for flight in flights]

    def says_after_sync(self) -> list[tuple[int, Message]]:
        self.host.end_turn()
        flights, self.cluster.net = self.cluster.net, []
        return [(flight.envelope.to.node, flight.envelope.message) for flight in flights]

    # ---- shortcuts

    def stands(self) -> None:
        """Through the pre-vote to candidate, by the votes of all that are connected."""
        self.core.start(self.now)
        while self.core.deadline is not None and self.core.role.value == "follower":
            self.passes(self.core.deadline - self.now)
        for node, message in self.says():
            assert isinstance(message, PreVote), message
            self.hears(node, PreVoteReply(self.core.epoch, message.epoch, None, False))

    def leads(self) -> list[tuple[int, Message]]:
        """Elected by all that are connected; what it says then."""
        self.stands()
        for node, message in self.says():
            if isinstance(message, Vote):
                self.hears(node, VoteReply(message.epoch, message.epoch, None, False))
        assert self.core.is_leader, self.core
        return self.says()

    def produces(self, count: int = 1) -> Position:
        position = self.host.produce(count)
        assert position is not None
        return position

    def marks(self) -> list[tuple[Any, ...]]:
        return [mark[:3] for mark in self.core.marks]


def led(voters_count: int = 3, **log: Any) -> Solo:
    """A leader whose mark everybody has."""
    solo = Solo(voters_count, **log)
    solo.leads()
    for node in range(2, voters_count + 1):
        solo.hears(node, Ack(solo.core.epoch, solo.core.end))
    solo.says()
    return solo
