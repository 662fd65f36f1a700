"""A random walk of a small cluster, from one seed: everything that can happen, in any order.

Messages are lost, doubled and reordered even inside a session; replicas stand without waiting, so that no
safety rests on timing; brokers crash between and inside turns, lose what was not synced, lose their
disks; voters and log starts change; async logs lose their tails. Each seed draws its own subset of
faults. `Profile` narrows the draw, for mutants that need a rare state.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from scenarios.raft_cluster import BrokenPromiseError, Cluster, Host, voter

from dmq.raft import candidate, changing
from dmq.raft.membership import is_single_step
from dmq.raft.settings import RaftSettings
from dmq.raft.state import Role

END_OFFSET_MAX = 12
"""Small logs meet more often."""


WEIGHTS = {
    "deliver": 45.0,
    "turn": 15.0,
    "half_turn": 6.0,
    "produce": 7.0,
    "stand": 4.0,
    "change": 2.5,
    "target": 1.0,
    "trim": 1.5,
    "crash": 1.5,
    "restart": 3.0,
    "wipe": 0.4,
    "link": 2.0,
    "reconnect": 2.0,
    "time": 5.0,
    "transfer": 1.0,
    "refuse": 2.0,
    "digests": 1.0,
    "push": 3.0,
    "configure": 1.0,
}
"""How often each thing happens in a seed that has it."""

CHANCES = {
    "half_turn": 0.7,
    "change": 0.6,
    "target": 0.4,
    "trim": 0.5,
    "crash": 0.8,
    "wipe": 0.4,
    "link": 0.6,
    "time": 0.5,
    "transfer": 0.3,
    "refuse": 0.3,
    "digests": 0.3,
    "configure": 0.3,
}
"""How many seeds have it; all have the rest."""


@dataclass(frozen=True)
class Profile:
    """The world of a walk."""

    steps: int = 300
    voters_count: int = 3
    learners_min: int = 0
    learners_max: int = 1
    is_async: bool = False
    weights: dict[str, float] = field(default_factory=lambda: WEIGHTS)
    chances: dict[str, float] = field(default_factory=lambda: CHANCES)
    haste: float = 0.65
    """How often a turn follows an event at once."""
    begins_led: bool = False
    """The walk begins with a leader, and with the learners in the target."""
    loses_marks: bool = False
    """A broken disk: the last mark of the last turn is lost in a crash (a mutant)."""
    keeps_name: bool = False
    """A broken broker: with an empty disk it keeps its name (a mutant)."""
    forgets_loss: bool = False
    """A broken broker: it does not notice that its start was unclean (a mutant)."""


def narrow(**weights: float) -> dict[str, float]:
    """Only these things happen, and in every seed."""
    assert weights.keys() <= WEIGHTS.keys()
    return weights


SAFE = Profile()
ORDERED = Profile(weights={**WEIGHTS, "recover": 0.7})
"""Operators order recoveries: committed records are lost, and still nobody stumbles."""
ASYNC = Profile(
    is_async=True, chances={**CHANCES, "change": 0.3, "trim": 0.3, "wipe": 0.2, "crash": 1.0}
)


class Walk:
    """One seed's life."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.rng = rng = random.Random(seed)
        self.profile = profile
        settings = RaftSettings(
            window=rng.choice([1, 2, 4]), retry_ms=200, turn_ms=100, promote_ms=200
        )
        self.cluster = Cluster(
            profile.voters_count,
            rng.randint(profile.learners_min, profile.learners_max),
            seed=seed,
            settings=settings,
            is_async=profile.is_async,
        )
        self.cluster.splits = True
        self.hosts = self.cluster.hosts
        self.ordered_epoch = 0
        self.actions, self.weights = self._draw()
        for host in self.hosts.values():
            host.keeps_hint = rng.random() < 0.5
            host.core.start(0)
        self.cluster.connect_all()
        if profile.begins_led:
            self._elect_first()

    def _draw(self) -> tuple[list[Callable[[], None]], list[float]]:
        rng, weights, chances = self.rng, self.profile.weights, self.profile.chances
        is_narrow = not weights.keys() >= WEIGHTS.keys()
        drawn = [
            (getattr(self, name), weight * rng.choice([0.5, 1, 2]))
            for name, weight in weights.items()
            if is_narrow or rng.random() < chances.get(name, 1.0)
        ]
        return [action for action, _ in drawn], [weight for _, weight in drawn]

    def _elect_first(self) -> None:
        first = self.hosts[1]
        for host in self.hosts.values():
            host.set_target(tuple(h.me for h in self.hosts.values()))
        self.cluster.splits = False
        self.cluster.stand(first)
        self.cluster.settle()
        self.cluster.splits = True

    def run(self) -> dict[str, int]:
        choices = self.rng.choices
        for index in range(self.profile.steps):
            choices(self.actions, self.weights)[0]()
            if index % 8 == 0:
                self.cluster.check_logs()
        self.cluster.check_logs()
        return self.cluster.reached

    # ---- afterwards

    def heal(self) -> None:
        """All faults end; everybody can hear everybody."""
        cluster = self.cluster
        cluster.splits = False
        cluster.net.clear()
        for host in self.hosts.values():
            host.is_full = False
            cluster.restart(host)
        names = list(self.hosts.values())
        for index, a in enumerate(names):
            for b in names[index + 1 :]:
                cluster.disconnect(a, b)
                cluster.connect(a, b)

    def live(self, duration_ms: int, step_ms: int = 5) -> None:
        """Time passes without faults: messages arrive in order, timers fire, turns end."""
        cluster = self.cluster
        until = cluster.now + duration_ms
        while cluster.now < until:
            cluster.now += step_ms - cluster.now % step_ms
            for host in self.hosts.values():
                host.tick()
                host.turn()
            if cluster.now % 100 == 0:
                cluster.exchange_digests()
            for _ in range(len(cluster.net)):
                cluster.deliver()

    # ---- whom

    def any_host(self) -> Host:
        return self.rng.choice(list(self.hosts.values()))

    def any_leader(self) -> Host | None:
        leaders = [h for h in self.hosts.values() if h.is_up and h.core.is_leader]
        return self.rng.choice(leaders) if leaders else None

    # ---- what happens

    def deliver(self) -> None:
        net, rng = self.cluster.net, self.rng
        if not net:
            self.turn()
            return
        index = rng.randrange(len(net)) if rng.random() < 0.6 else 0
        if rng.random() < 0.04:
            net.pop(index)
        else:
            flight = self.cluster.deliver(index, keeps=rng.random() < 0.06)
            host = self.hosts[flight.envelope.to.node]
            self.follow_up(host)
        if len(net) > 60:
            net.pop(rng.randrange(len(net)))

    def follow_up(self, host: Host) -> None:
        """Mostly a turn follows an event, in part or whole."""
        dice = self.rng.random()
        if dice < self.profile.haste:
            host.turn()
        elif dice < self.profile.haste + 0.1:
            host.begin_turn()

    def turn(self) -> None:
        host = self.any_host()
        if host.is_up:
            host.turn()

    def half_turn(self) -> None:
        host = self.any_host()
        if not host.is_syncing:
            host.begin_turn()
        else:
            host.end_turn()

    def produce(self) -> None:
        host = self.any_leader()
        if host is not None and host.log.end_offset < END_OFFSET_MAX:
            host.produce(self.rng.choice([1, 1, 2]))
            if self.rng.random() < 0.3:
                host.log.flushed = host.log.end_offset
            self.follow_up(host)

    def stand(self) -> None:
        """Without pre-vote, rank or lease: safety must not need them."""
        host = self.any_host()
        state = host.core._state
        if not host.is_up or state.role is Role.LEADER or not state.voters:
            return
        if state.me not in state.voters and self.rng.random() < 0.7:
            return
        if not (state.is_damaged or state.is_barred):
            candidate.stand(state, self.cluster.now, is_transfer=self.rng.random() < 0.8)
            host.stage()
            self.follow_up(host)

    def change(self) -> None:
        host = self.any_leader()
        if host is None or not changing.may_change(host.core._state):
            return
        state = host.core._state
        voters = list(state.voters)
        other = self.any_host().me
        if other == host.me or state.log.end.change >= 4 or host.me not in voters:
            return
        if other in voters:
            voters.remove(other)
        elif len(voters) < 4:
            voters.insert(self.rng.randrange(len(voters) + 1), other)
        assert is_single_step(state.voters, voters)
        changing.change_voters(state, tuple(voters), self.cluster.now)
        host.stage()
        self.follow_up(host)
        self.cluster.count("change")

    def target(self) -> None:
        names = [host.me for host in self.hosts.values()]
        chosen = tuple(self.rng.sample(names, self.rng.randint(1, len(names))))
        for host in self.hosts.values():
            if self.rng.random() < 0.9:
                host.set_target(chosen)

    def trim(self) -> None:
        host = self.any_leader()
        if host is not None and host.log.end.change < 6:
            offset = host.core.high_watermark
            if self.rng.random() < 0.5:
                offset = self.rng.randint(host.log.start, offset)
            host.core.request_log_start(offset, self.cluster.now)
            host.stage()

    def crash(self) -> None:
        host = self.any_host()
        if not host.is_up:
            return
        log, rng = host.log, self.rng
        keeps = None
        if log.is_async and rng.random() < 0.7:
            keeps = rng.randint(min(log.flushed, log.end_offset), log.end_offset)
        self.cluster.crash(host, keeps_turn=rng.random() < 0.5, keeps_data=keeps)
        if self.profile.forgets_loss:
            host.is_recovering = False
        if (
            self.profile.loses_marks
            and len(log.marks) > 1
            and log.marks.last.offset == log.end_offset
        ):
            log.marks = type(log.marks)(log.marks.items[:-1])
            log.durable = log.begun = log.image()
        self.cluster.count("crash")
        if rng.random() < 0.7:
            self.cluster.restart(host)
            self._connect(host)

    def restart(self) -> None:
        for host in self.hosts.values():
            if not host.is_up:
                self.cluster.restart(host)
                self._connect(host)
                return

    def _connect(self, host: Host) -> None:
        for other in self.hosts.values():
            if other is not host and self.rng.random() < 0.9:
                self.cluster.connect(host, other)

    def wipe(self) -> None:
        host = self.any_host()
        new = self.cluster.wipe(host, keeps_name=self.profile.keeps_name and host.me.node <= 3)
        self._connect(new)

    def link(self) -> None:
        a, b = self.any_host(), self.any_host()
        if a is b:
            return
        what = self.rng.randrange(4)
        if what == 0:
            self.cluster.disconnect(a, b)
        elif what == 1:
            self.cluster.connect(a, b)
        elif what == 2:
            self.cluster.suspect(a, b)
        else:
            self.cluster.revive(a, b)

    def recover(self) -> None:
        host = self.any_host()
        if host.is_up and host.log.marks.items:
            self.ordered_epoch += 100  # The metadata never give one out twice.
            self.cluster.unclean += 1
            self.cluster.recover(host, self.ordered_epoch)
            self.follow_up(host)

    def configure(self) -> None:
        """The topic's settings are told anew, or the disk is well again."""
        host = self.any_host()
        if host.is_up:
            if self.rng.random() < 0.5:
                host.core.start(self.cluster.now)
            else:
                host.core.allow_unclean(False, self.cluster.now)
            host.stage()

    def digests(self) -> None:
        self.cluster.exchange_digests()

    def push(self) -> None:
        """Between turns too, a follower may be sent what the log has begun."""
        host = self.any_leader()
        if host is not None:
            host.push(host.core.wants(self.cluster.now))

    def reconnect(self) -> None:
        self.cluster.connect_all()

    def time(self) -> None:
        self.cluster.now += self.rng.choice([1, 20, 100, 300, 1500])
        for host in self.hosts.values():
            host.tick()

    def transfer(self) -> None:
        host = self.any_leader()
        if host is not None and host.core.transfer(self.any_host().me, self.cluster.now):
            host.stage()

    def refuse(self) -> None:
        """The disk fills up, or has room again; or a turn takes nothing of what was staged."""
        host = self.any_host()
        if self.rng.random() < 0.5:
            asking = [
                h for h in self.hosts.values() if h.core.has_messages and h.core._state.standing
            ]
            host = self.rng.choice(asking or [host])  # What it asks votes for may be gone.
        if self.rng.random() < 0.5:
            host.is_full = not host.is_full and self.rng.random() < 0.7
            return
        if not host.is_up or host.is_syncing or not host.log.marks.items:
            return
        host.produce()
        begun, log = host.log.begun, host.log
        end = begun.marks.position(begun.start + len(begun.data))
        if begun.start == log.start and begun.marks == log.marks and end < log.end:
            del log.data[end.offset - log.start :]
            host.refused()
            host.stage()


def walk(seed: int, profile: Profile = SAFE) -> dict[str, int]:
    """Raises BrokenPromiseError, or AssertionError if the core itself noticed."""
    return Walk(seed, profile).run()


__all__ = ["ASYNC", "SAFE", "BrokenPromiseError", "Profile", "voter", "walk"]
