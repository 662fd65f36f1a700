"""A cluster of real Raft cores in one process: a log of lists, a network of lists, and checkers.

`Host` is one replica: it does what the contract in dmq/raft/core.py asks of a caller, on a `ListLog`
that remembers what a crash would leave. `Cluster` holds hosts, sessions and messages under way, and
checks after every event that no promise was broken. It decides nothing by itself: transcripts, paper
tests and the random test say what happens next.
"""

import random
from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID

from dmq.raft import candidate
from dmq.raft.core import RaftCore
from dmq.raft.links import Links
from dmq.raft.marks import Marks
from dmq.raft.messages import Append, Envelope, Message
from dmq.raft.quorum import NOTHING
from dmq.raft.settings import RaftSettings
from dmq.raft.state import Role
from dmq.raft.view import position_of
from dmq.raft.writes import AddMark, CutTo, ResetTo, SetHard, Take, Trim, Write
from dmq.types import Mark, Position, Voter

Record = tuple[int, int]
"""(epoch, a number of its own)."""


class BrokenPromiseError(Exception):
    """A promise was broken."""


def voter(node: int, directory: int = 0) -> Voter:
    return Voter(node, UUID(int=directory))


class Image(NamedTuple):
    """A log as a restart would find it."""

    epoch: int
    vote: Voter | None
    marks: Marks
    start: int
    data: tuple[Record, ...]


class ListLog:
    """A log whose turns are images."""

    def __init__(self, image: Image, *, is_async: bool = False) -> None:
        self.is_async = is_async
        self.flushed = image.start + len(image.data)
        """An async log's records below this survive a power cut."""
        self.durable = self.begun = image
        self.load(image)

    def load(self, image: Image) -> None:
        self.epoch, self.vote, self.marks, self.start, data = image
        self.data = list(data)

    @property
    def end_offset(self) -> int:
        return self.start + len(self.data)

    @property
    def end(self) -> Position:
        return self.marks.position(self.end_offset)

    def image(self) -> Image:
        return Image(self.epoch, self.vote, self.marks, self.start, tuple(self.data))

    def records(self, start: int, stop: int) -> list[Record]:
        assert self.start <= start <= stop <= self.end_offset, (start, stop, self.start)
        return self.data[start - self.start : stop - self.start]

    def perform(self, write: Write, append: Append | None, cargo: list[Record]) -> None:
        """One staged operation, as the core asked for it."""
        if isinstance(write, SetHard):
            if write.epoch < self.epoch:
                raise BrokenPromiseError(f"epoch goes back {write} {self.epoch}")
            if write.epoch == self.epoch and self.vote not in (None, write.vote):
                raise BrokenPromiseError(f"two votes in one epoch {write} {self.vote}")
            self.epoch, self.vote = write
        elif isinstance(write, AddMark):
            assert write.mark.offset == self.end_offset, (write, self.end)
            self.marks = self.marks.add(write.mark)
        elif isinstance(write, CutTo):
            self.marks = self.marks.cut(write.position)
            del self.data[write.position.offset - self.start :]
            self.flushed = min(self.flushed, self.end_offset)
        elif isinstance(write, Take):
            assert append is not None
            assert write.start == self.end_offset, (write, self.end)
            first = append.prev.offset
            taken = cargo[write.start - first : write.stop - first]
            for offset, record in enumerate(taken, write.start):
                assert record[0] == append.epoch_at(offset) == self.marks.last.epoch
            self.data += taken
        elif isinstance(write, Trim):
            self.marks = self.marks.trim(write.log_start, write.commit)
            del self.data[: write.log_start - self.start]
            self.start = write.log_start
            self.flushed = max(self.flushed, self.start)
        else:
            assert isinstance(write, ResetTo)
            self.marks, self.start, self.data = Marks((write.base,)), write.log_start, []
            self.flushed = self.start

    def begin(self) -> None:
        self.begun = self.image()

    def synced(self) -> None:
        self.durable = self.begun

    @property
    def stable_end(self) -> Position:
        """As `storage.Log` gives it; what was cut meanwhile the core must notice itself."""
        stable = self.durable.marks.position(self.durable.start + len(self.durable.data))
        return min(stable, self.end)


class Host:
    """One replica: a core, its log and its links, on a broker that can crash."""

    def __init__(self, cluster: "Cluster", me: Voter, log: ListLog) -> None:
        self.cluster = cluster
        self.me = me
        self.log = log
        self.is_up = True
        self.is_full = False
        """The disk takes no records; marks and votes it takes."""
        self.is_recovering = False
        self.keeps_hint = False
        self.is_syncing = False
        self.target: tuple[Voter, ...] = ()
        self.barred_epoch = 0
        self.links = Links(me)
        self.core = self._make_core()
        self.was_leader_of = 0
        self.commit = self.core.commit

    def __repr__(self) -> str:
        return f"<Host {self.me.node} {self.core}>"

    def _make_core(self) -> RaftCore:
        log = self.log
        return RaftCore(
            self.links,
            self.cluster.settings,
            self.cluster.dice,
            marks=log.marks,
            end_offset=log.end_offset,
            log_start=log.start,
            epoch=log.epoch,
            vote=log.vote,
            commit=self.commit if self.keeps_hint else NOTHING,
            is_recovering=self.is_recovering,
        )

    # ---- what a caller does

    def stage(self, append: Append | None = None, cargo: Iterable[Record] = ()) -> None:
        """After every input: do to the log what the core wants, then check everything."""
        for write in self.core.take_writes():
            if self.is_full and isinstance(write, Take):
                self.refused()
                break
            marks = self.log.marks
            self.log.perform(write, append, list(cargo))
            self._count(write, marks)
        self.cluster.check(self)

    def refused(self) -> None:
        """The log took less than it was told."""
        log = self.log
        self.core.refused(log.marks, log.end_offset, log.start, self.cluster.now)
        self.commit = min(self.commit, self.core.commit)
        self.cluster.count("refused")

    def _count(self, write: Write, before: Marks) -> None:
        count, marks = self.cluster.count, self.log.marks
        if isinstance(write, CutTo):
            count("cut")
            if len(marks) < len(before):
                count("mark cut")
                if marks.last.voters != before.last.voters:
                    count("voters rolled back")
        elif isinstance(write, Trim | ResetTo):
            count(type(write).__name__)
        elif isinstance(write, AddMark) and len(marks) > 2:
            a, b, c = marks.items[-3:]
            if a.offset == b.offset == c.offset and a.epoch < b.epoch < c.epoch:
                count("empty epochs in a row")

    def begin_turn(self) -> None:
        if self.is_syncing or not self.is_up:
            return
        self.log.begin()
        self.is_syncing = True
        ready = self.core.ready(self.cluster.now)
        self.push(ready.wants)

    def push(self, wants: list) -> None:
        """Send what followers want, as much of it as the cluster's dice allow."""
        cluster = self.cluster
        for want in wants:
            stop = want.stop
            if cluster.splits and stop > want.start:
                stop = cluster.dice.randrange(want.start, stop + 1)
            if cluster.stop_max is not None:
                stop = max(want.start, min(stop, cluster.stop_max))
                if want.start == stop < want.stop:
                    continue  # Nothing could be read: leave the want.
            envelope = self.core.send(want, stop, cluster.now)
            message, cargo = envelope.message, []
            if isinstance(message, Append):
                cargo = self.log.records(message.prev.offset, message.end.offset)
            cluster.post(self.me, envelope, cargo)

    def end_turn(self) -> None:
        if not self.is_syncing or not self.is_up:
            return
        self.is_syncing = False
        self.log.synced()
        for envelope in self.core.durable(self.log.stable_end, self.cluster.now):
            self.cluster.post(self.me, envelope, [])
        self.stage()

    def turn(self) -> None:
        self.end_turn()
        self.begin_turn()
        self.end_turn()

    def produce(self, count: int = 1) -> Position | None:
        if not (self.is_up and self.core.can_append) or self.is_full:
            return None
        for _ in range(count):
            self.log.data.append((self.core.epoch, self.cluster.next_number()))
        position = self.core.appended(self.log.end_offset)
        self.stage()
        return position

    def receive(self, sender: Voter, session: int, message: Message, cargo: list[Record]) -> None:
        self.core.step(sender, session, message, self.cluster.now)
        self.stage(message if isinstance(message, Append) else None, cargo)

    def set_target(self, voters: tuple[Voter, ...]) -> None:
        """What the metadata say; a broker knows them after a restart too."""
        self.target = voters
        if self.is_up:
            self.core.set_target(voters, self.cluster.now)
            self.stage()

    def bar(self, epoch: int) -> None:
        """The metadata say that another replica was made the only voter."""
        self.barred_epoch = epoch
        if self.is_up and epoch:
            self.core.bar(epoch, self.cluster.now)
            self.stage()

    def tick(self) -> None:
        if self.is_up:
            self.core.tick(self.cluster.now)
            self.stage()


class Flight(NamedTuple):
    """A message under way."""

    sender: Voter
    envelope: Envelope
    cargo: list[Record]


class Cluster:
    """See the module."""

    host_type: type[Host] = Host

    def __init__(
        self,
        voters_count: int,
        learners_count: int = 0,
        *,
        seed: int = 0,
        settings: RaftSettings | None = None,
        is_async: bool = False,
    ) -> None:
        self.dice = random.Random(seed)
        self.settings = settings or RaftSettings()
        self.now = 0
        self.splits = False
        """Whether appends end at a place that the dice choose."""
        self.stop_max: int | None = None
        """Appends end at this offset at the latest."""
        self.drops: Callable[[Flight], bool] = lambda flight: False
        self.net: list[Flight] = []
        self.sessions = 0
        self.leaders: dict[int, Voter] = {}
        self.committed: dict[tuple[object, ...], tuple[object, int]] = {}
        self.numbers = 0
        self.is_async = is_async
        self.unclean = 0
        self.reached: dict[str, int] = {}
        """How often rare things happened."""
        names = [voter(n + 1) for n in range(voters_count)]
        self.first_mark = Mark(0, 0, 0, tuple(names), 0)
        self.hosts: dict[int, Host] = {}
        for name in names:
            self.hosts[name.node] = self._host(name, Marks((self.first_mark,)))
        for n in range(learners_count):
            name = voter(voters_count + n + 1)
            self.hosts[name.node] = self._host(name, Marks())

    def _host(self, me: Voter, marks: Marks) -> Host:
        return self.host_type(
            self, me, ListLog(Image(0, None, marks, 0, ()), is_async=self.is_async)
        )

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def count(self, what: str) -> None:
        self.reached[what] = self.reached.get(what, 0) + 1

    def by_name(self, name: Voter) -> Host | None:
        host = self.hosts.get(name.node)
        return host if host is not None and host.me == name and host.is_up else None

    # ---- links

    def connect(self, a: Host, b: Host) -> None:
        """A new session between two hosts; messages of the former one are void."""
        if not (a.is_up and b.is_up) or a is b:
            return
        self.sessions += 1
        for here, there in ((a, b), (b, a)):
            here.links.open(there.me, self.sessions)
        for here, there in ((a, b), (b, a)):
            here.core.peer_changed(there.me, self.now)
            here.stage()

    def connect_all(self) -> None:
        hosts = list(self.hosts.values())
        for index, a in enumerate(hosts):
            for b in hosts[index + 1 :]:
                if not a.links.session(b.me):
                    self.connect(a, b)

    def disconnect(self, a: Host, b: Host) -> None:
        for here, there in ((a, b), (b, a)):
            if here.is_up and here.links.session(there.me):
                here.links.close(there.me)
                here.core.peer_changed(there.me, self.now)
                here.stage()

    def suspect(self, a: Host, b: Host) -> None:
        """`a` has heard nothing of `b` for too long."""
        if a.is_up and a.links.session(b.me) and a.links.is_live(b.me):
            a.links.suspect(b.me)
            a.core.peer_changed(b.me, self.now)
            a.stage()

    def revive(self, a: Host, b: Host) -> None:
        if a.is_up and b.is_up and a.links.session(b.me) and not a.links.is_live(b.me):
            a.links.revive(b.me)
            a.core.peer_changed(b.me, self.now)
            a.stage()

    def exchange_digests(self) -> None:
        """What heartbeats tell: who leads the group, and who follows whom in it."""
        for a in self.hosts.values():
            for b in self.hosts.values():
                if a.is_up and b.is_up and a.links.session(b.me) and b.links.is_live(a.me):
                    self._digest(a, b)

    def _digest(self, a: Host, b: Host) -> None:
        """`b` hears what `a` says of itself."""
        if a.core.is_leader:
            b.core.claimed(a.me, a.core.epoch, self.now)
        elif b.core.leader == a.me or (b.core.is_leader and a.core.leader != b.me):
            b.core.disclaimed(a.me, self.now)
        b.stage()

    # ---- messages

    def post(self, sender: Voter, envelope: Envelope, cargo: list[Record]) -> None:
        self.net.append(Flight(sender, envelope, cargo))

    def deliver(self, index: int = 0, *, keeps: bool = False) -> Flight:
        """Bring one message to its host, if both ends still live in its session."""
        flight = self.net[index] if keeps else self.net.pop(index)
        sender, envelope, cargo = flight
        host = self.by_name(envelope.to)
        if host is not None and not self.drops(flight):
            host.receive(sender, envelope.session, envelope.message, cargo)
        return flight

    def settle(self) -> None:
        """Let everything arrive in order, and every turn end, until nothing happens any more."""
        while True:
            for host in self.hosts.values():
                host.turn()
                host.turn()  # What the first one made durable may lead to more.
            if not self.net:
                return
            while self.net:
                self.deliver()

    def stand(self, host: Host) -> None:
        """Let it stand now, whatever anybody's timer or lease says."""
        candidate.stand(host.core._state, self.now, is_transfer=True)
        host.stage()

    def recover(self, host: Host, epoch: int) -> None:
        """An operator makes this one the only voter; the metadata tell the others.

        An order that a crash interrupts is given again, with another epoch: here it never is.
        """
        host.barred_epoch = 0
        host.core.recover(epoch, self.now)
        host.stage()
        host.turn()
        host.turn()
        for other in self.hosts.values():
            if other is not host:
                other.bar(epoch)

    # ---- faults

    def crash(self, host: Host, *, keeps_turn: bool = False, keeps_data: int | None = None) -> None:
        """Stop; what was not synced is gone.

        `keeps_turn`: the turn under way reached the disk. `keeps_data`: end offset that a power cut
        left of an async log; its replica is recovering after the restart.
        """
        log = host.log
        if host.is_syncing and keeps_turn:
            log.synced()
        log.load(log.durable)
        log.begun = log.durable
        if keeps_data is not None and log.is_async:
            end = min(max(keeps_data, log.start), log.end_offset)
            del log.data[end - log.start :]
            log.marks = log.marks.up_to(end) if log.marks.items else log.marks
            log.durable = log.begun = log.image()
            host.is_recovering = True
        log.flushed = log.end_offset
        host.is_syncing = False
        host.is_up = False
        host.was_leader_of = 0
        for other in self.hosts.values():
            if other is not host:
                self.disconnect(other, host)

    def restart(self, host: Host) -> None:
        if host.is_up:
            return
        host.is_up = True
        host.links = Links(host.me)
        host.core = host._make_core()
        host.commit = host.core.commit
        host.core.start(self.now)
        host.set_target(host.target)
        host.bar(host.barred_epoch)

    def wipe(self, host: Host, *, keeps_name: bool = False) -> Host:
        """An empty disk: the broker comes back under another name, as a learner."""
        self.crash(host)
        directory = host.me.directory.int + (0 if keeps_name else 1)
        marks = Marks((self.first_mark,)) if keeps_name else Marks()
        new = self._host(voter(host.me.node, directory), marks)
        self.hosts[host.me.node] = new
        new.core.start(self.now)
        new.set_target(host.target)
        new.bar(host.barred_epoch)
        return new

    # ---- promises

    def check(self, host: Host) -> None:
        core, log = host.core, host.log
        if (core.marks, core.end, core.log_start) != (log.marks, log.end, log.start):
            raise BrokenPromiseError(
                f"core and log differ: {core.end} {log.end} {core.marks} {log.marks}"
            )
        if (core.epoch, core.vote) != (log.epoch, log.vote):
            raise BrokenPromiseError(
                f"hard state differs: {core.epoch} {core.vote} {log.epoch} {log.vote}"
            )
        is_standing = core.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)
        if is_standing and (core.deadline is None) is not core.is_obeying:
            raise BrokenPromiseError(f"the timer of a {core.role}: {core.deadline}")
        if host.is_recovering and not core.is_recovering:
            host.is_recovering = False
            self.count("healed")
        if core.role is Role.LEADER and host.was_leader_of != core.epoch:
            host.was_leader_of = core.epoch
            self.count("election")
            self._check_leader(host)
        if core.commit != host.commit:
            if core.commit < host.commit and not self.unclean:
                raise BrokenPromiseError(f"commit goes back {host.commit} {core.commit}")
            self._note_committed(host, host.commit)
            host.commit = core.commit
            self.count("commit")

    def _check_leader(self, host: Host) -> None:
        epoch = host.core.epoch
        self.unclean += host.core.unclean_elections
        if self.leaders.setdefault(epoch, host.me) != host.me:
            raise BrokenPromiseError(f"two leaders in epoch {epoch}")
        if self.unclean:
            return
        for key, (entry, by) in self.committed.items():
            if by < epoch and not _holds(host.log, key, entry):
                raise BrokenPromiseError(f"leader of epoch {epoch} lacks committed {key}")

    def _note_committed(self, host: Host, since: Position) -> None:
        if self.unclean:
            return
        log, commit, epoch = host.log, host.core.commit, host.core.epoch
        for mark in log.marks:
            if since < position_of(mark) <= commit:
                self._note(("mark", mark.epoch, mark.change), mark, epoch)
        for offset in range(max(since.offset, log.start), commit.offset):
            self._note(("record", offset), log.data[offset - log.start], epoch)

    def _note(self, key: tuple[object, ...], entry: object, epoch: int) -> None:
        noted, by = self.committed.setdefault(key, (entry, epoch))
        if noted != entry:
            raise BrokenPromiseError(f"committed {key} was {noted} by epoch {by}, now {entry}")

    def check_logs(self) -> None:
        """Log matching: a common mark means the same log up to it (Raft §5.3)."""
        logs = [host.log for host in self.hosts.values() if host.log.marks.items]
        for index, a in enumerate(logs):
            for b in logs[index + 1 :]:
                _check_matching(a, b)


def _holds(log: ListLog, key: tuple[object, ...], entry: object) -> bool:
    if key[0] == "record":
        offset = key[1]
        assert isinstance(offset, int)
        if offset < log.start:
            return True
        return offset < log.end_offset and log.data[offset - log.start] == entry
    base = log.marks.base if log.marks.items else None
    if base is not None and key[1:] < base[:2]:
        return True
    return entry in log.marks.items


def _check_matching(a: ListLog, b: ListLog) -> None:
    theirs = {mark[:2]: mark for mark in b.marks}
    top = None
    for mark in a.marks:
        if mark[:2] in theirs:
            if theirs[mark[:2]] != mark:
                raise BrokenPromiseError(f"mark {mark} is {theirs[mark[:2]]} elsewhere")
            top = mark
    if top is None:
        return
    first = max(a.marks.base[:2], b.marks.base[:2])
    if _between(a, first, top) != _between(b, first, top):
        raise BrokenPromiseError(f"marks below {top} differ")
    low, high = max(a.start, b.start), min(_stop(a, top), _stop(b, top))
    for offset in range(low, high):
        if a.data[offset - a.start] != b.data[offset - b.start]:
            raise BrokenPromiseError(f"records differ at {offset}")


def _between(log: ListLog, first: tuple[int, ...], top: Mark) -> list[Mark]:
    return [mark for mark in log.marks if first <= mark[:2] <= top[:2]]


def _stop(log: ListLog, top: Mark) -> int:
    after = [mark.offset for mark in log.marks if mark[:2] > top[:2]]
    return after[0] if after else log.end_offset
