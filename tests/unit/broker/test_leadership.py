"""Who leads what, as a broker keeps it: what was deleted is forgotten for good."""

from uuid import UUID

from fakes.broker import NODE_ID, FakeBroker

from dmq.broker.leaders import LeaderTable
from dmq.broker.leadership import NOBODY, PRUNE_MS
from dmq.broker.multiraft.frames import GroupKey

DELETED = UUID(int=4711)


def test_a_deleted_topic_that_somebody_spoke_of_late_is_forgotten() -> None:
    broker = FakeBroker()
    broker.create("t")
    topic_id = broker.replicas.topics["t"].topic_id
    other = LeaderTable(2, 1)
    other.leads(DELETED, 0, 3, (2,), (2,))
    [claim] = other.take_delta()
    leadership = broker.leadership
    leadership._hear(2, claim)
    leadership.tick(broker.now)
    assert leadership.of(DELETED, 0).leader == 2, "it may be new, and we are behind"
    leadership.tick(broker.now + PRUNE_MS - 1)
    assert leadership.of(DELETED, 0).leader == 2
    leadership.tick(broker.now + PRUNE_MS)
    assert leadership.of(DELETED, 0) == NOBODY
    assert leadership.of(topic_id, 0).leader >= 0


def test_a_replica_that_was_moved_away_while_its_broker_was_down_goes_when_its_leader_says_so() -> (
    None
):
    broker = FakeBroker()
    (partition,) = broker.create("t")
    replica, node, leadership = partition.replica, broker.node, broker.leadership
    node._groups.remove(replica)  # As after a start with metadata that have it elsewhere.
    del broker.replicas.topics["t"].partitions[0]
    table = leadership._table
    assert table is not None
    other, now = LeaderTable(2, 1), broker.now

    def told(epoch: int, *voters: int) -> list[GroupKey]:
        nonlocal now
        other.leads(*replica.key, epoch, voters, voters)
        for claim in other.take_delta():
            leadership._hear(2, claim)
        now += PRUNE_MS
        leadership.tick(now)
        return node.unclaimed

    leadership.tick(now)
    assert node.unclaimed == [replica.key], "nobody said anything"
    assert told(9, 2, NODE_ID) == [replica.key], "its leader counts on us"
    assert told(10, 2) == []
    assert broker.turn() > 0
    assert replica.log.segments_list[0].size == 0
