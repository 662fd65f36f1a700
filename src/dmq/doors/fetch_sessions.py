"""Incremental fetch sessions (KIP-227): the broker remembers what a client reads.

A client sends its partitions once and afterwards only what changed; the broker answers only the
partitions that have something to tell. Owns the sessions and their epochs; reads no records.

    request (id, epoch)     meaning
    (0, -1)                 a whole fetch, no session
    (0, 0)                  a whole fetch, and a new session please
    (id, -1)                end this session; a whole fetch
    (id, 0)                 end this session and begin another
    (id, n > 0)             the n-th fetch of this session
"""

from collections import OrderedDict
from typing import Protocol
from uuid import UUID

from dmq.broker.fetching import FetchResult, FetchSpec
from dmq.errors import ErrorCode, KafkaError

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
EVICTION_MS = 120_000
"""A session may take the place of another that was idle for so long (Kafka's value)."""

PartitionKey = tuple[str, UUID, int]


class Dice(Protocol):
    def randrange(self, start: int, stop: int) -> int: ...


class _Cached:
    """What the client last heard of one partition."""

    __slots__ = ("high_watermark", "log_start_offset", "spec", "tells")

    def __init__(self, spec: FetchSpec) -> None:
        self.spec = spec
        self.high_watermark = -1
        self.log_start_offset = -1
        self.tells = True  # New partitions and those with an error are told in any case.


class Session:
    """The partitions of one client, in the order in which they are read next."""

    __slots__ = ("_partitions", "epoch", "id", "last_used", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now: int) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used = now
        self._partitions: OrderedDict[PartitionKey, _Cached] = OrderedDict()

    def __len__(self) -> int:
        return len(self._partitions)

    def update(self, specs: list[FetchSpec], forgotten: list[PartitionKey]) -> None:
        partitions = self._partitions
        for spec in specs:
            key = (spec.topic, spec.topic_id, spec.partition)
            cached = partitions.get(key)
            if cached is None:
                partitions[key] = _Cached(spec)
            else:
                cached.spec = spec
        for key in forgotten:
            partitions.pop(key, None)

    def specs(self) -> list[FetchSpec]:
        return [cached.spec for cached in self._partitions.values()]

    def news(self, results: list[FetchResult], *, all_of_them: bool = False) -> list[FetchResult]:
        """The results worth telling. Partitions that gave records go to the end of the order, so
        that each has its turn when a fetch can't hold all."""
        partitions = self._partitions
        told: list[FetchResult] = []
        served: list[PartitionKey] = []
        for result in results:
            spec = result.spec
            key = (spec.topic, spec.topic_id, spec.partition)
            cached = partitions.get(key)
            if cached is None:
                continue
            is_news = (
                result.records is not None
                or result.code is not ErrorCode.NONE
                or result.diverging is not None
                or result.preferred >= 0
                or result.high_watermark != cached.high_watermark
                or result.log_start_offset != cached.log_start_offset
                or cached.tells
            )
            if is_news or all_of_them:
                told.append(result)
                cached.high_watermark = result.high_watermark
                cached.log_start_offset = result.log_start_offset
                cached.tells = result.code is not ErrorCode.NONE
            if result.records is not None:
                served.append(key)
        for key in served:
            partitions.move_to_end(key)
        return told


class FetchSessions:
    """All sessions of a door; at `count_max` only one long idle makes room, else none is made."""

    def __init__(self, count_max: int, dice: Dice) -> None:
        self._count_max = count_max
        self._dice = dice
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # Least recently used first.

    def __len__(self) -> int:
        return len(self._sessions)

    def end(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def begin(self, specs: list[FetchSpec], uses_topic_ids: bool, now: int) -> Session | None:
        """A new session with these partitions; None if there is no room or nothing to remember."""
        if not specs or self._count_max <= 0:
            return None
        if len(self._sessions) >= self._count_max:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.last_used < EVICTION_MS:
                return None
            del self._sessions[oldest.id]
        session_id = self._dice.randrange(1, EPOCH_MAX)
        while session_id in self._sessions:
            session_id = self._dice.randrange(1, EPOCH_MAX)
        session = Session(session_id, uses_topic_ids, now)
        session.update(specs, [])
        self._sessions[session_id] = session
        return session

    def resume(self, session_id: int, epoch: int, uses_topic_ids: bool, now: int) -> Session:
        """The session for its next fetch. Raises KafkaError as KIP-227 and KIP-516 say."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used = now
        self._sessions.move_to_end(session_id)
        return session
