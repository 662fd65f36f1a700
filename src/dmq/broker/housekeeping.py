"""What a broker does for its logs by itself, beside what clients ask: retention, compaction, snapshots.

`tick` is called by the runtime every few dozen milliseconds and does a bounded piece of work each
time. Every `log.retention.check.interval.ms` all partitions are looked through, a slice per tick,
and those with segments past their time or size get a later start: a mark that commits like any
other, after which storage lets the files go. Compaction has rounds of its own (compaction.py), and so
have the snapshots of producers (producing.py), which are looked after more often.
Deterministic: no clock, no loop; settings are read anew each time.
"""

import logging

from dmq.broker.answer import Answer
from dmq.broker.compaction import Compaction, Kept, Stage
from dmq.broker.compactor import Compactor
from dmq.broker.partition import Partition
from dmq.broker.replicas import METADATA_OVERRIDES, Replicas
from dmq.config.topic import TopicConfig
from dmq.errors import StorageError
from dmq.storage.retention import Retention, new_log_start
from dmq.storage.store import Store

log = logging.getLogger("dmq.broker")

SLICE = 200
"""Partitions looked at per tick: a millisecond or so."""
FIRST_CHECK_MS = 30_000
"""Retention begins this long after the start at the latest, as in Kafka: a start has other work."""
SNAPSHOT_LOOK_MS = 5_000
"""Between two looks at a partition: what is written in that time is read by the next leader."""


class Housekeeping:
    """See the module. `replicas` are the topics' partitions, `metadata` is the metadata log's."""

    def __init__(
        self, store: Store, replicas: Replicas, metadata: Partition, compactor: Compactor
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._compaction = Compaction(store, compactor)
        self._queue: list[Kept] = []
        self._check_at: int | None = None
        self._to_keep: list[Partition] = []
        self._keep_at = 0
        self._store = store
        self._trims: dict[int, Answer[int]] = {}
        """uid -> a new start that may not be committed yet."""
        self._seen: dict[tuple[int, int, int], int] = {}
        """(uid, base, size) of segments without timestamps -> when they were first seen so."""
        self._seen_before: dict[tuple[int, int, int], int] = {}

    @property
    def stage(self) -> Stage:
        """What compaction is doing; for people and tests."""
        return self._compaction.stage

    def tick(self, now: int) -> None:
        settings = self._replicas.settings.effective
        interval_ms = settings.log_retention_check_interval_ms
        if self._queue:
            self._retain_some(now)
        elif self._check_at is None:
            self._check_at = now + min(interval_ms, FIRST_CHECK_MS)
        elif not 0 < self._check_at - now <= interval_ms:
            self._check_at = now + interval_ms
            self._begin_check()
        self._keep_some(now)
        try:
            self._compaction.tick(now, settings, self._everything)
        except (StorageError, OSError) as error:  # Bad bytes, no descriptors: it can wait.
            log.warning("compaction has to wait: %s", error)

    def _everything(self) -> list[Kept]:
        """All partitions with their topics' settings; the metadata log first."""
        replicas = self._replicas
        found = [(self._metadata, replicas.settings.topic(METADATA_OVERRIDES, internal=True))]
        for topic in replicas.topics.values():
            found.extend((partition, topic.config) for partition in topic.partitions.values())
        return found

    # ---- retention

    def _begin_check(self) -> None:
        self._queue = self._everything()
        self._queue.reverse()
        self._seen, self._seen_before = {}, self._seen
        self._trims = {uid: answer for uid, answer in self._trims.items() if not answer.is_done}
        if self._replicas.snapshots is not None:
            self._replicas.snapshots.files.keep_only(self._store.logs)

    def _retain_some(self, now: int) -> None:
        for _ in range(min(SLICE, len(self._queue))):
            partition, config = self._queue.pop()
            partition.expire_producers(now)
            if config.deletes and self._is_open_to(partition):
                try:
                    self._retain(partition, config, now)
                except (StorageError, OSError) as error:
                    log.warning("retention can't look at %s: %s", partition, error)

    def _is_open_to(self, partition: Partition) -> bool:
        """One start at a time: the next one waits until the last is committed."""
        if partition.is_retired or not partition.is_serving:
            return False
        pending = self._trims.get(partition.log.uid)
        return pending is None or pending.is_done

    def _retain(self, partition: Partition, config: TopicConfig, now: int) -> None:
        found = partition.log
        uid = found.uid
        start = new_log_start(
            found.segments(),
            end_offset=found.end_offset,
            high_watermark=partition.high_watermark,
            retention=Retention(config.retention_ms, config.retention_bytes),
            now=now,
            seen_since=lambda base, size: self._seen_since((uid, base, size), now),
        )
        if start is not None and start > found.log_start:
            log.info("%s: what lies below %d is past its retention", partition, start)
            self._trims[uid] = partition.trim(start)

    def _seen_since(self, segment: tuple[int, int, int], now: int) -> int:
        self._seen[segment] = since = self._seen_before.get(segment, now)
        return since

    # ---- snapshots

    def _keep_some(self, now: int) -> None:
        if not self._to_keep:
            if 0 <= now - self._keep_at < SNAPSHOT_LOOK_MS or self._replicas.snapshots is None:
                return
            self._keep_at = now
            for topic in self._replicas.topics.values():
                self._to_keep.extend(topic.partitions.values())
        for _ in range(min(SLICE, len(self._to_keep))):
            partition = self._to_keep.pop()
            try:
                partition.keep_producers(now)
            except (StorageError, OSError) as error:
                log.warning("producers of %s can't be kept: %s", partition, error)
