"""What happens to a simulated cluster, beside its clients: faults, and the work of its operators.

One method per kind, named as in swarm.FAULTS; each chooses a victim, does it, plans its end, and says
whether anything was done. Disks are spoiled only with the atlas's permission. When the faults are over
(`end`), nothing that was planned happens any more, except to those who are healed.
"""

import random
from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING

from sim.swarm import OF_OPERATORS

if TYPE_CHECKING:
    from sim.broker import Broker
    from sim.metadata import Topic
    from sim.world import World


class Injector:
    """See the module."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.rng: random.Random = world.rng
        self.is_over = False
        self.over_since = 0
        self.is_resting = False
        """A storm in which nobody gets anything written: no further fault until somebody does."""
        self.count = 0
        self.pairs: dict[tuple[str, str], None] = {}
        """(role, fault): what a fault hit."""
        faults = world.mix.faults
        self._kinds: list[tuple[str, Callable[[], bool]]] = [
            (name, getattr(self, name)) for name in faults
        ]
        self._weights = [*faults.values()]
        self._topics_made = 0

    def start(self) -> None:
        if self._kinds:
            self._later()

    def _later(self) -> None:
        every = self.world.mix.fault_every_ms
        self.world.clock.after(self.rng.randint(1, 2 * every), self._next)

    def _next(self) -> None:
        if self.is_over:
            return
        self._later()
        for _ in range(0 if self.is_resting else 3):
            ((name, action),) = self.rng.choices(self._kinds, self._weights)
            if action():
                self.count += name not in OF_OPERATORS
                self.world.happened[name] += 1
                return

    def end(self) -> None:
        self.is_over = True
        self.over_since = self.world.clock.now

    # ---- whom

    def _note(self, fault: str, broker: "Broker") -> None:
        for role in broker.roles():
            self.pairs[role, fault] = None
        self.world.say(fault, broker)

    def _is_troubled(self, broker: "Broker") -> bool:
        return not broker.is_serving or self.world.network.is_cut_off(broker.number)

    def _is_enough(self) -> bool:
        """Whether as many brokers are in trouble as this seed bears."""
        brokers = self.world.brokers.values()
        return sum(map(self._is_troubled, brokers)) >= self.world.mix.trouble_max

    def _any_up(self) -> "Broker | None":
        """Mostly anybody; often a leader, for those have the most to lose."""
        up = [b for b in self.world.brokers.values() if b.is_up and not b.is_paused]
        if self._is_enough():
            up = [broker for broker in up if self._is_troubled(broker)]
        if not up:
            return None
        if self.rng.random() < 0.5:
            leaders = [b for b in up if b.leads_something()]
            up = leaders or up
        return self.rng.choice(up)

    def _any_topic(self) -> "Topic | None":
        live = self.world.metadata.live
        return self.rng.choice(live) if live else None

    def _any_data(self) -> "Topic | None":
        """Not one of the coordinators': nobody deletes those, and they have no retention."""
        live = self.world.metadata.data
        return self.rng.choice(live) if live else None

    def _leader(self, topic: "Topic | None") -> "tuple[Broker, Topic] | None":
        if topic is None:
            return None
        leaders = [b for b in self.world.brokers.values() if b.is_serving and b.leads(topic)]
        return (self.rng.choice(leaders), topic) if leaders else None

    def _after(self, range_ms: tuple[int, int], action: Callable[..., None], *args: object) -> None:
        """Plan the end of a fault; once the faults are over, healing is somebody else's business."""

        def unless_over() -> None:
            if not self.is_over:
                action(*args)

        self.world.clock.after(self.rng.randint(*range_ms), unless_over)

    def _restart_later(self, broker: "Broker") -> None:
        self._after(self.world.mix.downtime_ms, broker.boot)

    # ---- processes

    def power_cut(self) -> bool:
        broker = self._any_up()
        if broker is None or not self._may_cut_power(broker):
            return False
        self._note("power_cut", broker)
        broker.power_cut()
        self._restart_later(broker)
        return True

    def _may_cut_power(self, broker: "Broker") -> bool:
        """Async groups mostly lose a minority at a time, so that something is left to check; more only if
        all can vote in the end, else an operator is wanted, and there is none."""
        atlas = self.world.atlas
        is_bold = self.rng.random() < 0.05 and atlas.has_all_names(broker)
        return is_bold or atlas.may_spoil(broker, async_only=True)

    def kill(self) -> bool:
        broker = self._any_up()
        if broker is None:
            return False
        self._note("kill", broker)
        broker.kill()
        self._restart_later(broker)
        return True

    def power_cut_all(self) -> bool:
        if any(topic.is_async for topic in self.world.metadata.live) and self.rng.random() < 0.9:
            return False
        for broker in self.world.brokers.values():
            if broker.is_up:
                self._note("power_cut_all", broker)
                broker.power_cut()
                self._restart_later(broker)
        return True

    def kill_all(self) -> bool:
        for broker in self.world.brokers.values():
            if broker.is_up:
                self._note("kill_all", broker)
                broker.kill()
                self._restart_later(broker)
        return True

    def stop(self) -> bool:
        """In order: everything is flushed and the journal closed."""
        broker = self._any_up()
        if broker is None:
            return False
        self._note("stop", broker)
        broker.stop()
        self._restart_later(broker)
        return True

    def crash_in_write(self) -> bool:
        """The power goes in the middle of one of the next operations on the disk."""
        broker = self._any_up()
        if broker is None or not self._may_cut_power(broker):
            return False
        self._note("crash_in_write", broker)
        broker.crash_after(self.rng.choice((0, 1, 2, 3, 5, 10, 20)))
        return True

    def crash_in_compaction(self) -> bool:
        """The process ends, or the power goes, while files of a compaction are made or swapped."""
        busy = [
            b
            for b in self.world.brokers.values()
            if b.is_serving and b.cleaner is not None and b.cleaner.is_busy
        ]
        if not busy or self._is_enough():
            return False
        broker = self.rng.choice(busy)
        if not self._may_cut_power(broker) or broker.cleaner is None:
            return False
        self._note("crash_in_compaction", broker)
        broker.cleaner.light_fuse(self.rng.choice((0, 1, 2, 3, 5, 8, 13)))
        return True

    def pause(self) -> bool:
        broker = self._any_up()
        if broker is None:
            return False
        self._note("pause", broker)
        broker.pause()
        self._after(self.rng.choice(((20, 300), (300, 3000))), broker.resume)
        return True

    def skew(self) -> bool:
        """Its clock runs fast or slow, or its host slept for a while."""
        broker = self._any_up()
        if broker is None:
            return False
        self._note("skew", broker)
        if self.rng.random() < 0.2:
            broker.local.jump(self.rng.choice((100, 1000, 20_000)))
        else:
            broker.local.set_rate(self.rng.choice((800, 950, 1000, 1050, 1250)))
        broker.plan_tick()
        return True

    # ---- network

    def _cut(self, ways: list[tuple[int, int]], range_ms: tuple[int, int]) -> None:
        self.world.network.cut(ways)
        self._after(range_ms, self.world.network.heal, ways)

    def cut_one_way(self) -> bool:
        if len(self.world.brokers) < 2 or self._is_enough():
            return False
        src, dst = self.rng.sample([*self.world.brokers], 2)
        self._note("cut_one_way", self.world.brokers[src])
        self._cut([(src, dst)], (100, 3000))
        return True

    def split(self) -> bool:
        """Two camps that don't hear each other."""
        numbers = [*self.world.brokers]
        if len(numbers) < 2 or self._is_enough():
            return False
        self.rng.shuffle(numbers)
        at = self.rng.randint(1, len(numbers) - 1)
        left, right = numbers[:at], numbers[at:]
        for number in left:
            self._note("split", self.world.brokers[number])
        ways = [*product(left, right), *product(right, left)]
        self._cut(ways, (200, 3000))
        return True

    def isolate(self) -> bool:
        """One broker can't be heard, or can't hear, or neither."""
        broker = self._any_up()
        if broker is None or len(self.world.brokers) < 2:
            return False
        me = broker.number
        others = [number for number in self.world.brokers if number != me]
        what = self.rng.randrange(3)
        ways = [(me, other) for other in others] if what != 0 else []
        if what != 1:
            ways += [(other, me) for other in others]
        self._note("isolate", broker)
        self._cut(ways, (200, 3000))
        return True

    def rotate(self) -> bool:
        """One leader after the other is cut off, and the one before comes back in the same moment:
        it meets those who went on without it, before their leader can tell it anything."""
        topic = self._any_topic()
        if topic is None or len(self.world.brokers) < 3 or self._is_enough():
            return False
        self._rotate(topic, [], self.rng.randint(2, 5))
        return True

    def _rotate(self, topic: "Topic", held: list[tuple[int, int]], times: int) -> None:
        leaders = [b for b in self.world.brokers.values() if b.is_serving and b.leads(topic)]
        ways: list[tuple[int, int]] = []
        if leaders and times:
            newest = max(leaders, key=lambda broker: broker.watched[topic.name].epoch)
            others = [number for number in self.world.brokers if number != newest.number]
            ways = [(newest.number, other) for other in others]
            ways += [(other, newest.number) for other in others]
            self._note("rotate", newest)
        self.world.network.cut(ways)
        self.world.network.heal(held)
        if times:
            self._after((400, 1600), self._rotate, topic, ways, times - 1)

    def slow_link(self) -> bool:
        if len(self.world.brokers) < 2:
            return False
        a, b = self.rng.sample([*self.world.brokers], 2)
        extra_ms = self.rng.choice((20, 80, 250, 700))
        way = self.world.network.ways[a, b]
        way.extra_ms = extra_ms
        self._note("slow_link", self.world.brokers[a])
        self._after((200, 2000), setattr, way, "extra_ms", 0)
        return True

    def flap(self) -> bool:
        """A link that comes and goes."""
        if len(self.world.brokers) < 2:
            return False
        a, b = self.rng.sample([*self.world.brokers], 2)
        self._note("flap", self.world.brokers[a])
        self._flap(a, b, self.rng.randint(2, 8))
        return True

    def _flap(self, a: int, b: int, times: int) -> None:
        self._cut([(a, b), (b, a)], (20, 200))
        if self.rng.random() < 0.5:
            self.world.network.reset(a, b)
        if times:
            self._after((250, 600), self._flap, a, b, times - 1)

    def reset_link(self) -> bool:
        if len(self.world.brokers) < 2:
            return False
        a, b = self.rng.sample([*self.world.brokers], 2)
        self._note("reset_link", self.world.brokers[a])
        self.world.network.reset(a, b)
        return True

    # ---- disks

    def disk_full(self) -> bool:
        broker = self._any_up()
        if broker is None:
            return False
        self._note("disk_full", broker)
        broker.disk.capacity = broker.disk.used_bytes() + self.rng.choice((0, 100, 1000, 5000))
        self._after((100, 2000), setattr, broker.disk, "capacity", None)
        return True

    def slow_sync(self) -> bool:
        broker = self._any_up()
        if broker is None:
            return False
        self._note("slow_sync", broker)
        broker.sync_ms = self.rng.choice(((50, 100), (100, 400), (400, 1500)))
        self._after((300, 3000), setattr, broker, "sync_ms", self.world.mix.sync_ms)
        return True

    def failing_sync(self) -> bool:
        """The next sync fails; the process must stop. Async logs may lose what they acknowledged."""
        broker = self._any_up()
        if broker is None or not self._may_cut_power(broker):
            return False
        self._note("failing_sync", broker)
        broker.disk.is_sync_failing = True
        return True

    def rot_segment(self) -> bool:
        """A bit of a log's records flips."""
        broker = self._any_up()
        topic = self._any_topic()
        if broker is None or topic is None or not broker.holds(topic):
            return False
        if not self.world.atlas.may_spoil(broker) or not broker.flip_segment(topic):
            return False
        self._note("rot_segment", broker)
        return True

    def rot_journal(self) -> bool:
        """A promised record of the journal rots while the process is down, or all of it goes: it must
        notice."""
        broker = self._any_up()
        if broker is None or not self.world.atlas.may_spoil(broker):
            return False
        self._note("rot_journal", broker)
        broker.kill()
        if (self.world.seed + self.world.happened["rot_journal"]) % 4 == 0:
            broker.lose_journal()
            self.world.reached["journal gone"] += 1
        else:
            broker.flip_journal()
        self._restart_later(broker)
        return True

    def wipe(self) -> bool:
        """A new, empty disk under the same broker number."""
        broker = self._any_up()
        if broker is None or not self.world.atlas.may_spoil(broker):
            return False
        self._note("wipe", broker)
        broker.wipe()
        self._restart_later(broker)
        return True

    # ---- operators

    def create_topic(self) -> bool:
        world = self.world
        numbers = [n for n in world.brokers if n in world.metadata.directories]
        if len(world.metadata.data) >= 4 or not numbers:
            return False
        self._topics_made += 1
        world.create_topic(f"extra{self._topics_made}", numbers)
        return True

    def delete_topic(self) -> bool:
        topic = self._any_data()
        if topic is None or len(self.world.metadata.data) < 2:
            return False
        self.world.say("delete_topic", topic)
        self.world.metadata.delete(topic)
        return True

    def trim(self) -> bool:
        """Retention, or a client's DeleteRecords."""
        found = self._leader(self._any_data())
        if found is None:
            return False
        broker, topic = found
        self.world.say("trim", broker, topic)
        broker.arrive(broker.trim, topic, self.rng.random())
        return True

    def transfer(self) -> bool:
        found = self._leader(self._any_topic())
        if found is None or len(found[1].nodes) < 2:
            return False
        broker, topic = found
        to = self.rng.choice(topic.nodes)
        self.world.say("transfer", broker, topic, to)
        broker.arrive(broker.transfer, topic, to)
        return True

    def change_members(self) -> bool:
        """Move, grow, shrink or reorder the replicas of a topic."""
        topic = self._any_topic()
        numbers = [n for n in self.world.brokers if n in self.world.metadata.directories]
        if topic is None or len(numbers) < 2:
            return False
        count = min(len(numbers), max(1, len(topic.nodes) + self.rng.choice((-1, 0, 0, 0, 1))))
        nodes = self.rng.sample(numbers, count)
        self.world.say("change_members", topic, nodes)
        self.world.metadata.place(topic, nodes)
        return True
