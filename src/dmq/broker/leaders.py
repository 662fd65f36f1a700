"""Who leads which partition, as far as this broker knows: claims of all brokers, merged.

Leaders and in-sync replicas are not in the metadata log; whoever leads a partition tells all others.
What is said at once to everybody are deltas (`take_delta`, when something changed); a broker with which
a session begins is told everything (`full`). Bytes are sent in order, each session for itself; where
some were lost all the same, `wanting` says who should be asked for everything again.

 - A higher epoch wins, and epochs never go back. There is one leader per epoch (Raft), so a claim of
   the same epoch is news of the same leader.
 - Whoever leads something and does not name it when it tells everything, leads it no more. Neither
   does who died. Then nobody leads (-1), until somebody claims it: the same broker with the same epoch,
   if only its link was broken, or another one with a higher epoch.
 - Of two processes that say to be the same broker the later one is believed. `life` tells them apart:
   the epoch of their registration.

A frame is never longer than FRAME_BYTES_MAX. Pure: values and bytes, no clock, no links. Bytes are the
peer's: whatever they are, `apply` takes them or raises ProtocolError. Called by the broker's runtime.
"""

import struct
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from dmq.errors import ProtocolError
from dmq.types import NO_LEADER

VERSION = 1
FRAME_BYTES_MAX = 64 * 1024
VOTERS_MAX = 32
"""More voters than this don't fit an entry; Kafka clusters have three, seldom five."""

_HEAD = struct.Struct(">BBqQI")  # version, flags, life, sequence number, entries
_ENTRY = struct.Struct(
    ">16sIiBBI"
)  # topic, partition, epoch, kind, number of voters, who is in sync
_BEGIN, _END = 1, 2
"""Flags: a full account begins, or ends, with this frame. A delta has neither."""
_IS_FULL = 4
_LEADS, _LOST, _GONE = 0, 1, 2

Key = tuple[UUID, int]


class Leadership(NamedTuple):
    """What is known of a partition's leader; -1: nobody leads, as far as we know.

    `isr` and `voters` are the last leader's, in order of preference.
    """

    leader: int
    epoch: int
    isr: tuple[int, ...]
    voters: tuple[int, ...]


class _Entry(NamedTuple):
    """What a frame says of one partition."""

    key: Key
    kind: int
    epoch: int
    isr: tuple[int, ...]
    voters: tuple[int, ...]


class _Frame(NamedTuple):
    flags: int
    life: int
    sequence: int
    entries: list[_Entry]


class _Teller:
    """Another broker, as far as its frames go."""

    __slots__ = ("has_told_all", "is_wanting", "life", "named", "sequence")

    def __init__(self, life: int) -> None:
        self.life = life
        self.sequence = -1
        self.named: dict[Key, None] | None = None
        """What it named since it began to tell everything; None if it does not."""
        self.has_told_all = False
        self.is_wanting = False


class LeaderTable:
    """See the module."""

    def __init__(self, node: int, life: int) -> None:
        self.node = node
        self.life = life
        self._known: dict[Key, Leadership] = {}
        self._led: dict[int, dict[Key, None]] = {}
        self._tellers: dict[int, _Teller] = {}
        self._news: dict[Key, _Entry] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._known)

    def get(self, topic_id: UUID, partition: int) -> Leadership | None:
        """None: nobody has ever said anything about it."""
        return self._known.get((topic_id, partition))

    def led_by(self, node: int) -> list[Key]:
        return list(self._led.get(node, ()))

    def has_heard(self, node: int) -> bool:
        """Whether the broker has told everything, and has not died since."""
        teller = self._tellers.get(node)
        return teller is not None and teller.has_told_all

    @property
    def wanting(self) -> list[int]:
        """Brokers of which something was missed: ask them for everything."""
        return sorted(node for node, teller in self._tellers.items() if teller.is_wanting)

    # ---- ourselves

    def leads(
        self,
        topic_id: UUID,
        partition: int,
        epoch: int,
        isr: Iterable[int],
        voters: tuple[int, ...],
    ) -> None:
        """We lead this partition; its replicas in sync, or its voters, may have changed."""
        assert 0 < len(voters) <= VOTERS_MAX, voters
        key, in_sync = (topic_id, partition), frozenset(isr)
        ordered = tuple([node for node in voters if node in in_sync])
        entry = _Entry(key, _LEADS, epoch, ordered, voters)
        if self._take(self.node, entry):
            self._news[key] = entry

    def lost(self, topic_id: UUID, partition: int) -> None:
        """We do not lead this partition any more, if we did."""
        known = self._known.get((topic_id, partition))
        if known is not None and known.leader == self.node:
            self._set_leader((topic_id, partition), known._replace(leader=NO_LEADER))

    def forget(self, topic_id: UUID, partition: int) -> None:
        """The partition was deleted. Who hears of it again afterwards, by a late claim of ours, is
        told so."""
        self._drop((topic_id, partition))

    def topics(self) -> set[UUID]:
        """All topics of which anything is known."""
        return {topic_id for topic_id, _ in self._known}

    def prune(self, topic_ids: Container[UUID]) -> None:
        """Forget all topics but these: claims that came too late, of brokers that died since."""
        for key in [key for key in self._known if key[0] not in topic_ids]:
            self._drop(key)

    def take_delta(self) -> list[bytes]:
        """Frames for all other brokers; none, if nothing changed since the last call."""
        news = list(self._news.values())
        self._news.clear()
        frames = []
        for entries in _portions(news):
            self._sequence += 1
            frames.append(_encode(_Frame(0, self.life, self._sequence, entries)))
        return frames

    def full(self) -> list[bytes]:
        """Frames for one broker with all that we lead; at least one."""
        entries = []
        for key in self._led.get(self.node, ()):
            known = self._known[key]
            entries.append(_Entry(key, _LEADS, known.epoch, known.isr, known.voters))
        portions = list(_portions(entries)) or [[]]
        frames = []
        for place, portion in enumerate(portions):
            flags = _IS_FULL
            if place == 0:
                flags |= _BEGIN
            if place == len(portions) - 1:
                flags |= _END
            frames.append(_encode(_Frame(flags, self.life, self._sequence, portion)))
        return frames

    # ---- others

    def apply(self, node: int, data: bytes) -> list[Key]:
        """A frame of another broker; what changed by it. Raises ProtocolError."""
        assert node != self.node, node
        frame = _decode(data)
        teller = self._teller(node, frame)
        if teller is None:
            return []
        changed: dict[Key, None] = {}
        if frame.flags & _BEGIN:
            teller.named = {}
        for entry in frame.entries:
            if teller.named is not None:
                teller.named[entry.key] = None
            if self._take(node, entry):
                changed[entry.key] = None
        if frame.flags & _END:
            self._close_account(node, teller, changed)
        return list(changed)

    def _teller(self, node: int, frame: _Frame) -> _Teller | None:
        """Keeps count of its frames; None if this one is of a former life, or was here before."""
        teller = self._tellers.get(node)
        if teller is None or frame.life > teller.life:
            teller = self._tellers[node] = _Teller(frame.life)
            teller.is_wanting = not frame.flags & _BEGIN
        elif frame.life < teller.life or frame.sequence < teller.sequence:
            return None
        elif not frame.flags & _IS_FULL:
            if frame.sequence == teller.sequence:
                return None
            teller.is_wanting |= frame.sequence > teller.sequence + 1
        elif not frame.flags & _BEGIN:
            teller.is_wanting |= teller.named is None
        teller.sequence = frame.sequence
        return teller

    def _close_account(self, node: int, teller: _Teller, changed: dict[Key, None]) -> None:
        named, teller.named = teller.named, None
        if named is None:  # Its beginning was missed.
            return
        for key in [key for key in self._led.get(node, ()) if key not in named]:
            self._set_leader(key, self._known[key]._replace(leader=NO_LEADER))
            changed[key] = None
        teller.has_told_all, teller.is_wanting = True, False

    def died(self, node: int) -> list[Key]:
        """There is no session with the broker any more; what it led, which nobody leads now."""
        self._tellers.pop(node, None)
        keys = self.led_by(node)
        for key in keys:
            self._set_leader(key, self._known[key]._replace(leader=NO_LEADER))
        return keys

    # ---- what is known

    def _take(self, node: int, entry: _Entry) -> bool:
        """Whether a broker's claim, or its end, was news."""
        known = self._known.get(entry.key)
        if entry.kind != _LEADS:
            return self._take_end(node, entry, known)
        claim = Leadership(node, entry.epoch, entry.isr, entry.voters)
        if known is not None and known.epoch >= entry.epoch:
            is_same_leader = known.leader in (NO_LEADER, node)
            if known.epoch > entry.epoch or not is_same_leader or claim == known:
                return False
        self._set_leader(entry.key, claim)
        return True

    def _take_end(self, node: int, entry: _Entry, known: Leadership | None) -> bool:
        """Also of a leadership that we never heard of: what was before is over as well."""
        if known is None or known.epoch > entry.epoch:
            return False
        if entry.kind == _GONE:
            self._drop(entry.key)
            return True
        if known.epoch == entry.epoch and known.leader != node:
            return False
        self._set_leader(entry.key, known._replace(leader=NO_LEADER, epoch=entry.epoch))
        return True

    def _set_leader(self, key: Key, leadership: Leadership) -> None:
        known = self._known.get(key)
        self._known[key] = leadership
        if known is not None and known.leader == leadership.leader:
            return
        if known is not None and known.leader != NO_LEADER:
            del self._led[known.leader][key]
            if known.leader == self.node:
                # Who did not hear of our successor must not go on believing us.
                self._news[key] = _Entry(key, _LOST, known.epoch, (), ())
        if leadership.leader != NO_LEADER:
            self._led.setdefault(leadership.leader, {})[key] = None

    def _drop(self, key: Key) -> None:
        known = self._known.pop(key, None)
        if known is None:
            return
        if known.leader != NO_LEADER:
            del self._led[known.leader][key]
        news = self._news.get(key)
        if known.leader == self.node or news is not None:
            epoch = known.epoch if news is None else max(known.epoch, news.epoch)
            self._news[key] = _Entry(key, _GONE, epoch, (), ())


# ---- bytes


def _portions(entries: list[_Entry]) -> Iterator[list[_Entry]]:
    """The entries in as many portions as there must be frames."""
    portion: list[_Entry] = []
    size = _HEAD.size
    for entry in entries:
        length = _ENTRY.size + 4 * len(entry.voters)
        if size + length > FRAME_BYTES_MAX:
            yield portion
            portion, size = [], _HEAD.size
        portion.append(entry)
        size += length
    if portion:
        yield portion


@lru_cache(maxsize=VOTERS_MAX + 1)
def _numbers(count: int) -> struct.Struct:
    return struct.Struct(f">{count}i")


def _encode(frame: _Frame) -> bytes:
    entries = frame.entries
    parts = [_HEAD.pack(VERSION, frame.flags, frame.life, frame.sequence, len(entries))]
    for (topic_id, partition), kind, epoch, isr, voters in entries:
        in_sync = 0
        for place, node in enumerate(voters):
            if node in isr:
                in_sync |= 1 << place
        parts.append(
            _ENTRY.pack(topic_id.bytes, partition, epoch, kind, len(voters), in_sync)
            + _numbers(len(voters)).pack(*voters)
        )
    data = b"".join(parts)
    assert len(data) <= FRAME_BYTES_MAX, len(data)
    return data


def _decode(data: bytes) -> _Frame:
    try:
        version, flags, life, sequence, count = _HEAD.unpack_from(data)
        if version != VERSION:
            raise ProtocolError(f"claims of unknown version {version}")
        if flags not in (0, _IS_FULL, _IS_FULL | _BEGIN, _IS_FULL | _END, 7):
            raise ProtocolError(f"claims with unknown flags {flags}")
        offset = _HEAD.size
        entries = []
        for _ in range(count):
            entry, offset = _decode_entry(data, offset)
            entries.append(entry)
    except struct.error as error:
        raise ProtocolError(f"claims that end too early: {error}") from error
    if offset != len(data):
        raise ProtocolError(f"{len(data) - offset} bytes after the last claim")
    return _Frame(flags, life, sequence, entries)


def _decode_entry(data: bytes, offset: int) -> tuple[_Entry, int]:
    topic, partition, epoch, kind, size, in_sync = _ENTRY.unpack_from(data, offset)
    offset += _ENTRY.size
    if kind > _GONE or size > VOTERS_MAX or in_sync >> size or epoch < 0:
        raise ProtocolError(f"no claim: kind {kind}, {size} voters, {in_sync:b}, epoch {epoch}")
    voters = _numbers(size).unpack_from(data, offset)
    isr = tuple([node for place, node in enumerate(voters) if in_sync >> place & 1])
    entry = _Entry((UUID(bytes=topic), partition), kind, epoch, isr, voters)
    return entry, offset + 4 * size
