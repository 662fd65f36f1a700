"""When all faults are over and all replicas are equal: clients are served as if nothing had happened.

    must_write    every topic takes a record with acks=all, and whoever holds the topic commits it
    must_read     every consumer gets to the end of every topic

A cluster may agree with itself and be of no use to anybody: replicas that are equal in what they hide,
a leader whose followers never count as in sync again.
"""

from typing import TYPE_CHECKING

from sim import batches, keyed
from sim.checkers import BrokenPromiseError
from sim.ledger import Acknowledged
from sim.workload import Consumer

from dmq.errors import ErrorCode

if TYPE_CHECKING:
    from sim.broker import Broker
    from sim.metadata import Topic
    from sim.world import World

WRITE_MS = 10_000
READ_MS = 60_000
AGAIN_MS = 200


def must_write(world: "World", topics: list["Topic"]) -> None:
    """Each of these topics, which are settled, goes on."""
    waiting = {topic.name: topic for topic in topics if not topic.is_internal}
    until = world.clock.now + WRITE_MS
    _write(world, waiting, until)
    if not world.clock.run(until, lambda: not waiting):
        raise BrokenPromiseError(
            f"liveness: {sorted(waiting)} took no record with acks=all in {WRITE_MS} ms, though all is "
            f"well: {world.states(waiting)}"
        )
    world.reached["written when all was over"] += len(topics)


def _write(world: "World", waiting: dict[str, "Topic"], until: int) -> None:
    """Ask every broker, again and again: those that don't lead refuse."""
    if not waiting or world.clock.now >= until:
        return
    for topic in waiting.values():
        for broker in world.brokers.values():
            broker.arrive(_write_to, world, waiting, broker, topic)
    world.clock.after(AGAIN_MS, _write, world, waiting, until)


def _write_to(
    world: "World", waiting: dict[str, "Topic"], broker: "Broker", topic: "Topic"
) -> None:
    number = world.next_number()

    def told(code: ErrorCode, base: int) -> None:
        if code is ErrorCode.NONE:
            world.told_success(topic.facts, Acknowledged(number, base, world.clock.now))
            waiting.pop(topic.name, None)

    is_keyed = topic.facts.is_compacted
    raw = keyed.make(number) if is_keyed else batches.make(number, 1, 0)
    broker.produce(topic, raw, -1, AGAIN_MS, told)


def must_read(world: "World", topics: list["Topic"]) -> None:
    """Nothing that is committed stays hidden from a consumer."""
    readable = [topic for topic in topics if not topic.is_internal and _is_readable(topic)]
    world.reached["rot that nobody read"] += sum(bool(topic.facts.damaged) for topic in topics)
    consumers = [client for client in world.clients if isinstance(client, Consumer)]
    lacking = sum(max(_lacks(c, t), 0) for c in consumers for t in readable)
    within_ms = READ_MS + lacking * len(world.metadata.data) * world.mix.fetch_every_ms
    if not world.clock.run(
        world.clock.now + within_ms, lambda: _is_read(world, consumers, readable)
    ):
        behind = [
            f"{c.name} at {c.positions.get(t.name, 0)} of {t.facts.high} in {t}"
            for c in consumers
            for t in readable
            if _lacks(c, t)
        ]
        raise BrokenPromiseError(f"liveness: {behind} after {within_ms} ms without faults")
    world.reached["read to the end"] += len(readable)


def _is_readable(topic: "Topic") -> bool:
    """Not if it ends before a reader, who was shown what an unclean election gave up; nor if its bytes
    are bad where no broker has looked."""
    return not topic.facts.is_forfeited and not topic.facts.damaged


def _is_read(world: "World", consumers: list[Consumer], topics: list["Topic"]) -> bool:
    if world.clock.events % 16:
        return False
    return not any(_lacks(consumer, topic) for consumer in consumers for topic in topics)


def _lacks(consumer: Consumer, topic: "Topic") -> int:
    return topic.facts.high - consumer.positions.get(topic.name, 0)
