"""Bad bytes of a log, fetched again from a replica that has them good (SPEC §2, recovery rule 6).

A damaged log knows its positions, so it votes by them; it lacks bytes, so it neither stands, nor serves,
nor takes appends. For each damaged range this module asks one peer after the other for the batches from
the last good one to the end of the segment, checks them (CRC, offsets, and the epoch that our marks give
to each: epoch and offset name a record in all the group) and writes them where they were. When the
range is whole the damage is forgotten, in memory at once, on disk with the next flush: a crash in
between finds the damage again.

What the leader has not got is not repaired: once all that it has is good, the rest is cut off, as it
would be in a log that is whole.

What can't be repaired: a range whose bytes have another length at the leader, because compaction ran on
one side only; one that has every offset in fewer bytes than the journal knows, because compaction ran
here and a rotten journal lost that; one of whose end compaction left the leader nothing; one that the
leader has trimmed. Then the replica begins again with an empty log, and keeps its promises meanwhile.

Unless an operator ordered that this log is what the group goes on with: then nobody is asked twice, and
what nobody has is given up (storage/salvage.py). Called by node.py.
"""

import logging
from functools import partial

from dmq.broker.multiraft import cargo
from dmq.broker.multiraft.frames import RangeReply, RangeRequest
from dmq.broker.multiraft.links import Link, PeerLinks
from dmq.broker.multiraft.replica import Replica
from dmq.broker.multiraft.sending import Sender
from dmq.errors import KafkaError, ProtocolError, StorageError
from dmq.raft.marks import Marks
from dmq.storage.files import File
from dmq.storage.items import Damage
from dmq.storage.segment import BadBatchError, Segment, walk
from dmq.storage.store import Store
from dmq.types import Position, Voter

logger = logging.getLogger("dmq.broker")

ASK_AGAIN_MS = 1000
"""A peer that gave no answer for so long is followed by the next one."""


class _Range:
    """One damaged range while it is being fetched."""

    __slots__ = (
        "asked",
        "asked_at",
        "byte",
        "damage",
        "is_all",
        "limit",
        "offset",
        "segment",
        "stop",
        "stop_byte",
        "vain",
    )

    def __init__(self, damage: Damage, segment: Segment, byte: int, offset: int, stop: int) -> None:
        self.damage = damage
        self.segment = segment
        self.byte = byte
        self.offset = offset
        """What is missing begins at this byte and offset."""
        self.stop = stop
        self.stop_byte = segment.size
        self.limit: int | None = None
        """Where our log parts from the leader's; only what lies below is fetched."""
        self.is_all = True
        """Whether `stop` is the segment's end."""
        self.asked: Voter | None = None
        self.asked_at: int | None = None
        self.vain: dict[Voter, None] = {}
        """Who was asked for this, and gave nothing."""


class Repairs:
    """All damaged logs of this broker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ranges: dict[Replica, _Range | None] = {}
        self._lost: dict[Replica, None] = {}
        self._salvaged_at: dict[Replica, int] = {}
        """When what is left of a log was last to be put together, by an operator's order."""

    def add(self, replica: Replica) -> None:
        self._ranges.setdefault(replica, None)

    def forget(self, replica: Replica) -> None:
        self._ranges.pop(replica, None)
        self._lost.pop(replica, None)
        self._salvaged_at.pop(replica, None)

    def give_up(self, replica: Replica) -> None:
        """Nothing can be done for this log."""
        self._ranges.pop(replica, None)
        self._lost[replica] = None

    def take_lost(self) -> list[Replica]:
        """Replicas that must begin again."""
        lost, self._lost = self._lost, {}
        return list(lost)

    # ---- asking

    def deadline(self) -> int | None:
        """When to ask again."""
        moments = [
            found.asked_at + ASK_AGAIN_MS
            for found in self._ranges.values()
            if found is not None and found.asked_at is not None
        ]
        moments += [at + ASK_AGAIN_MS for at in self._salvaged_at.values()]
        return min(moments, default=None)

    def ask(self, links: PeerLinks, sender: Sender, now: int) -> list[Replica]:
        """Ask for what is missing; returns logs that turn out to miss nothing any more."""
        if not self._ranges:
            return []
        whole = []
        for replica in list(self._ranges):
            if not replica.log.is_damaged:  # A reset replaced it, or the order was obeyed.
                del self._ranges[replica]
                if self._salvaged_at.pop(replica, None) is not None:
                    self._store.request_flush(replica.log)  # It may have waited for one.
                if replica.core.is_damaged:
                    whole.append(replica)
                continue
            is_wanting = self._look_for(replica, now)
            if replica.order is not None and not (
                is_wanting and self._has_hope(replica, links, now)
            ):
                self._salvage(replica, now)
            elif is_wanting:
                self._ask_one(replica, links, sender, now)
            elif not replica.log.damage:
                self._ranges.pop(replica, None)
                whole.append(replica)
        return whole

    def _look_for(self, replica: Replica, now: int) -> bool:
        """Find what must be fetched next; False if nothing needs to be, for now or at all."""
        found, parting = self._ranges[replica], replica.core.parting
        limit = parting.offset if parting is not None else None
        if found is None or found.damage not in replica.log.damage or found.limit != limit:
            found = self._ranges[replica] = self._find(replica, limit)
        if found is None:
            return False
        if found.offset < found.stop:
            return True
        if not found.is_all:
            self._part(replica, now)
        elif replica.core.leader not in (None, replica.me) and replica.order is None:
            self.give_up(replica)  # No offset is missing, only bytes: nobody can send them.
        return False

    def _has_hope(self, replica: Replica, links: PeerLinks, now: int) -> bool:
        """Whether somebody can be asked for what is missing, and was not asked in vain."""
        found = self._ranges[replica]
        assert found is not None
        if found.asked is not None and found.asked_at is not None:
            if now - found.asked_at < ASK_AGAIN_MS:
                return True
            found.vain[found.asked] = None
        return any(
            voter != replica.me and voter not in found.vain and links.open_link(voter) is not None
            for voter in replica.core.voters
        )

    def _salvage(self, replica: Replica, now: int) -> None:
        """By an operator's order we go on with what is good here."""
        at = self._salvaged_at.get(replica)
        if at is None or now - at >= ASK_AGAIN_MS:
            self._salvaged_at[replica] = now
            self._store.salvage(replica.log, partial(_tell_of_failure, replica))

    def _part(self, replica: Replica, now: int) -> None:
        """The first bad byte lies beyond what our log and the leader's have in common."""
        self._ranges[replica] = None
        replica.part(now)
        if not replica.is_lost:
            replica.log.damage = ()
            self._store.request_flush(replica.log)

    def _ask_one(self, replica: Replica, links: PeerLinks, sender: Sender, now: int) -> None:
        found = self._ranges[replica]
        assert found is not None
        if found.asked_at is not None and now - found.asked_at < ASK_AGAIN_MS:
            return
        link = _source(replica, links, found.asked if found.asked_at is not None else None)
        if link is None:
            return
        found.asked, found.asked_at = link.peer, now
        marks = replica.log.marks
        mark = next((m for m in reversed(marks.items) if m.offset < found.stop), marks.base)
        end = Position(mark.epoch, mark.change, found.stop)
        request = RangeRequest(replica.core.epoch, found.offset, end)
        sender.post_range(replica.key, link, request)

    def _find(self, replica: Replica, limit: int | None) -> _Range | None:
        """The first damaged range of a log, from its last good batch on, below `limit`."""
        log = replica.log
        bases = [segment.base for segment in log.segments_list]
        damage = min(log.damage)
        at = bases.index(damage.segment) if damage.segment in bases else -1
        if at < 0 or damage.start >= log.segments_list[at].size:
            log.damage = tuple(d for d in log.damage if d != damage)  # Trimmed, cut or replaced.
            return None
        segment = log.segments_list[at]
        stop = bases[at + 1] if at + 1 < len(bases) else log.end_offset
        self._store.pool.files.make_dir(log.directory)
        file = self._store.pool.create(segment)
        byte, offset = _good_part(file, min(damage.start, file.size()), segment.base, log.marks)
        found = _Range(damage, segment, byte, offset, stop if limit is None else min(stop, limit))
        found.limit = limit
        found.is_all = found.stop == stop
        return found

    # ---- serving

    def serve(
        self, replica: Replica, link: Link, request: RangeRequest, sender: Sender, now: int
    ) -> None:
        """Give a peer the bytes that it lost, if we have them; an empty answer: we never will."""
        if replica.core.is_damaged or not replica.core.has(request.end):
            return
        try:
            piece = cargo.read_piece(
                replica.log, request.start, request.end.offset, cargo.PIECE_BYTES
            )
        except KafkaError:
            piece = cargo.Piece(request.start, b"")  # Trimmed.
        except StorageError as error:
            replica.note_damage(error, now)
            return
        reply = RangeReply(replica.core.epoch, request.start, piece.stop)
        sender.post_range(replica.key, link, reply, piece.data)

    # ---- taking

    def take(self, replica: Replica, peer: Voter, reply: RangeReply, data: bytes) -> bool:
        """Bytes came; whether the log is whole again. Raises ProtocolError."""
        found = self._ranges.get(replica)
        if found is None or reply.start != found.offset or peer != found.asked:
            return False
        ends_at = self._check(replica, found, data)
        byte = found.byte + len(data)
        is_end = found.is_all and reply.stop >= found.stop
        is_unfit = byte != found.stop_byte if is_end else byte > found.stop_byte
        # Before the place where the logs part, compaction took what we have there: our bytes stay bad.
        has_gap = not found.is_all and reply.stop >= found.stop > ends_at
        if is_unfit or has_gap or reply.stop == reply.start:
            self._is_useless(replica, peer)
            return False
        try:
            self._store.pool.create(found.segment).write_at(found.byte, [data])
        except OSError:
            return False  # The disk is full; asked again later.
        found.byte, found.offset, found.asked_at = byte, reply.stop, None
        found.vain.clear()
        if found.offset < found.stop:
            return False
        if not found.is_all:
            self._shorten(replica, found)
            return False
        return self._finish(replica, found)

    def _is_useless(self, replica: Replica, peer: Voter) -> None:
        """These bytes don't fit into ours. Others are asked in their turn, unless it is the leader:
        it is from there that we would get the log anew."""
        replica.count("repair of another length")
        if peer == replica.core.leader and replica.order is None:
            self.give_up(replica)

    def _shorten(self, replica: Replica, found: _Range) -> None:
        """All that the leader has of this segment is good now."""
        log, old = replica.log, found.damage
        log.damage = tuple(d._replace(start=found.byte) if d == old else d for d in log.damage)
        log.unsynced[found.segment] = None
        self._ranges[replica] = None

    def _check(self, replica: Replica, found: _Range, data: bytes) -> int:
        """Where the batches end. Raises ProtocolError."""
        at, marks = found.offset, replica.log.marks
        for batch, epoch in cargo.split(data):
            if batch.base < at or batch.next > found.stop or not marks.fits(batch.base, epoch):
                raise ProtocolError(
                    f"batch {batch.base} of epoch {epoch} is not what was asked for"
                )
            at = batch.next
        return at

    def _finish(self, replica: Replica, found: _Range) -> bool:
        log, segment = replica.log, found.segment
        segment.index, segment.trusted_bytes = None, 0
        segment.hints.clear()
        log.unsynced[segment] = None
        log.directory_changed = True
        log.damage = tuple(damage for damage in log.damage if damage.segment != segment.base)
        self._ranges[replica] = None
        if log.damage:
            return False
        del self._ranges[replica]
        self._store.request_flush(log)
        return True


def _good_part(file: File, end: int, base: int, marks: Marks) -> tuple[int, int]:
    """(byte, offset) behind the last batch that is good and in its place."""
    byte, offset = 0, base
    try:
        for place in walk(file, 0, end):
            ((batch, epoch),) = cargo.split(file.read_at(place.position, place.size))
            if batch.base < offset or not marks.fits(batch.base, epoch):
                break
            byte, offset = place.position + place.size, batch.next
    except (BadBatchError, ProtocolError):
        pass  # Good up to here.
    return byte, offset


def _tell_of_failure(replica: Replica, error: OSError) -> None:
    logger.error("%r can't go on with what is good of its log, as was ordered: %s", replica, error)


def _source(replica: Replica, links: PeerLinks, last: Voter | None) -> Link | None:
    """Whom to ask: the leader first, then the voters in their order, after the last one asked."""
    leader = replica.core.leader
    order = list(dict.fromkeys(([leader] if leader is not None else []) + [*replica.core.voters]))
    if last in order:
        at = order.index(last) + 1
        order = order[at:] + order[:at]
    for voter in order:
        link = links.open_link(voter)
        if link is not None:
            return link
    return None
