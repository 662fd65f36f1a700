"""Bad bytes of a log, fetched again from a replica that has them good (SPEC §2, recovery rule 6).

A damaged log knows its positions, so it votes by them; it lacks bytes, so it neither stands, nor serves,
nor takes appends. For each damaged range this module asks one peer after the other for the batches from
the last good one to the end of the segment, checks them (CRC, offsets, and the epoch that our marks give
to each: epoch and offset name a record in all the group) and writes them where they were. A peer gives
what it has of them; our own bytes behind that are looked at again, for the end may be ours alone. When
the range is whole the damage is forgotten, in memory at once, on disk with the next flush: a crash in
between finds the damage again.

However many logs are damaged, a turn looks for the first bad batches in a slice of their bytes only
(bad_range.py), and a peer is asked for a few ranges at a time. Logs take turns: one that was asked for
goes to the end of the line, and where one peer has enough to do the next one is asked.

What the leader has not got is not repaired: once all that it has is good, the rest is cut off, as it
would be in a log that is whole.

What can't be repaired: a range whose bytes have another length at the leader, because compaction ran on
one side only; one that has every offset in fewer bytes than the journal knows, because compaction ran
here and a rotten journal lost that; one that begins or ends amid a batch of the leader's, because
compaction left it one for many; one that the leader has trimmed. Then the replica begins again with an
empty log, and keeps its promises meanwhile.

Unless an operator ordered that this log is what the group goes on with: then nobody is asked twice, and
what nobody has is given up (storage/salvage.py). Called by node.py.
"""

import logging
from functools import partial

from dmq.broker.multiraft import cargo
from dmq.broker.multiraft.bad_range import FILE_COST, BadRange, RepairSettings
from dmq.broker.multiraft.frames import RangeReply, RangeRequest
from dmq.broker.multiraft.links import Link, PeerLinks
from dmq.broker.multiraft.replica import Replica
from dmq.broker.multiraft.sending import Sender
from dmq.errors import KafkaError, ProtocolError, StorageError
from dmq.records import read_header
from dmq.storage.files import Buffer, is_unreadable
from dmq.storage.log import Log
from dmq.storage.store import Store
from dmq.types import Position, Voter

logger = logging.getLogger("dmq.broker")

ASK_AGAIN_MS = 1000
"""A peer that gave no answer for so long is followed by the next one."""


class Repairs:
    """All damaged logs of this broker."""

    def __init__(self, store: Store, settings: RepairSettings) -> None:
        self._store = store
        self._settings = settings
        self._ranges: dict[Replica, BadRange | None] = {}
        """In the order in which they have their turn."""
        self._look_at = 0
        """When bytes may be looked at again."""
        self._is_behind = False
        """Whether some must be."""
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
        """When to ask again, or to look on."""
        moments = [
            found.asked_at + ASK_AGAIN_MS
            for found in self._ranges.values()
            if found is not None and found.asked_at is not None
        ]
        moments += [at + ASK_AGAIN_MS for at in self._salvaged_at.values()]
        if self._is_behind:
            moments.append(self._look_at)
        return min(moments, default=None)

    def ask(self, links: PeerLinks, sender: Sender, now: int) -> list[Replica]:
        """Ask for what is missing; returns logs that turn out to miss nothing any more."""
        if not self._ranges:
            self._is_behind = False
            return []
        self._look_on(now)
        asks = _Asks(links, sender, self._awaited(now), self._settings.asks_max)
        whole = []
        for replica in list(self._ranges):
            found = self._ranges[replica]
            if replica.log.is_damaged and found is not None and found.is_known:
                self._serve_own(replica, found, asks, now)
            if not replica.log.is_damaged and self._let_go(replica):
                whole.append(replica)
        return whole

    def _let_go(self, replica: Replica) -> bool:
        """Nothing is bad any more: it went, a reset replaced it, or an order was obeyed; whether the
        replica must be told."""
        self._ranges.pop(replica, None)
        if self._salvaged_at.pop(replica, None) is not None:
            self._store.request_flush(replica.log)  # It may have waited for one.
        return replica.core.is_damaged

    def _awaited(self, now: int) -> dict[Voter, int]:
        """How many ranges each peer has yet to answer, but for those that nobody waits for any more."""
        awaited: dict[Voter, int] = {}
        for found in self._ranges.values():
            if found is None or found.asked is None or found.asked_at is None:
                continue
            if now - found.asked_at >= ASK_AGAIN_MS:
                found.wait_no_longer()
            else:
                awaited[found.asked] = awaited.get(found.asked, 0) + 1
        return awaited

    def _serve_own(self, replica: Replica, found: BadRange, asks: "_Asks", now: int) -> None:
        """Do what is next for a log of ours of which we know what is missing."""
        is_wanting = found.offset < found.stop
        if found.is_whole:
            self._finish(replica, found)
        elif not is_wanting and not found.is_all:
            self._part(replica, now)
        elif replica.order is not None:
            if is_wanting and asks.has_hope(replica, found):
                self._ask_one(replica, found, asks, now)
            else:
                self._salvage(replica, now)
        elif is_wanting:
            self._ask_one(replica, found, asks, now)
        elif replica.core.leader not in (None, replica.me):
            self.give_up(replica)  # No offset is missing, only bytes: nobody can send them.

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

    def _ask_one(self, replica: Replica, found: BadRange, asks: "_Asks", now: int) -> None:
        if found.asked_at is None and asks.has_room and asks.ask(replica, found, now):
            self._ranges[replica] = self._ranges.pop(replica)  # The others' turn.

    # ---- looking

    def _look_on(self, now: int) -> None:
        """See what is missing where, as much as a turn may look at, log after log."""
        budget = left = self._settings.slice_bytes if now >= self._look_at else 0
        self._is_behind = False
        for replica in list(self._ranges):
            if replica.log.is_damaged:
                try:
                    left = self._look_into(replica, left)
                except OSError as error:
                    left -= FILE_COST
                    self._is_behind = True
                    self._is_refused(replica, error)
        if left < budget:
            self._look_at = now + self._settings.pause_ms

    def _look_into(self, replica: Replica, budget: int) -> int:
        """Look on in one log; what is left of the budget."""
        log, found, parting = replica.log, self._ranges[replica], replica.core.parting
        if found is not None and found.damage not in log.damage:
            found = self._ranges[replica] = None
        if (found is None or not found.is_known) and budget > 0:
            found = found or self._find(replica)
            self._ranges[replica] = found
            budget -= FILE_COST
            if found is not None:
                file = self._store.pool.create(found.segment)
                budget -= found.look_on(file, log.marks, budget)
        if found is not None:
            found.set_limit(parting.offset if parting is not None else None)
        if found is None or not found.is_known:
            self._is_behind = True
        return budget

    def _find(self, replica: Replica) -> BadRange | None:
        """The first damaged range of a log, of which only the segment is known."""
        log = replica.log
        bases = [segment.base for segment in log.segments_list]
        damage = min(log.damage)
        at = bases.index(damage.segment) if damage.segment in bases else -1
        if at < 0 or damage.start >= log.segments_list[at].size:
            log.damage = tuple(d for d in log.damage if d != damage)  # Trimmed, cut or replaced.
            return None
        if log.staged_bytes and at + 1 == len(bases):
            return None  # The turn will tell where this segment ends, and whether another begins.
        segment = log.segments_list[at]
        stop = bases[at + 1] if at + 1 < len(bases) else log.end_offset
        self._store.pool.files.make_dir(log.directory)
        file = self._store.pool.create(segment)
        return BadRange(damage, segment, min(damage.start, file.size()), stop)

    # ---- serving

    def serve(
        self, replica: Replica, link: Link, request: RangeRequest, sender: Sender, now: int
    ) -> None:
        """Give a peer the bytes that it lost, as far as we have them; an empty answer: we never will.

        Who lacks the end that is asked for may have all that is bad: what follows may be good there,
        and nobody else's.
        """
        core, log = replica.core, replica.log
        end = request.end if core.has(request.end) else core.floor(request.end)
        if end is None or end[:2] != request.end[:2]:
            return
        try:
            piece = _good_piece(log, request.start, end.offset)
        except KafkaError:
            piece = cargo.Piece(request.start, b"")  # Trimmed.
        except StorageError as error:
            if not log.is_damaged:
                replica.note_damage(error, now)
            return
        if piece.data and read_header(piece.data).base_offset < request.start:
            # Compaction left us no batch that begins there.
            piece = cargo.Piece(request.start, b"")
        if not piece.data and end != request.end:
            return
        reply = RangeReply(replica.core.epoch, request.start, piece.stop)
        sender.post_range(replica.key, link, reply, piece.data)

    # ---- taking

    def take(self, replica: Replica, peer: Voter, reply: RangeReply, data: Buffer) -> bool:
        """Bytes came; whether the log is whole again. Raises ProtocolError."""
        found = self._ranges.get(replica)
        if found is None or reply.start != found.offset or peer != found.asked:
            return False
        self._check(replica, found, reply, data)
        byte = found.byte + len(data)
        is_end = found.is_all and reply.stop >= found.stop
        is_unfit = byte != found.stop_byte if is_end else byte > found.stop_byte
        if is_unfit or reply.stop == reply.start:
            self._is_useless(replica, peer)
            return False
        try:
            file = self._store.pool.create(found.segment)
            file.write_at(found.byte, [data])
            replica.log.unsynced[found.segment] = None
            found.came(byte, reply.stop)
            found.look_on(file, replica.log.marks, 0)  # One batch: who needs more need not wait.
        except OSError as error:
            self._is_refused(replica, error)
            return False
        if not found.is_all and found.offset >= found.stop:
            self._shorten(replica, found)
        return found.is_whole and self._finish(replica, found)

    def _is_useless(self, replica: Replica, peer: Voter) -> None:
        """These bytes don't fit into ours. Others are asked in their turn, unless it is the leader:
        it is from there that we would get the log anew."""
        replica.count("repair of another length")
        if peer == replica.core.leader and replica.order is None:
            self.give_up(replica)

    def _is_refused(self, replica: Replica, error: OSError) -> None:
        """The disk takes or gives no bytes there: what is missing is asked for again later. A bad place
        stays bad, so that the log must lie elsewhere, if we can get it anew."""
        replica.count("repair refused by the disk")
        has_leader = replica.core.leader not in (None, replica.me)
        if is_unreadable(error) and has_leader and replica.order is None:
            self.give_up(replica)

    def _shorten(self, replica: Replica, found: BadRange) -> None:
        """All that the leader has of this segment is good now."""
        log, old = replica.log, found.damage
        found.damage = old._replace(start=found.byte)
        log.damage = tuple(found.damage if d == old else d for d in log.damage)
        log.repair_count += 1
        log.unsynced[found.segment] = None
        if found.byte >= found.segment.size:
            self._ranges[replica] = None  # There are no more bytes that could be bad.

    def _check(self, replica: Replica, found: BadRange, reply: RangeReply, data: Buffer) -> None:
        """Raises ProtocolError."""
        at, marks = found.offset, replica.log.marks
        for batch, epoch in cargo.split(data):
            if batch.base != at or batch.next > found.stop or not marks.fits(batch.base, epoch):
                raise ProtocolError(
                    f"batch {batch.base} of epoch {epoch} is not what was asked for"
                )
            at = batch.next
        if at != reply.stop:
            raise ProtocolError(f"batches end at {at}, not at {reply.stop}")

    def _finish(self, replica: Replica, found: BadRange) -> bool:
        log, segment = replica.log, found.segment
        segment.index, segment.trusted_bytes = None, 0
        segment.hints.clear()
        log.unsynced[segment] = None
        log.directory_changed = True
        log.damage = tuple(damage for damage in log.damage if damage.segment != segment.base)
        log.repair_count += 1
        self._ranges[replica] = None
        if log.damage:
            return False
        del self._ranges[replica]
        self._store.request_flush(log)
        return True


def _good_piece(log: Log, start: int, stop: int) -> cargo.Piece:
    """What a peer lacks may be good here, though something else is bad.

    Raises KafkaError or StorageError.
    """
    if not log.is_damaged:
        return cargo.read_piece(log, start, stop, cargo.PIECE_BYTES)
    behind = [damage.segment for damage in log.damage if damage.segment > start]
    stop = min(stop, *behind) if behind else stop
    try:
        return cargo.read_piece(log, start, stop, cargo.PIECE_BYTES, despite_damage=True)
    except cargo.RotError as error:
        if error.offset <= start:
            raise
        return cargo.read_piece(log, start, error.offset, cargo.PIECE_BYTES, despite_damage=True)


def _tell_of_failure(replica: Replica, error: OSError) -> None:
    logger.error("%r can't go on with what is good of its log, as was ordered: %s", replica, error)


class _Asks:
    """What is asked in one turn, and of whom."""

    __slots__ = ("_awaited", "_links", "_max", "_sender", "has_room")

    def __init__(
        self, links: PeerLinks, sender: Sender, awaited: dict[Voter, int], asks_max: int
    ) -> None:
        self._links = links
        self._sender = sender
        self._awaited = awaited
        self._max = asks_max
        self.has_room = self._has_room()
        """Whether anybody can be asked for more; else the rest of a long line costs nothing."""

    def _has_room(self) -> bool:
        peers = [link.peer for link in self._links.by_peer.values() if link.is_open]
        return any(self._awaited.get(peer, 0) < self._max for peer in peers)

    def has_hope(self, replica: Replica, found: BadRange) -> bool:
        """Whether somebody can be asked for what is missing, and was not asked in vain."""
        return found.asked_at is not None or any(
            voter != replica.me
            and voter not in found.vain
            and self._links.open_link(voter) is not None
            for voter in replica.core.voters
        )

    def ask(self, replica: Replica, found: BadRange, now: int) -> bool:
        """Ask for what is missing; False if nobody can be asked now."""
        link = self._source(replica, found)
        if link is None:
            return False
        found.asked, found.asked_at = link.peer, now
        self._awaited[link.peer] = self._awaited.get(link.peer, 0) + 1
        self.has_room = self._has_room()
        marks = replica.log.marks
        mark, edges = marks.at(found.offset), (m.offset for m in marks if m.offset > found.offset)
        # Up to the next mark: others may lack it.
        end = Position(mark.epoch, mark.change, min(next(edges, found.stop), found.stop))
        request = RangeRequest(replica.core.epoch, found.offset, end)
        self._sender.post_range(replica.key, link, request)
        return True

    def _source(self, replica: Replica, found: BadRange) -> Link | None:
        """Who gave what came before, else the leader, else the voters in their order; nobody again
        before all were asked, and nobody who has enough to do."""
        able = self._able(replica, found.asked)
        if all(link.peer in found.vain for link in able):
            found.vain.clear()
            found.asked = None
            able = self._able(replica, None)
        return next((link for link in able if self._may_ask(link.peer, found)), None)

    def _able(self, replica: Replica, first: Voter | None) -> list[Link]:
        order = dict.fromkeys((first, replica.core.leader, *replica.core.voters))
        links = [self._links.open_link(voter) for voter in order if voter is not None]
        return [link for link in links if link is not None]

    def _may_ask(self, peer: Voter, found: BadRange) -> bool:
        return peer not in found.vain and self._awaited.get(peer, 0) < self._max
