"""Readers of committed transactions: they skip what was aborted as Kafka's consumers do."""

from typing import TYPE_CHECKING

from sim import batches
from sim.batches import Entry, RottenBatchError
from sim.coordination.chronicle import is_commit
from sim.coordination.scripts import Ask, Script, Steps

from dmq.broker.answer import Answer
from dmq.broker.fetching import FetchResult
from dmq.errors import ErrorCode, KafkaError, StorageError
from dmq.machines.producers.aborted import AbortedTxn

if TYPE_CHECKING:
    from sim.broker import Broker
    from sim.metadata import Topic

FETCH_BYTES = 1500


class CommittedReader(Script):
    """Reads every topic from the beginning, from leaders."""

    rack: str | None = None

    def steps(self) -> Steps:
        positions: dict[str, int] = {}
        while True:
            yield self.rng.randint(0, 2 * self.world.coordination.pause_ms)
            topics = self.world.metadata.data
            if not topics:
                continue
            topic = self.rng.choice(topics)
            position = positions.get(topic.name, 0)
            reply = yield self._fetch(topic, position)
            if reply.is_good:
                end, log_start, code = reply.value
                if code is ErrorCode.OFFSET_OUT_OF_RANGE and position < log_start:
                    positions[topic.name] = log_start
                elif end > position:
                    positions[topic.name] = end

    def _fetch(self, topic: "Topic", position: int) -> Ask:
        def serve(backend: object) -> Answer[tuple[int, int, ErrorCode]]:
            return self._read(backend, topic, position)

        return Ask(topic, serve)

    def _read(
        self, backend: object, topic: "Topic", position: int
    ) -> Answer[tuple[int, int, ErrorCode]]:
        """At the broker; what it shows is judged now."""
        result: FetchResult = backend.read_committed(  # type: ignore[attr-defined]
            topic.name, position, FETCH_BYTES, self.rack
        )
        answer: Answer[tuple[int, int, ErrorCode]] = Answer()
        if result.code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            end = position
            if result.records is not None:
                end = self._judge(backend, topic, position, result)
            replica = backend.replicas.find(topic.name, topic.topic_id, 0)  # type: ignore[attr-defined]
            answer.resolve((end, replica.log_start_offset, result.code))
        else:
            answer.fail(KafkaError(result.code))
        return answer

    def _judge(self, backend: object, topic: "Topic", position: int, result: FetchResult) -> int:
        assert result.records is not None
        world, facts = self.world, topic.facts
        broker = backend._broker  # type: ignore[attr-defined]
        broker.look()
        try:
            raw = b"".join([part.pread() for part in result.records.slices])
            entries = batches.parse(raw, may_be_cut=True)
        except (RottenBatchError, StorageError):
            world.atlas.rot_was_read(broker, facts)
            return position
        if broker.me in facts.damaged and not all(map(facts.agrees, entries)):
            world.atlas.rot_was_read(broker, facts)
            return position
        world.shown(facts, self.name, position, entries, result.high_watermark)
        entries = [entry for entry in entries if entry.end <= result.last_stable_offset]
        seen = visible(entries, result.aborted or [])
        world.promises.tell("read", topic, self.name, entries, seen)
        if self.rack and entries and not broker.node.replica(topic.topic_id, 0).is_leader:
            world.reached["transactions read at a follower"] += 1
            world.reached["abort read at a follower"] += bool(result.aborted)
        return entries[-1].end if entries else position


class NearReader(CommittedReader):
    """Reads from any replica, as one does whose rack is sometimes a leader's and sometimes not."""

    rack = "near"

    def guess(self, topic: "Topic") -> "Broker":
        return self.world.brokers[self.rng.choice(topic.nodes)]


def visible(entries: list[Entry], aborted: list[AbortedTxn]) -> list[Entry]:
    """What is left for the application."""
    waiting = sorted(aborted, key=lambda txn: txn.first_offset)
    skipped: dict[int, None] = {}
    seen = []
    for entry in entries:
        while waiting and waiting[0].first_offset < entry.end:
            skipped[waiting.pop(0).producer_id] = None
        stamp = entry.stamp
        if stamp is None or not stamp.is_transactional:
            seen.append(entry)
        elif stamp.is_control:
            if not is_commit(entry):
                skipped.pop(stamp.producer_id, None)
        elif stamp.producer_id not in skipped:
            seen.append(entry)
    return seen
