"""`Consumer`: reads messages, alone or as a member of a group.

For one thread at a time, as Kafka's own; `close` may come from any, and ends a `poll` of another with
a ClosedError. Heartbeats are librdkafka's business; rebalances happen
inside of `poll` and iteration. "Handed out" are the messages that `poll` returned or iteration
gave: `commit()` commits those, and the automatic commit takes them up only when the application
comes back for more, so that a crash never loses a message that was still in hand. `close`, and a
`with` that comes to its end, count the last messages as done; a `with` that is left by an error does
not.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
)
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import Message as RawMessage
from confluent_kafka import TopicPartition as RawPartition

from dmq.client.config import ConsumerConfig, IsolationLevel, OffsetResetPolicy, checked
from dmq.client.errors import (
    ClientError,
    ClosedError,
    GroupError,
    OffsetError,
    not_assigned,
    translate,
    translate_raised,
)
from dmq.client.gate import Gate
from dmq.client.message import Decoders, Message
from dmq.client.places import held_against
from dmq.client.rebalances import OnRebalance, Share, known, raw_of
from dmq.client.sending import SLICE_S, Trouble, await_broker, librdkafka_log, log, made
from dmq.types import TopicPartition

Partitions = Iterable[tuple[str, int]]
Offsets = Mapping[tuple[str, int], int]

_PASSING = frozenset(
    {"_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_PARTITION_EOF", "_TIMED_OUT"}
)
"""librdkafka tells and goes on by itself."""

_TO_BE_KNOWN = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_MAX_POLL_EXCEEDED"})
"""It goes on too, but somebody should know: a topic that is not there yet, a member that was too slow."""


class Consumer:
    """Reads messages. Close it, or use it in a `with`: its partitions then go to others at once."""

    def __init__(self, config: ConsumerConfig | None = None) -> None:
        self.config = checked(config, ConsumerConfig)
        self._decoders = Decoders(
            self.config.key_deserializer,  # type: ignore[arg-type]
            self.config.value_deserializer,  # type: ignore[arg-type]
        )
        self._share = Share(
            is_incremental=self.config.is_incremental,
            proves=self.config.isolation_level is IsolationLevel.READ_COMMITTED,
        )
        self._trouble = Trouble()
        self._error: ClientError | None = None
        """Came with messages, which go first."""
        self._gate = Gate()
        self._is_closed = False
        properties = self.config.librdkafka() | {
            "error_cb": self._trouble.note,
            "logger": librdkafka_log,
        }
        self._raw: RawConsumer = made(lambda: RawConsumer(properties))

    def start(self) -> Self:
        """Wait until a broker answers. Optional. Raises ConnectionFailedError."""
        self._check_open()
        await_broker(self._raw, self.config.bootstrap_servers, self._trouble)
        return self

    # --- what to read

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Share these topics with the group, or all whose whole name matches the pattern.

        Replaces an earlier subscription. Topics that do not exist yet are read when they do.
        """
        self._check_open()
        self._check_group("subscribe")
        names = [topics] if isinstance(topics, str) else list(topics)
        if pattern is not None:
            names.append(_whole(pattern))
        if not names:
            raise ClientError("subscribe: name at least one topic, or give a pattern")
        callbacks = self._share.callbacks(on_assign, on_revoke, on_lost)
        self._call("subscribe", self._raw.subscribe, names, **callbacks)

    def unsubscribe(self) -> None:
        """Leave the group's partitions to the others."""
        self._call("unsubscribe", self._raw.unsubscribe)

    def assign(self, partitions: Partitions | Offsets) -> None:
        """Read these partitions, whatever others do; with a mapping, from these offsets."""
        chosen = [TopicPartition(*partition) for partition in partitions]
        offsets = partitions if isinstance(partitions, Mapping) else {}
        self._share.forget(list(self._share.handed))
        self._share.paused.clear()
        self._share.unproven.clear()
        self._share.sought = {TopicPartition(*each): at for each, at in offsets.items()}
        raw = [RawPartition(*each, offsets.get(each, OFFSET_STORED)) for each in chosen]
        self._call("assign", self._raw.assign, raw)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read now, in order."""
        return sorted(known(self._call("assignment", self._raw.assignment)))

    # --- reading

    def poll(
        self,
        timeout: float = 1.0,
        *,
        timeout_ms: float | None = None,
        max_records: int | None = None,
    ) -> list[Message]:
        """The messages that are there, `max_poll_records` at most; waits for the first of them, for so
        many seconds.

        An empty list: none came in time. Raises what `poll` can't go on after: AccessError, OffsetError.
        """
        messages = self.fetch(timeout if timeout_ms is None else timeout_ms / 1000, max_records)
        self.hand_out(messages)
        return messages

    def fetch(self, timeout_s: float, max_records: int | None = None) -> list[Message]:
        """The same without handing them out: they are not committed until `hand_out` says so."""
        self._check_open()
        self._raise_late()
        self._store()
        self._share.taken.clear()
        if max_records is not None and max_records < 1:
            raise ValueError(f"max_records is {max_records}; a poll gives at least 1")
        deadline = time.monotonic() + timeout_s
        messages: list[Message] = []
        while not messages:
            wait_s = max(0.0, min(SLICE_S, deadline - time.monotonic()))
            # librdkafka waits until it has as many as asked for: so for one, then for what is there.
            raw = self._call("poll", self._raw.consume, 1, wait_s)
            limit = (max_records or self.config.max_poll_records) - len(raw)
            if raw and limit > 0:
                raw += self._call("poll", self._raw.consume, limit, 0)
            messages = self._messages(raw)
            if not messages:
                self._raise_late()
                if time.monotonic() >= deadline:
                    break
        return messages

    def hand_out(self, messages: Iterable[Message]) -> None:
        """These are the application's now: `commit()` means them too."""
        self._share.hand_out(messages)

    def gone(self) -> list[TopicPartition]:
        """Partitions that were taken away in the last fetch."""
        return list(self._share.taken)

    def __iter__(self) -> Iterator[Message]:
        """Message after message, for ever; waits as long as there is none."""
        while True:
            self._check_open()
            self._raise_late()
            self._store()
            self._share.taken.clear()
            raw = self._call("poll", self._raw.poll, SLICE_S)
            for message in self._messages([raw] if raw is not None else []):
                self.hand_out([message])
                yield message

    def _messages(self, raw: Iterable["RawMessage[Any, Any]"]) -> list[Message]:
        messages = []
        for each in raw:
            error = each.error()
            if error is None:
                messages.append(Message(each, self._decoders))
            else:
                self._take_error(error)
        if self._share.unproven and messages:
            messages = self._call("poll", held_against, self._raw, self._share.unproven, messages)
        if self._share.taken:  # A rebalance came in between: those are somebody else's now.
            gone = self._share.taken
            messages = [m for m in messages if (m.topic, m.partition) not in gone]
        return messages

    def _take_error(self, error: KafkaError) -> None:
        name = error.name()
        if error.fatal() or not (name in _PASSING | _TO_BE_KNOWN or error.retriable()):
            self._error = translate(error, "poll", not_assigned())
        elif name in _TO_BE_KNOWN:
            log.warning("poll: %s", error.str())

    def _raise_late(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    # --- progress

    def commit(
        self,
        offsets: Message | Offsets | None = None,
        *,
        message: Message | None = None,
        wait: bool = True,
    ) -> dict[TopicPartition, int]:
        """Commit all that was handed out, or up to and with one message, or these offsets (of the next
        message to read). Returns what was committed. Without `wait`: asks, and does not look back.
        Raises GroupError when the partitions are somebody else's by now.
        """
        self._check_open()
        self._check_group("commit")
        chosen = self._offsets_of(offsets if message is None else message)
        if not chosen:
            return {}
        raw = raw_of(chosen, chosen)
        if wait:
            answers = self._call("commit", self._raw.commit, offsets=raw, asynchronous=False)
            for answer in answers or ():
                if answer.error is not None:
                    raise translate(answer.error, f"commit {answer.topic}-{answer.partition}")
        else:
            self._call("commit", self._raw.commit, offsets=raw, asynchronous=True)
        return chosen

    def _offsets_of(self, what: Message | Offsets | None) -> dict[TopicPartition, int]:
        if what is None:
            return self.handed()
        if isinstance(what, Message):
            return {what.topic_partition: what.offset + 1}
        if not isinstance(what, Mapping):
            raise TypeError(
                f"commit takes a message or {{(topic, partition): offset}}, not {type(what).__name__}"
            )
        return {TopicPartition(*partition): offset for partition, offset in what.items()}

    def handed(self) -> dict[TopicPartition, int]:
        """The offsets that `commit()` would commit: after the last message out of each partition."""
        return dict(self._share.handed)

    def _store(self) -> None:
        """What was handed out before is done: leave it to librdkafka's next automatic commit."""
        share = self._share
        if not self.config.enable_auto_commit or self.config.group_id is None:
            return
        news = {p: o for p, o in list(share.handed.items()) if share.stored.get(p) != o}
        if news:
            self._call("store offsets", self._raw.store_offsets, offsets=raw_of(news, news))
            share.stored |= news

    def committed(self, partitions: Partitions | None = None) -> dict[TopicPartition, int]:
        """The group's committed offsets, where there are some. Asks the broker."""
        self._check_group("committed")
        wanted = self.assignment() if partitions is None else list(partitions)
        answers = self._call("committed", self._raw.committed, raw_of(wanted), self._timeout_s)
        return _known_offsets(answers, "committed")

    def position(self, partition: tuple[str, int]) -> int | None:
        """The offset of the next message out of an assigned partition; None before the first, if no
        `seek` said where that is."""
        return self._positions([partition]).get(TopicPartition(*partition))

    def _positions(self, partitions: Partitions) -> dict[TopicPartition, int]:
        wanted = _ours(partitions)
        answers = self._call("position", self._raw.position, raw_of(wanted))
        sought = {p: at for p, at in self._share.sought.items() if p in wanted and at >= 0}
        return _known_offsets(answers, "position") | sought

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition is ahead of this consumer. Asks the brokers.

        Marks of transactions have offsets too: a caught-up reader of a transactional topic can see 1.
        """
        assigned = self.assignment()
        places = self._positions(assigned)
        places |= {p: 0 for p, at in self._share.sought.items() if at == OFFSET_BEGINNING}
        unread = [partition for partition in assigned if partition not in places]
        if unread and self.config.group_id is not None:
            places |= self.committed(unread)
        return {partition: self._lag_of(partition, places.get(partition)) for partition in assigned}

    def _lag_of(self, partition: TopicPartition, place: int | None) -> int:
        low, high = self.bounds(partition)
        if place is None:
            is_latest = self.config.auto_offset_reset is OffsetResetPolicy.LATEST
            place = high if is_latest else low
        return max(0, high - max(place, low))

    def bounds(self, partition: tuple[str, int]) -> tuple[int, int]:
        """The first offset of a partition, and the next one to be written. Asks the broker."""
        (raw,) = raw_of([partition])
        low, high = self._call("bounds", self._raw.get_watermark_offsets, raw, self._timeout_s)
        return low, high

    # --- going elsewhere

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Read on from there. Partitions must be assigned, or just being so (in `on_assign`)."""
        if offset < 0:
            raise OffsetError(
                f"seek in {TopicPartition(*partition)}: {offset} is no offset; they begin with 0. "
                "Use seek_to_beginning or seek_to_end."
            )
        self._seek(partition, offset)

    def _seek(self, partition: tuple[str, int], offset: int) -> None:
        self._check_open()
        key = TopicPartition(*partition)
        self._share.forget([key])
        self._share.unproven.discard(key)
        if not self._share.start_at(key, offset):
            self._check_assigned(f"seek in {key}", [key])
            self._call(f"seek in {key}", self._raw.seek, RawPartition(*key, offset))
        self._share.sought[key] = offset

    def _check_assigned(self, doing: str, partitions: list[TopicPartition]) -> None:
        missing = set(partitions).difference(self.assignment(), self._share.coming)
        if missing:
            names = ", ".join(map(str, sorted(missing)))
            raise ClientError(f"{doing}: {names} is not assigned. {not_assigned().advice}")

    def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        for partition in self.assignment() if partitions is None else partitions:
            self._seek(partition, OFFSET_BEGINNING)

    def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """To the end as it is now: librdkafka's own "end" is looked up later, and skips what comes
        until then."""
        for partition in self.assignment() if partitions is None else partitions:
            self.seek(partition, self.bounds(partition)[1])

    def seek_to_time(self, timestamp_ms: int, partitions: Partitions | None = None) -> None:
        """To the first message of that time (milliseconds since 1970) or later; else to the end."""
        wanted = self.assignment() if partitions is None else list(partitions)
        raw = [RawPartition(*partition, timestamp_ms) for partition in wanted]
        for found in self._call("seek", self._raw.offsets_for_times, raw, self._timeout_s):
            partition = (found.topic, found.partition)
            if found.offset < 0:
                self.seek_to_end([partition])
            else:
                self._seek(partition, found.offset)

    def rewind(self) -> None:
        """Go back to the committed offsets, as after an aborted transaction; where there are none, to
        where `auto_offset_reset` says."""
        committed = self.committed()
        is_latest = self.config.auto_offset_reset is OffsetResetPolicy.LATEST
        for partition in self.assignment():
            if partition in committed:
                self.seek(partition, committed[partition])
            elif is_latest:
                self.seek_to_end([partition])
            else:
                self.seek_to_beginning([partition])

    # --- backpressure

    def pause(self, partitions: Partitions | None = None) -> None:
        """Read no more of these (of all) until `resume`, and stay a member: go on polling."""
        chosen = self.assignment() if partitions is None else _ours(partitions)
        self._check_assigned("pause", chosen)
        self._call("pause", self._raw.pause, raw_of(chosen))
        self._share.paused.update(chosen)

    def resume(self, partitions: Partitions | None = None) -> None:
        """Read these (all that are paused) again, from where they were."""
        chosen = self.paused() if partitions is None else _ours(partitions)
        self._call("resume", self._raw.resume, raw_of(chosen))
        self._share.paused.difference_update(chosen)

    def paused(self) -> list[TopicPartition]:
        return sorted(self._share.paused)

    # --- the end, and what all calls share

    def group_metadata(self) -> Any:
        """What a transaction must know of this member (for `send_offsets`)."""
        self._check_group("send_offsets")
        return self._call("group metadata", self._raw.consumer_group_metadata)

    def close(self, *, is_done: bool = True) -> None:
        """Leave the group at once; with `is_done`, the messages in hand count as read for the automatic
        commit. Waits until calls of other threads have ended. Closing again does nothing."""
        if self._is_closed or not self._gate.close():
            return
        try:
            if is_done:
                self._store()
        except GroupError as error:
            log.warning("close: the last offsets are not committed: %s", error)
        finally:
            try:
                self._raw.close()  # Its callbacks may still commit.
            finally:
                self._is_closed = True

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(is_done=error is None)

    @property
    def _timeout_s(self) -> float:
        return self.config.request_timeout_ms / 1000

    def _check_open(self) -> None:
        if self._is_closed or not self._gate.lets_in():
            raise _closed()

    def _check_group(self, doing: str) -> None:
        if self.config.group_id is None:
            raise GroupError(
                f"{doing}: this consumer has no group. Give its ConsumerConfig a group_id, or use "
                "`assign` and keep offsets yourself."
            )

    def _call(self, doing: str, call: Any, *arguments: Any, **named: Any) -> Any:
        self._check_open()
        try:
            return self._gate.call(_closed, lambda: call(*arguments, **named))
        except KafkaException as raised:
            raise translate_raised(raised, doing, not_assigned()) from raised


def _closed() -> ClosedError:
    return ClosedError("this consumer is closed; make a new one to read more")


def _known_offsets(answers: Iterable[RawPartition], doing: str) -> dict[TopicPartition, int]:
    found = {}
    for answer in answers:
        if answer.error is not None:
            raise translate(answer.error, f"{doing} of {answer.topic}-{answer.partition}")
        if answer.offset >= 0:
            found[TopicPartition(answer.topic, answer.partition)] = answer.offset
    return found


def _ours(partitions: Partitions) -> list[TopicPartition]:
    return [TopicPartition(*partition) for partition in partitions]


def _whole(pattern: str | re.Pattern[str]) -> str:
    """A pattern for whole names; librdkafka knows patterns by their first character."""
    text = pattern if isinstance(pattern, str) else pattern.pattern
    text = text.removeprefix("^").removesuffix("$")
    return f"^({text})$" if "|" in text else f"^{text}$"
