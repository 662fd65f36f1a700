"""Fetch by rack (KIP-392): what the door asks the fetcher, and what it tells of another replica."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from fakes.calls import FakeCall, asked

from dmq.broker.fetching import FetchResult, FetchSpec
from dmq.doors.fetch_sessions import FetchSessions
from dmq.doors.kafka_api import k01_fetch
from dmq.errors import ErrorCode
from dmq.types import NIL_UUID
from dmq.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic

TOPIC_ID = UUID(int=7)


class Dice:
    def randrange(self, start: int, stop: int) -> int:
        return start


class Service:
    """A broker whose fetcher sends every reader with a rack to broker 3."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(fetch_max_bytes=1000)
        self.fetcher = self
        self.racks: list[str | None] = []

    def steady_now(self) -> int:
        return 0

    def fetch(
        self,
        specs: list[FetchSpec],
        *,
        on_done: Callable[[list[FetchResult]], None],
        rack: str | None,
        **_: object,
    ) -> None:
        self.racks.append(rack)
        preferred = 3 if rack else -1
        on_done([FetchResult(s, ErrorCode.NONE, 9, 0, preferred=preferred) for s in specs])


def fetched(
    service: Service, version: int, rack: str, sessions: FetchSessions, session: tuple[int, int]
) -> Any:
    by_id = version >= 13
    wanted = [FetchPartition(0, fetch_offset=9, partition_max_bytes=10)]
    topic = FetchTopic("" if by_id else "t", TOPIC_ID if by_id else NIL_UUID, wanted)
    request = FetchRequest(
        max_wait_ms=0,
        session_id=session[0],
        session_epoch=session[1],
        topics=[topic],
        rack_id=rack,
    )

    def handle(service: Any, call: FakeCall, request: FetchRequest) -> None:
        call.connection.door.sessions = sessions
        call.on_cancel = None  # type: ignore[attr-defined]
        k01_fetch.handle(service, call, request)  # type: ignore[arg-type]

    [reply] = asked(handle, service, 1, version, request).replies
    return reply


@pytest.mark.parametrize(
    ("version", "rack", "expected"),
    [(10, "", None), (11, "", ""), (11, "a", "a"), (18, "a", "a")],
)
def test_a_follower_may_answer_whoever_knows_of_it(
    version: int, rack: str, expected: str | None
) -> None:
    service = Service()
    response = fetched(service, version, rack, FetchSessions(0, Dice()), (0, -1))
    assert service.racks == [expected]
    [topic] = response.responses
    [partition] = topic.partitions
    assert partition.preferred_read_replica == (3 if rack else -1)
    assert (partition.error_code, partition.high_watermark, partition.records) == (0, 9, b"")


def test_another_replica_is_news_in_a_session_too() -> None:
    service, sessions = Service(), FetchSessions(10, Dice())
    first = fetched(service, 12, "", sessions, (0, 0))
    assert len(first.responses) == 1
    quiet = fetched(service, 12, "", sessions, (first.session_id, 1))
    assert quiet.responses == []
    told = fetched(service, 12, "a", sessions, (first.session_id, 2))
    assert told.responses[0].partitions[0].preferred_read_replica == 3


@pytest.mark.parametrize(("known", "told"), [(None, 9), (-1, -1), (4, 4)])
def test_a_follower_may_not_know_yet_what_is_decided(known: int | None, told: int) -> None:
    """-1 is no end of the log; the high watermark would be taken for one."""

    class Reading(Service):
        def fetch(self, specs: list[FetchSpec], *, on_done: Any, **_: object) -> None:
            on_done([FetchResult(s, ErrorCode.NONE, 9, 0, last_stable_offset=known) for s in specs])

    response = fetched(Reading(), 12, "a", FetchSessions(0, Dice()), (0, -1))
    assert response.responses[0].partitions[0].last_stable_offset == told
