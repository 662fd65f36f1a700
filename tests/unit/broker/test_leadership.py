"""Who leads what, as a broker keeps it: what was deleted is forgotten for good."""

from uuid import UUID

from fakes.broker import FakeBroker

from dmq.broker.leaders import LeaderTable
from dmq.broker.leadership import NOBODY, PRUNE_MS

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
