"""Bad bytes that only the compactor reads: its replica is told, and has them repaired."""

from typing import Any

import pytest
from fakes.compactor import InlineCompactor
from unit.broker.multiraft.test_repair import filled, read_all, rot
from unit.broker.multiraft.test_unreadable import mended, spoil
from unit.broker.multiraft.wiring import Broker, World, produce, values

from dmq.broker.compaction import Compaction
from dmq.broker.multiraft.cargo import Sight
from dmq.config.broker import BrokerConfig
from dmq.config.topic import TopicConfig
from dmq.storage.items import Damage

SETTINGS = BrokerConfig.of({"log.cleaner.backoff.ms": "0"})
DIRTY = TopicConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)


class Cleaning:
    """Rounds of compaction on one broker, driven by hand."""

    def __init__(self, broker: Broker) -> None:
        self.compactor = InlineCompactor(broker.disk)
        self._broker = broker
        self._compaction = Compaction(broker.store, self.compactor)

    def run(self, rounds: int = 20) -> None:
        everything: list[Any] = [(self._broker.replica, DIRTY)]
        for _ in range(rounds):
            self._compaction.tick(self._broker.world.now, SETTINGS, lambda: everything)


@pytest.mark.parametrize("spoils", [False, True])
def test_a_follower_gets_them_back_and_its_log_can_be_compacted_then(spoils: bool) -> None:
    world, leader = filled()
    bad = world.others(leader)[0]
    if spoils:
        spoil(bad, segment=1, byte=100)
    else:
        rot(bad, segment=1, byte=100)
    cleaning = Cleaning(bad)
    cleaning.run()
    assert len(cleaning.compactor.jobs) == 1
    world.until(lambda: bad.node.counts.get("damaged", 0) == 1)
    mended(world, bad)
    assert read_all(bad) == values(leader)
    world.pass_time(60_000, step=500)
    cleaning.run()
    assert cleaning.compactor.results


def test_a_leader_leaves_the_lead_until_it_has_them_back() -> None:
    world, leader = filled()
    epoch = leader.replica.leader_epoch
    rot(leader, byte=100)
    Cleaning(leader).run()
    world.until(lambda: leader.node.counts.get("damaged", 0) == 1)
    mended(world, leader)
    world.until(lambda: any(b.replica.is_leader for b in world.brokers.values()))
    assert world.leader().replica.leader_epoch > epoch


def test_the_only_replica_serves_the_rest_on() -> None:
    world = World(1)
    leader = world.elected()
    for n in range(12):
        produce(leader, b"%d" % n * 100)
        world.settle()
    leader.store.request_flush(leader.replica.log)
    world.pass_time(300)
    rot(leader, byte=100)
    cleaning = Cleaning(leader)
    cleaning.run()
    assert len(cleaning.compactor.jobs) == 1
    world.pass_time(300)
    assert leader.replica.is_leader
    assert not leader.replica.log.is_damaged


def test_what_was_repaired_or_trimmed_since_it_was_read_is_not_bad_any_more() -> None:
    world, leader = filled()
    log, seen = leader.replica.log, Sight.of(leader.replica.log)
    bad = Damage(log.segments_list[0].base, 0, log.segments_list[0].size)
    gone = Damage(log.segments_list[0].base + 1, 0, 10)
    leader.replica.found_bad(gone, seen)
    leader.replica.found_bad(bad, seen._replace(repairs=seen.repairs + 1))
    world.pass_time(100)
    assert not log.is_damaged
    leader.replica.found_bad(bad, seen)
    world.until(lambda: leader.node.counts.get("damaged", 0) == 1)
