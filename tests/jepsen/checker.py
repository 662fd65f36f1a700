"""Finds what may not be in a history. Pure: events in, findings out; no clock, no disk.

The kinds of findings:
    lost          acknowledged or read, and not in the log at the end
    duplicate     a record twice in the log. A plain producer that sends again after an error of unknown
                  outcome may do that; an idempotent one may not
    unseen        a reader was beyond a record's offset and never got it, or did not reach the end
    reordered     one producer's records of one partition in another order than sent. Of a plain one only
                  if it knew of the first before it sent the second: librdkafka does not wait for what
                  is under way to a leader before it sends to the next one
    inconsistent  two reads of one offset differ; or another record is where one was acknowledged; or
                  offsets are missing in the log
    diverged      two replicas have other bytes at one offset below the end, or one lacks some
    non-monotonic a reader got an offset again, or went back, without being told to
    foreign       a record that nobody sent, or sent elsewhere, or that was definitely refused
    unanswered    a producer's library did not get, or give up, a record when all was well again
    unfinished    the history ends before the log was read at its end. It is judged by what the readers
                  saw of it on the way, which is the log up to where they came
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.jepsen.history import Event

KINDS = (
    "lost",
    "duplicate",
    "unseen",
    "reordered",
    "inconsistent",
    "diverged",
    "non-monotonic",
    "foreign",
    "unanswered",
    "unfinished",
)

Spot = tuple[str, int]


class Finding(NamedTuple):
    """Something that may not be."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass
class Report:
    """What was found, and how much there was to look at."""

    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def of(self, kind: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind == kind]


@dataclass
class Producer:
    """What a producer did."""

    is_idempotent: bool
    sent: dict[int, Spot] = field(default_factory=dict)
    in_doubt: set[int] = field(default_factory=set)
    """Numbers with an error of unknown outcome."""
    refused: set[int] = field(default_factory=set)
    """Numbers of which a try was definitely refused."""
    acked: set[int] = field(default_factory=set)
    again: set[int] = field(default_factory=set)
    """Numbers that the producer's owner sent more than once."""
    sent_at: dict[int, int] = field(default_factory=dict)
    acked_at: dict[int, int] = field(default_factory=dict)

    def were_at_once(self, first: int, second: int) -> bool:
        """Whether nobody promised an order: a plain producer's, both under way at one time."""
        if self.is_idempotent:
            return False
        return self.acked_at.get(first, self.sent_at[second]) >= self.sent_at[second]


@dataclass
class Reading:
    """A reader's way through one partition."""

    next_offset: int
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Offsets from … to (excluded) that it went over."""
    furthest: int = 0


class Checker:
    """Takes events in order, then says what is wrong with them."""

    def __init__(self) -> None:
        self._producers: dict[str, Producer] = {}
        self._final_readers: set[str] = set()
        self._acks: list[tuple[Spot, int, str]] = []
        self._readings: dict[tuple[str, Spot], Reading] = {}
        self._log: dict[Spot, dict[int, str]] = {}
        """As the final readers found it."""
        self._seen: dict[Spot, dict[int, tuple[str, str]]] = {}
        """Offset → name and who read it first, of all readers."""
        self._ends: dict[Spot, tuple[int, int]] = {}
        self._replicas: dict[Spot, dict[int, list[tuple[int, int, str]]]] = {}
        """What each broker has: batches by first and last offset and checksum."""
        self._is_unfinished = False
        self._report = Report()

    def take(self, event: Event) -> None:
        handler = getattr(self, f"_take_{event['e']}", None)
        if handler is not None:
            handler(event)

    def _find(self, kind: str, text: str) -> None:
        assert kind in KINDS
        self._report.findings.append(Finding(kind, text))

    # --- events

    def _take_producer(self, event: Event) -> None:
        self._producers[event["client"]] = Producer(event["idempotent"])

    def _take_reader(self, event: Event) -> None:
        if event["final"]:
            self._final_readers.add(event["client"])

    def _take_send(self, event: Event) -> None:
        producer, spot = self._producers[event["client"]], (event["topic"], event["p"])
        for number in range(event["n"], event["n"] + event["count"]):
            if number in producer.sent:
                producer.again.add(number)
            producer.sent[number] = spot
            producer.sent_at[number] = event["t"]
        self._report.counts["sent"] += event["count"]

    def _take_ack(self, event: Event) -> None:
        spot, producer = (event["topic"], event["p"]), self._producers[event["client"]]
        for number, offset in event["acks"]:
            producer.acked.add(number)
            producer.acked_at[number] = event["t"]
            self._acks.append((spot, offset, f"{event['client']}:{number}"))
        self._report.counts["acknowledged"] += len(event["acks"])

    def _take_fail(self, event: Event) -> None:
        producer = self._producers[event["client"]]
        (producer.refused if event["definite"] else producer.in_doubt).add(event["n"])
        self._report.counts["refused" if event["definite"] else "in doubt"] += 1

    def _take_closed(self, event: Event) -> None:
        if numbers := event["open"]:
            spots = {_at(self._producers[event["client"]].sent[number], "?") for number in numbers}
            text = f"{event['client']} waits for {len(numbers)} records from {numbers[0]} on"
            self._find("unanswered", f"{text}, sent to {', '.join(sorted(spots))}")

    def _take_assign(self, event: Event) -> None:
        key = (event["client"], (event["topic"], event["p"]))
        furthest = self._readings[key].furthest if key in self._readings else 0
        gaps = self._readings[key].gaps if key in self._readings else []
        self._readings[key] = Reading(event["offset"], gaps, furthest)

    def _take_poll(self, event: Event) -> None:
        client, spot = event["client"], (event["topic"], event["p"])
        reading = self._readings[client, spot]
        is_final = client in self._final_readers
        log, seen = self._log.setdefault(spot, {}), self._seen.setdefault(spot, {})
        for offset, name in event["records"]:
            self._advance(client, spot, reading, offset)
            first = seen.setdefault(offset, (name, client))
            if first[0] != name:
                self._find(
                    "inconsistent",
                    f"{_at(spot, offset)} is {first[0]} for {first[1]} and {name} for {client}",
                )
            if is_final:
                log.setdefault(offset, name)
        self._report.counts["read"] += len(event["records"])
        if "near" in event:
            self._report.counts["read from followers"] += len(event["records"])

    def _advance(self, client: str, spot: Spot, reading: Reading, offset: int) -> None:
        if offset < reading.next_offset:
            text = f"{client} got {_at(spot, offset)} when {reading.next_offset} was next"
            self._find("non-monotonic", text)
        elif offset > reading.next_offset:
            reading.gaps.append((reading.next_offset, offset))
        reading.next_offset = offset + 1
        reading.furthest = max(reading.furthest, offset + 1)

    def _take_ends(self, event: Event) -> None:
        for name, (start, end) in event["ends"].items():
            topic, _, partition = name.rpartition("/")
            self._ends[topic, int(partition)] = (start, end)

    def _take_replica(self, event: Event) -> None:
        brokers = self._replicas.setdefault((event["topic"], event["p"]), {})
        batches = brokers.setdefault(event["broker"], [])
        batches += [(first, last, checksum) for first, last, checksum in event["batches"]]
        self._report.counts["batches of replicas"] += len(event["batches"])

    # --- the end

    def report(self) -> Report:
        """After the last event."""
        if not self._ends:
            self._take_the_log_as_seen()
        for spot in sorted(self._ends):
            self._check_log(spot)
        self._check_acks()
        self._check_reads()
        for spot in sorted(self._replicas):
            self._check_replicas(spot)
        return self._report

    def _take_the_log_as_seen(self) -> None:
        self._is_unfinished = True
        self._find("unfinished", "nobody read the log at its end")
        for spot, seen in self._seen.items():
            self._log[spot] = {offset: name for offset, (name, _) in seen.items()}
            self._ends[spot] = (min(seen), max(seen) + 1)

    def _check_log(self, spot: Spot) -> None:
        log = self._log.get(spot, {})
        start, end = self._ends[spot]
        seen_at: dict[str, int] = {}
        last: dict[str, tuple[int, int]] = {}
        expected = start
        for offset in sorted(log):
            if offset != expected:
                text = f"{_at(spot, expected)} to {offset - 1} are missing in the log"
                self._find("inconsistent", text)
            expected = offset + 1
            name = log[offset]
            if not self._check_origin(spot, offset, name):
                continue
            client, number = _parts(name)
            if name in seen_at:
                self._check_duplicate(spot, offset, seen_at[name], client, number)
                continue
            seen_at[name] = offset
            self._check_order(spot, offset, client, number, last)
        if expected < end:
            self._find("inconsistent", f"{_at(spot, expected)} to {end - 1} can't be read")

    def _check_origin(self, spot: Spot, offset: int, name: str) -> bool:
        """Did somebody send it, and here?"""
        client, number = _parts(name)
        producer = self._producers.get(client)
        if producer is None or number not in producer.sent:
            self._find("foreign", f"{_at(spot, offset)} is {name!r}, which nobody sent")
            return False
        if producer.sent[number] != spot:
            where = _at(producer.sent[number], "?")
            self._find("foreign", f"{_at(spot, offset)} is {name}, which was sent to {where}")
            return False
        may_be_there = (producer.in_doubt, producer.acked, producer.again)
        if number in producer.refused and not any(number in known for known in may_be_there):
            self._find("foreign", f"{_at(spot, offset)} is {name}, which was definitely refused")
        return True

    def _check_duplicate(
        self, spot: Spot, offset: int, first: int, client: str, number: int
    ) -> None:
        producer = self._producers[client]
        if producer.is_idempotent or number not in producer.in_doubt:
            kind = "an idempotent producer" if producer.is_idempotent else "sent once"
            text = f"{client}:{number} ({kind}) is at {_at(spot, first)} and at {offset}"
            self._find("duplicate", text)
        else:
            self._report.counts["allowed duplicates"] += 1

    def _check_order(
        self, spot: Spot, offset: int, client: str, number: int, last: dict[str, tuple[int, int]]
    ) -> None:
        """A plain producer's record in doubt may come late: its request may have lain somewhere. So may
        one that was sent again, after others."""
        producer = self._producers[client]
        if not producer.is_idempotent and (number in producer.in_doubt or number in producer.again):
            return
        before, where = last.get(client, (-1, -1))
        if number < before and not producer.were_at_once(number, before):
            text = f"{client}:{before} at {_at(spot, where)} comes before {client}:{number} at {offset}"
            self._find("reordered", text)
        last[client] = (number, offset)

    def _check_acks(self) -> None:
        places = {
            spot: {name: offset for offset, name in sorted(log.items(), reverse=True)}
            for spot, log in self._log.items()
        }
        for spot, offset, name in self._acks:
            found = places.get(spot, {}).get(name)
            if found is None and self._is_unfinished and not self._was_read_to(spot, offset):
                continue  # It may lie where nobody has come to.
            if found is None:
                self._find("lost", f"{name} was acknowledged at {_at(spot, offset)}")
            elif offset >= 0 and self._log[spot].get(offset) != name:
                text = f"{name} was acknowledged at {_at(spot, offset)} and is at {found}"
                self._find("inconsistent", text)

    def _was_read_to(self, spot: Spot, offset: int) -> bool:
        """An offset that the client was not told may be anywhere."""
        return 0 <= offset < self._ends.get(spot, (0, 0))[1]

    def _check_reads(self) -> None:
        for spot, seen in self._seen.items():
            log = self._log.get(spot, {})
            for offset, (name, client) in seen.items():
                if offset not in log:
                    self._find("lost", f"{name} was read by {client} at {_at(spot, offset)}")
        for (client, spot), reading in self._readings.items():
            log = self._log.get(spot, {})
            for start, stop in reading.gaps:
                passed = [offset for offset in range(start, stop) if offset in log]
                if passed:
                    text = f"{client} went from {_at(spot, start)} to {stop} over {len(passed)} records"
                    self._find("unseen", text)
            end = self._ends.get(spot, (0, 0))[1]
            if reading.furthest < end and not self._is_unfinished:
                text = f"{client} came to {_at(spot, reading.furthest)}, the end is {end}"
                self._find("unseen", text)

    def _check_replicas(self, spot: Spot) -> None:
        start, end = self._ends.get(spot, (0, 0))
        brokers = self._replicas[spot]
        for broker, batches in brokers.items():
            expected = start
            for first, last, _ in batches:
                is_next = first == expected or first < start == expected
                if not is_next and expected < end:
                    text = f"broker {broker} has {_at(spot, first)} where {expected} is next"
                    self._find("diverged", text)
                expected = last + 1
            if expected < end:
                text = f"broker {broker} comes to {_at(spot, expected)}, the end is {end}"
                self._find("diverged", text)
        (one, ours), *others = brokers.items()
        known = {first: (last, checksum) for first, last, checksum in ours if first < end}
        for other, batches in others:
            theirs = {first: (last, checksum) for first, last, checksum in batches if first < end}
            differing = [at for at in sorted({*known, *theirs}) if known.get(at) != theirs.get(at)]
            if differing:
                text = f"brokers {one} and {other} differ at {_at(spot, differing[0])}"
                self._find("diverged", f"{text}, in {len(differing)} batches")


def check(events: Iterable[Event]) -> Report:
    """All events of a history, in order."""
    checker = Checker()
    for event in events:
        checker.take(event)
    return checker.report()


def _parts(name: str) -> tuple[str, int]:
    client, _, number = name.rpartition(":")
    return (client, int(number)) if number.isdigit() else (name, -1)


def _at(spot: Spot, offset: int | str) -> str:
    return f"{spot[0]}-{spot[1]}@{offset}"
