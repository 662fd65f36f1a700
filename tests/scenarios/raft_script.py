"""Transcripts of a cluster: commands in, what happened out, as lines that a person can read.

A transcript (tests/scenarios/raft/*.txt) is a list of blocks: comments and one or more commands, a
line of dashes, what happened, an empty line. `Script.run` performs one command and returns the lines.
Positions are written epoch.change@offset, or epoch@offset where nothing changed within the epoch;
brokers by their number, renamed ones as number'directory.

    cluster VOTERS [learners=N] [async]    a new group; all links are up unless `apart`
    connect A B | cut A B                  a new session; the end of one (all: connect all, cut A all)
    suspect A of B | hear A of B           A has not heard B for too long; has heard it again
    lose A > B [KIND] | lose nothing       messages from A to B get lost from now on (a one-way cut)
    stop OFFSET | stop nowhere             appends carry records up to this offset at most
    produce A N                            N records, if A leads
    stand A                                A stands now, whatever its timer says
    transfer A B | target A B C | trim A OFFSET | recover A EPOCH | damage A | repair A
    crash A [keep=OFFSET] | restart A | wipe A
    settle                                 everything arrives, turn after turn, until nothing is left
    wait MS                                time passes in steps of 10 ms; timers fire, everything arrives
    digests                                heartbeats tell who leads and who follows
    status                                 every replica in one line
    quiet COMMAND                          the same without its lines
"""

from collections.abc import Callable, Iterable

from scenarios.raft_cluster import Cluster, Flight, Host, Record

from dmq.raft.messages import (
    Ack,
    Append,
    Message,
    Nack,
    PreVote,
    PreVoteReply,
    Reset,
    TimeoutNow,
    Vote,
    VoteReply,
)
from dmq.raft.settings import RaftSettings
from dmq.raft.writes import AddMark, CutTo, ResetTo, SetHard, Take, Trim, Write
from dmq.types import Mark, Position, Voter

STEP_MS = 10


def place(p: Position | None) -> str:
    if p is None:
        return "nothing"
    if p.epoch < 0:
        return "nothing"
    return f"{p.epoch}.{p.change}@{p.offset}" if p.change else f"{p.epoch}@{p.offset}"


def name(who: Voter | None) -> str:
    if who is None:
        return "-"
    return f"{who.node}" + (f"'{who.directory.int}" if who.directory.int else "")


def mark_text(mark: Mark) -> str:
    at = place(Position(mark.epoch, mark.change, mark.offset))
    start = f" start {mark.log_start}" if mark.log_start else ""
    return f"{at} [{' '.join(map(name, mark.voters))}]{start}"


def write_text(write: Write) -> str:
    match write:
        case SetHard(epoch, vote):
            return f"remembers epoch {epoch}, vote {name(vote)}"
        case AddMark(mark):
            return f"marks {mark_text(mark)}"
        case CutTo(position):
            return f"cuts to {place(position)}"
        case Take(start, stop):
            return f"takes records {start}..{stop - 1}"
        case Trim(log_start, _):
            return f"trims to {log_start}"
        case ResetTo(base, log_start):
            return f"resets to {mark_text(base)} from {log_start}"


def message_text(message: Message) -> str:
    match message:
        case PreVote(epoch, end):
            return f"PreVote {epoch}? end {place(end)}"
        case Vote(epoch, end, is_transfer):
            return f"Vote {epoch}? end {place(end)}" + (" transfer" if is_transfer else "")
        case PreVoteReply():
            return f"PreVote {verdict_text(message)}"
        case VoteReply():
            return f"Vote {verdict_text(message)}"
        case Append(epoch, prev, marks, end, leader_end, commit):
            inside = "".join(f" mark {mark_text(m)}" for m in marks)
            goal = f" of {place(leader_end)}" if leader_end != end else ""
            return f"Append e{epoch} {place(prev)} ..{inside} {place(end)}{goal} commit {place(commit)}"
        case Reset(epoch, base, log_start, leader_end):
            return f"Reset e{epoch} {mark_text(base)} from {log_start} of {place(leader_end)}"
        case Ack(epoch, end):
            return f"Ack e{epoch} {place(end)}"
        case Nack(epoch, prev, floor, is_unable):
            what = "is unable" if is_unable else f"has {place(floor)}"
            return f"Nack e{epoch} {place(prev)}, {what}"
        case TimeoutNow(epoch):
            return f"TimeoutNow e{epoch}"


def verdict_text(reply: PreVoteReply | VoteReply) -> str:
    verdict = "yes" if reply.refusal is None else f"no, {reply.refusal.name}"
    who = ", recovering" if reply.is_recovering else ""
    return f"{reply.asked_epoch}: {verdict} (epoch {reply.epoch}{who})"


class TracedHost(Host):
    """A host that says what changes in it."""

    seen: tuple[object, ...] = ()

    def stage(self, append: Append | None = None, cargo: Iterable[Record] = ()) -> None:
        writes = list(self.core._state.log.writes)
        super().stage(append, cargo)
        for write in writes:
            self.say(write_text(write))
        self.compare()

    def say(self, what: str) -> None:
        assert isinstance(self.cluster, TracedCluster)
        self.cluster.lines.append(f"   {name(self.me)} {what}")

    def compare(self) -> None:
        core = self.core
        facts = (
            f"is {core.role.value} of epoch {core.epoch}",
            f"follows {name(core.leader)}" if not core.is_leader else "",
            f"commits {place(core.commit)}",
            "is recovering" if core.is_recovering else "is well",
        )
        before = self.seen or ("is follower of epoch 0", "follows -", facts[2], "is well")
        for old, new in zip(before, facts, strict=True):
            if old != new and new and not (new.startswith("is follower of") and "follower" in old):
                self.say(new)
        self.seen = facts


class TracedCluster(Cluster):
    """A cluster that writes down what happens."""

    host_type = TracedHost

    def __init__(self, *counts: int, settings: RaftSettings, is_async: bool) -> None:
        self.lines: list[str] = []
        super().__init__(*counts, settings=settings, is_async=is_async)

    def deliver(self, index: int = 0, *, keeps: bool = False) -> Flight:
        flight = self.net[index]
        fate = " (lost)" if self.drops(flight) else ""
        if self.by_name(flight.envelope.to) is None:
            fate = " (nobody there)"
        text = message_text(flight.envelope.message)
        sender, to = name(flight.sender), name(flight.envelope.to)
        self.lines.append(f"{sender} > {to}  {text}{fate}")
        return super().deliver(index, keeps=keeps)


class Script:
    """One transcript's cluster and what may be said to it."""

    def __init__(self) -> None:
        self.cluster = TracedCluster(1, settings=RaftSettings(), is_async=False)

    def run(self, line: str) -> list[str]:
        self.cluster.lines.clear()
        verb, *words = line.split()
        command: Callable[..., list[str] | None] = getattr(self, f"do_{verb}")
        said = command(*words)
        return list(said) if said is not None else list(self.cluster.lines)

    def host(self, word: str) -> Host:
        return self.cluster.hosts[int(word)]

    def do_quiet(self, *words: str) -> list[str]:
        self.run(" ".join(words))
        return []

    # ---- the group

    def do_cluster(self, voters: str, *options: str) -> None:
        learners = next((int(o[9:]) for o in options if o.startswith("learners=")), 0)
        settings = RaftSettings(jitter_ms=0)
        self.cluster = TracedCluster(
            int(voters), learners, settings=settings, is_async="async" in options
        )
        for host in self.cluster.hosts.values():
            host.core.start(0)
        if "apart" not in options:
            self.cluster.connect_all()

    def do_status(self) -> list[str]:
        return [self._status(host) for host in self.cluster.hosts.values()]

    def _status(self, host: Host) -> str:
        core = host.core
        if not host.is_up:
            return f"{name(host.me)} down"
        timer = "" if core.deadline is None else f" timer in {core.deadline - self.cluster.now} ms"
        extra = " recovering" if core.is_recovering else ""
        voters = " ".join(map(name, core.voters))
        start = f" start {core.log_start}" if core.log_start else ""
        return (
            f"{name(host.me)} {core.role.value}{extra} epoch {core.epoch} leader {name(core.leader)}"
            f" end {place(core.end)} commit {place(core.commit)}{start} voters [{voters}]{timer}"
        )

    # ---- links

    def do_connect(self, a: str, b: str = "") -> None:
        if a == "all":
            self.cluster.connect_all()
        else:
            self.cluster.connect(self.host(a), self.host(b))

    def do_cut(self, a: str, b: str) -> None:
        others = self.cluster.hosts.values() if b == "all" else [self.host(b)]
        for other in others:
            if other is not self.host(a):
                self.cluster.disconnect(self.host(a), other)

    def do_suspect(self, a: str, _: str, b: str) -> None:
        self.cluster.suspect(self.host(a), self.host(b))

    def do_hear(self, a: str, _: str, b: str) -> None:
        self.cluster.revive(self.host(a), self.host(b))

    def do_lose(self, a: str, _: str = "", b: str = "", kind: str = "") -> None:
        if a == "nothing":
            self.cluster.drops = lambda flight: False
            return
        before, here, there = self.cluster.drops, self.host(a).me, self.host(b).me

        def drops(flight: Flight) -> bool:
            is_kind = not kind or type(flight.envelope.message).__name__ == kind
            is_ours = (flight.sender, flight.envelope.to) == (here, there)
            return before(flight) or (is_ours and is_kind)

        self.cluster.drops = drops

    def do_stop(self, offset: str) -> None:
        self.cluster.stop_max = None if offset == "nowhere" else int(offset)

    def do_digests(self) -> None:
        self.cluster.exchange_digests()

    # ---- events

    def do_produce(self, a: str, count: str = "1") -> list[str]:
        position = self.host(a).produce(int(count))
        return [f"{a} appends up to {place(position)}" if position else f"{a} takes no records"]

    def do_stand(self, a: str) -> None:
        self.cluster.stand(self.host(a))

    def do_transfer(self, a: str, b: str) -> list[str] | None:
        host = self.host(a)
        if not host.core.transfer(self.host(b).me, self.cluster.now):
            return ["refused"]
        host.stage()
        return None

    def do_target(self, *names: str) -> None:
        wanted = tuple(self.host(word).me for word in names)
        for host in self.cluster.hosts.values():
            host.set_target(wanted)

    def do_trim(self, a: str, offset: str) -> None:
        self.host(a).core.request_log_start(int(offset), self.cluster.now)
        self.host(a).stage()

    def do_recover(self, a: str, epoch: str) -> None:
        self.cluster.recover(self.host(a), int(epoch))

    def do_damage(self, a: str) -> None:
        self.host(a).core._state.is_damaged = True

    def do_repair(self, a: str) -> None:
        self.host(a).core.repaired(self.cluster.now)
        self.host(a).stage()

    def do_crash(self, a: str, keep: str = "") -> None:
        kept = int(keep.removeprefix("keep=")) if keep else None
        self.cluster.crash(self.host(a), keeps_data=kept)

    def do_restart(self, a: str) -> None:
        host = self.host(a)
        assert isinstance(host, TracedHost)
        host.seen = ()
        self.cluster.restart(host)
        self.cluster.connect_all()

    def do_wipe(self, a: str) -> None:
        self.cluster.wipe(self.host(a))
        self.cluster.connect_all()

    # ---- time

    def do_settle(self) -> None:
        self.cluster.settle()

    def do_wait(self, duration: str) -> None:
        cluster, until = self.cluster, self.cluster.now + int(duration)
        while cluster.now < until:
            cluster.now = min(until, cluster.now + STEP_MS)
            said = len(cluster.lines)
            for host in cluster.hosts.values():
                host.tick()
            cluster.settle()
            if len(cluster.lines) > said:
                cluster.lines.insert(said, f"-- {cluster.now} ms")
