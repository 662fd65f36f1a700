"""Does things to brokers: kills, pauses, cuts, fills and wipes disks, adds and removes them.

Each fault is one method that begins it, holds it for a while and undoes it; some happen inside of
others, also while a broker joins, leaves, is restarted or gets an empty disk. Faults come from a shuffled
deck, so that every kind gets its turn; the dice come from the seed. Promises are kept: a disk is wiped, a
broker removed, only when every replica is in sync, because two replicas of three may be lost with their
disks only if nobody was told otherwise; and until a wiped disk is full again it counts as lost, so that
what hits others meanwhile may not leave any group without its majority. What a broker does that nobody
asked for (it ends by itself, it does not come back) is a finding.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain

from dmq.testing import BrokerFailedError
from tests.jepsen.changes import ChangingCluster
from tests.jepsen.disks import Disk
from tests.jepsen.history import Recorder

DECK = (
    "kill", "kill", "kill-leader", "kill-majority", "kill-all", "pause", "pause-leader", "restart",
    "rolling-restart", "isolate", "isolate-leader", "halves", "one-way", "flap", "fill-disk",
    "wipe-disk", "add", "remove",
)  # fmt: skip
INSIDE = ("kill", "pause", "isolate", "one-way")
"""What may happen while another fault is on."""

INSIDE_CHANGES = 0.6
"""How often something happens while a broker joins, leaves or is restarted; always the first time."""

RECOVERY_S = 90.0
CALM_EACH_S, CALM_S = 60.0, 3.0
"""At least so often everything is in sync for a moment. A topic that takes records only then would keep
its idempotent producers waiting for longer than they have patience, and such a library begins anew."""
LED_WITHIN_S = 10.0


class Nemesis:
    """One run's faults."""

    def __init__(
        self,
        cluster: ChangingCluster,
        disks: dict[int, Disk],
        dice: random.Random,
        recorder: Recorder,
        say: Callable[[str], None],
        *,
        topic: str,
        deck: tuple[str, ...],
        hold_s: tuple[float, float],
    ) -> None:
        self._cluster, self._disks, self._dice, self._say = cluster, disks, dice, say
        self._recorder, self._topic, self._hold_range_s = recorder, topic, hold_s
        self._deck = deck
        self._founders = len(cluster.brokers)
        self._is_down: set[int] = set()
        self._stop = threading.Event()
        self._began = self._calm_at = time.monotonic()
        self._depth = 0
        self._targets: list[int] | None = None
        """Whom `_one` may choose; None: anybody."""
        self.counts: Counter[str] = Counter()
        self.inside: Counter[str] = Counter()
        """What happened inside of what."""
        self._outer = ""
        self.findings: list[str] = []

    # --- the run

    def run(self, seconds: float) -> None:
        """Faults for so long, but at least until each kind had its turn."""
        deadline = time.monotonic() + seconds
        first = list(dict.fromkeys(self._deck))
        self._dice.shuffle(first)
        for count, kind in enumerate(chain(first, self._endless())):
            if self._stop.is_set() or (count >= len(first) and time.monotonic() > deadline):
                return
            self._do(kind)
            self._look_for_the_dead()
            self._stop.wait(self._dice.uniform(*self._hold_range_s) / 2)
            if time.monotonic() > self._calm_at + CALM_EACH_S:
                self._wait_until_well("between two faults")
                self._stop.wait(CALM_S)
                self._calm_at = time.monotonic()

    def _endless(self) -> Iterator[str]:
        while True:
            yield from self._dice.sample(self._deck, len(self._deck))

    def stop(self) -> None:
        self._stop.set()

    def heal_all(self) -> None:
        """Undo everything; afterwards the cluster has to be well."""
        self._cluster.heal()
        for disk in self._disks.values():
            disk.relieve()
        for node in self._cluster.brokers:
            self._cluster.resume(node)
        self._start(*self._is_down)
        self._look_for_the_dead()
        self._wait_until_well("at the end")

    def _do(self, kind: str) -> None:
        before, outer = time.monotonic(), self._outer
        self._outer = kind
        try:
            did = getattr(self, "_" + kind.replace("-", "_"))()
        except BrokerFailedError as error:
            self._found(f"{kind}: {error}")
            did = "failed"
        finally:
            self._outer = outer
        if did:
            self.counts[kind] += 1
            if self._depth:
                self.inside[f"{kind} in {outer}"] += 1
            self._recorder.add("fault", what=kind, detail=did, ended=True)
            self._say(
                f"{'  ' * self._depth}{time.monotonic() - self._began:6.0f} s  {kind}: {did}"
                f" ({time.monotonic() - before:.1f} s)"
            )

    def _hold(self, factor: float = 1.0) -> None:
        """Let it last; sometimes something else happens meanwhile."""
        low, high = self._hold_range_s
        seconds = self._dice.uniform(low, high) * factor
        if self._depth == 0 and self._dice.random() < 0.3:
            self._stop.wait(seconds / 2)
            self._inside()
            seconds /= 2
        self._stop.wait(seconds)

    def _inside(self, targets: list[int] | None = None) -> None:
        """Something else, from its beginning to its end; to one of these."""
        self._depth += 1
        self._targets = targets
        try:
            self._do(self._dice.choice(INSIDE))
        finally:
            self._depth -= 1
            self._targets = None

    def _wants_inside(self, kind: str) -> bool:
        is_first = not self.counts[kind]
        return self._depth == 0 and (self._dice.random() < INSIDE_CHANGES or is_first)

    # --- who

    def _running(self) -> list[int]:
        """Without one that joins just now: nobody knows its number yet."""
        return [node for node in self._cluster.running if node > 0]

    def _one(self) -> int | None:
        nodes = [n for n in self._running() if self._targets is None or n in self._targets]
        return self._dice.choice(nodes) if nodes else None

    def _others(self, node: int) -> list[int]:
        return [other for other in self._running() if other != node]

    def _majority_stays(self, lost: int) -> bool:
        """Whether the brokers that vote on the metadata can do without so many."""
        count = len(self._running())
        voters = 1 if count < 3 else 3 if count < 5 else 5
        return lost <= (voters - 1) // 2

    def _bearable_with(self, lost: int) -> list[int]:
        """Whom something may happen to while the disk of `lost` is gone: itself, and who shares no
        group with it, unless that one has a majority without both."""
        seen = [each for view in self._cluster.views().values() for each in view.partitions]
        small = [each.replicas for each in seen if lost in each.replicas and len(each.replicas) < 5]
        others = self._others(lost) if self._majority_stays(2) else []
        return [lost, *(node for node in others if not any(node in group for group in small))]

    def _leader(self) -> int | None:
        """Who leads one of the partitions, if anybody does soon."""
        deadline = time.monotonic() + LED_WITHIN_S
        while True:
            views = self._cluster.views([self._topic])
            seen = [each for found in views.values() for each in found.partitions]
            leaders = [each.leader for each in seen if each.leader in self._cluster.running]
            if leaders:
                return self._dice.choice(leaders)
            if time.monotonic() > deadline or self._stop.wait(0.02):
                return None

    # --- processes

    def _kill_and_start(self, nodes: list[int]) -> str:
        for node in nodes:
            self._cluster.kill(node)
            self._is_down.add(node)
        self._recorder.add("fault", what="kill", brokers=nodes)
        self._hold()
        self._start(*nodes)
        return f"broker {', '.join(map(str, nodes))}"

    def _kill(self) -> str:
        node = self._one()
        return self._kill_and_start([node]) if node else ""

    def _kill_leader(self) -> str:
        node = self._leader()
        return self._kill_and_start([node]) if node else ""

    def _kill_majority(self) -> str:
        running = self._cluster.running
        count = min(len(running), self._founders // 2 + 1)
        return self._kill_and_start(self._dice.sample(running, count))

    def _kill_all(self) -> str:
        return self._kill_and_start(self._cluster.running)

    def _pause_one(self, node: int | None) -> str:
        if node is None:
            return ""
        self._cluster.pause(node)
        self._recorder.add("fault", what="pause", brokers=[node])
        self._hold(self._dice.choice([0.1, 0.5, 1.0]))
        self._cluster.resume(node)
        return f"broker {node}"

    def _pause(self) -> str:
        return self._pause_one(self._one())

    def _pause_leader(self) -> str:
        return self._pause_one(self._leader())

    def _restart(self) -> str:
        node = self._one()
        if node is None:
            return ""
        self._recorder.add("fault", what="restart", brokers=[node])
        self._cluster.stop(node)
        self._is_down.add(node)
        self._hold(self._dice.choice([0, 1]))
        self._start(node)
        return f"broker {node}"

    def _rolling_restart(self) -> str:
        self._wait_until_well("before a rolling restart")
        for node in self._cluster.running:
            self._recorder.add("fault", what="restart", brokers=[node])
            self._restart_in_trouble(node)
            self._wait_until_well(f"after broker {node} was restarted")
        return "all brokers, in order"

    def _restart_in_trouble(self, node: int) -> None:
        """Another one suffers while this one is down, where two may; else when it is back, and has not
        caught up."""
        others, is_wanted = self._others(node), self._wants_inside("rolling-restart")
        is_early = self._majority_stays(2)
        self._cluster.restart(node, wait=False)
        if is_wanted and is_early:
            self._inside(others)
        self._wait_for_ready(node)
        if is_wanted and not is_early and self._majority_stays(1):
            self._inside(others)

    def _wait_for_ready(self, node: int) -> None:
        member = self._cluster.member(node)
        member.wait_for_ready_line()
        assert member.node == node, f"broker {node} came back as {member.node}"

    def _start(self, *nodes: int) -> None:
        for node in nodes:
            self._is_down.discard(node)
            self._cluster.restart(node, wait=False)

    # --- network

    def _cut_off(self, node: int | None) -> str:
        if node is None:
            return ""
        self._recorder.add("fault", what="isolate", brokers=[node])
        self._cluster.isolate(node)
        self._hold()
        self._cluster.heal(node)
        return f"broker {node}"

    def _isolate(self) -> str:
        return self._cut_off(self._one())

    def _isolate_leader(self) -> str:
        return self._cut_off(self._leader())

    def _halves(self) -> str:
        nodes = self._cluster.brokers
        self._dice.shuffle(nodes)
        cut = self._dice.randint(1, max(1, len(nodes) - 1))
        sides = sorted(nodes[:cut]), sorted(nodes[cut:])
        self._recorder.add("fault", what="halves", brokers=sides)
        self._cluster.partition(*sides)
        self._hold()
        self._cluster.heal()
        return f"{sides[0]} from {sides[1]}"

    def _one_way(self) -> str:
        node = self._one()
        if node is None:
            return ""
        others = [other for other in self._cluster.brokers if other != node]
        targets = self._dice.sample(others, self._dice.randint(min(1, len(others)), len(others)))
        is_mute = self._dice.random() < 0.5
        for target in targets:
            self._cluster.cut(*((node, target) if is_mute else (target, node)))
        self._recorder.add("fault", what="one-way", brokers=[node], mute=is_mute)
        self._hold()
        self._cluster.heal(node)
        return f"broker {node} {'is not heard by' if is_mute else 'does not hear'} {targets}"

    def _flap(self) -> str:
        node = self._leader() or self._one()
        if node is None:
            return ""
        times = self._dice.randint(3, 8)
        self._recorder.add("fault", what="flap", brokers=[node], times=times)
        troubled = self._dice.randrange(times) if self._wants_inside("flap") else -1
        for number in range(times):
            self._cluster.isolate(node)
            self._stop.wait(self._dice.uniform(0.05, 0.9))
            if number == troubled:
                self._inside(self._others(node))
            self._cluster.heal(node)
            self._stop.wait(self._dice.uniform(0.05, 0.9))
        return f"broker {node}, {times} times"

    # --- disks

    def _fill_disk(self) -> str:
        nodes = [node for node in self._cluster.running if node in self._disks]
        if not nodes:
            return ""
        node = self._dice.choice(nodes)
        self._recorder.add("fault", what="fill-disk", brokers=[node])
        self._disks[node].fill()
        self._hold()
        self._disks[node].relieve()
        return f"of broker {node}"

    def _wipe_disk(self) -> str:
        if self._founders < 3 or not self._wait_until_well("before a disk is wiped"):
            return ""
        node = self._one()
        assert node is not None
        bearable, is_wanted = self._bearable_with(node), self._wants_inside("wipe-disk")
        self._recorder.add("fault", what="wipe-disk", brokers=[node])
        self._cluster.kill(node)
        self._cluster.restart(node, wiped=True, wait=False)
        if is_wanted:
            self._stop.wait(self._dice.uniform(0.0, 1.0))
            self._inside(bearable)
        self._wait_for_ready(node)
        self._wait_until_well(f"after the disk of broker {node} was wiped")
        return f"of broker {node}"

    # --- membership

    def _add(self) -> str:
        if len(self._cluster.brokers) >= self._founders + 2:
            return ""
        is_wanted = self._wants_inside("add") and self._majority_stays(1)
        if is_wanted and not self._wait_until_well("before a broker comes"):
            return ""
        with self._cluster.adding() as member:
            if is_wanted:
                self._stop.wait(self._dice.uniform(0.0, 1.0))
                self._inside()
        self._recorder.add("fault", what="add", brokers=[member.node])
        return f"broker {member.node}"

    def _remove(self) -> str:
        if len(self._cluster.brokers) <= self._founders:
            self._do("add")
        if len(self._cluster.brokers) <= 3 or not self._wait_until_well("before a broker goes"):
            return ""
        node = self._one()
        assert node is not None
        self._recorder.add("fault", what="remove", brokers=[node])
        before = self._cluster.calls_again
        if self._wants_inside("remove"):
            with self._cluster.removing(node):
                self._stop.wait(self._dice.uniform(0.0, 3.0))
                self._inside(self._others(node))
        else:
            self._cluster.remove(node)
        if node in self._disks:
            self._disks.pop(node).close()
        return f"broker {node}{', called again' * (self._cluster.calls_again - before)}"

    # --- what nobody asked for

    def _found(self, text: str) -> None:
        self.findings.append(text)
        self._recorder.add("finding", text=text)
        self._say(f"FOUND {text}")

    def _look_for_the_dead(self) -> None:
        for node in self._cluster.brokers:
            member = self._cluster.member(node)
            if node not in self._is_down and not member.is_running:
                self._found(str(member.failure(f"ended by itself with {member.exit_code}")))
                self._cluster.kill(node)  # Reaped, and the network hears of it.
                self._start(node)

    def _wait_until_well(self, when: str) -> bool:
        self._start(*self._is_down)
        try:
            self._cluster.wait_ready(RECOVERY_S, in_sync=True)
        except BrokerFailedError as error:
            self._found(f"stuck {when}: {error}")
            return False
        return True
