"""A random walk of a small cluster, from one seed: everything that can happen, in any order.

Messages are lost, doubled and reordered even inside a session; replicas stand without waiting, so that no
safety rests on timing; brokers crash between and inside turns, lose what was not synced, lose their
disks; voters and log starts change; async logs lose their tails. Each seed draws its own subset of
faults. `Profile` narrows the draw, for mutants that need a rare state.
"""

import random
from dataclasses import dataclass

from scenarios.raft_cluster import BrokenPromiseError, Cluster, Host, voter

from dmq.raft import candidate, leader
from dmq.raft.membership import is_single_step
from dmq.raft.settings import RaftSettings
from dmq.raft.state import Role

END_OFFSET_MAX = 12
"""Small logs meet more often."""


@dataclass(frozen=True)
class Profile:
    """How likely a seed has each kind of trouble, and how long it walks."""

    steps: int = 350
    is_async: bool = False
    members: float = 0.6
    trims: float = 0.5
    wipes: float = 0.4
    links: float = 0.6
    targets: float = 0.4
    crashes: float = 0.8
    timers: float = 0.5
    mark_loss: bool = False
    """A broken disk: the last mark of the last turn is lost in a crash (a mutant)."""
    keeps_name: bool = False
    """A broken broker: with an empty disk it keeps its name (a mutant)."""
    forgets_loss: bool = False
    """A broken broker: it does not notice that its start was unclean (a mutant)."""


SAFE = Profile()
ASYNC = Profile(is_async=True, members=0.3, trims=0.3, wipes=0.2, crashes=1.0)


class Walk:
    """One seed's life."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.rng = rng = random.Random(seed)
        self.profile = profile
        settings = RaftSettings(window=rng.choice([1, 2, 4]), retry_ms=200, promote_ms=200)
        self.cluster = Cluster(
            3, rng.choice([0, 1, 1]), seed=seed, settings=settings, is_async=profile.is_async
        )
        self.cluster.splits = True
        self.hosts = self.cluster.hosts
        self.actions, self.weights = self._draw()
        for host in self.hosts.values():
            host.keeps_hint = rng.random() < 0.5
            host.core.start(0)
        self.cluster.connect_all()

    def _draw(self) -> tuple[list, list[float]]:
        profile, rng = self.profile, self.rng
        table = [
            (self.deliver, 45.0, 1.0),
            (self.turn, 22.0, 1.0),
            (self.produce, 7.0, 1.0),
            (self.stand, 5.0, 1.0),
            (self.half_turn, 4.0, 0.7),
            (self.change, 2.5, profile.members),
            (self.target, 1.0, profile.targets),
            (self.trim, 1.5, profile.trims),
            (self.crash, 1.5, profile.crashes),
            (self.restart, 3.0, 1.0),
            (self.wipe, 0.4, profile.wipes),
            (self.link, 2.0, profile.links),
            (self.reconnect, 2.0, 1.0),
            (self.time, 5.0, profile.timers),
            (self.transfer, 1.0, 0.3),
            (self.refuse, 0.5, 0.3),
        ]
        drawn = [
            (action, weight * rng.choice([0.5, 1, 2]))
            for action, weight, chance in table
            if rng.random() < chance
        ]
        return [action for action, _ in drawn], [weight for _, weight in drawn]

    def run(self) -> dict[str, int]:
        choices = self.rng.choices
        for index in range(self.profile.steps):
            choices(self.actions, self.weights)[0]()
            if index % 8 == 0:
                self.cluster.check_logs()
        self.cluster.check_logs()
        return self.cluster.reached

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
        index = rng.randrange(len(net)) if rng.random() < 0.5 else 0
        if rng.random() < 0.04:
            net.pop(index)
        else:
            self.cluster.deliver(index, keeps=rng.random() < 0.06)
        if len(net) > 60:
            net.pop(rng.randrange(len(net)))

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

    def stand(self) -> None:
        """Without pre-vote, rank or lease: safety must not need them."""
        host = self.any_host()
        state = host.core._state
        if not host.is_up or state.role is Role.LEADER or state.me not in state.voters:
            return
        if not state.is_recovering and not state.is_damaged:
            candidate.stand(state, self.cluster.now)
            host.stage()

    def change(self) -> None:
        host = self.any_leader()
        if host is None or not leader.may_change(host.core._state):
            return
        state = host.core._state
        voters = list(state.voters)
        other = self.any_host().me
        if other == host.me or state.log.end.change >= 4:
            return
        if other in voters:
            voters.remove(other)
        elif len(voters) < 4:
            voters.insert(self.rng.randrange(len(voters) + 1), other)
        assert is_single_step(state.voters, voters)
        leader.change_voters(state, tuple(voters), self.cluster.now)
        host.stage()
        self.cluster.count("change")

    def target(self) -> None:
        names = [host.me for host in self.hosts.values()]
        chosen = tuple(self.rng.sample(names, self.rng.randint(1, len(names))))
        for host in self.hosts.values():
            if host.is_up and self.rng.random() < 0.9:
                host.core.set_target(chosen, self.cluster.now)
                host.stage()

    def trim(self) -> None:
        host = self.any_leader()
        if host is not None and host.log.end.change < 6:
            offset = self.rng.randint(host.log.start, max(host.log.start, host.core.commit.offset))
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
            self.profile.mark_loss
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
        """A full disk: the turn takes nothing of what was staged."""
        host = self.any_host()
        if not host.is_up or host.is_syncing or not host.log.marks.items:
            return
        begun, log = host.log.begun, host.log
        end = begun.marks.position(begun.start + len(begun.data))
        if begun.start != log.start or begun.marks != log.marks or end >= log.end:
            return
        del log.data[end.offset - log.start :]
        host.core.refused(log.end, self.cluster.now)
        host.stage()
        self.cluster.count("refused")


def walk(seed: int, profile: Profile = SAFE) -> dict[str, int]:
    """Raises BrokenPromiseError, or AssertionError if the core itself noticed."""
    return Walk(seed, profile).run()


__all__ = ["ASYNC", "SAFE", "BrokenPromiseError", "Profile", "voter", "walk"]
