"""Frames in the making: one per peer and kind, for all groups; and what is under way to each peer.

    control   heartbeats, tables, votes, answers
    bulk      appends with their record bytes, in pieces, until the frame or the peer's window is full

What does not fit waits for the next pass, in its order: groups take turns. A message that was made in
another session than the present one is dropped here. Record bytes come out of memory if the log has
them there still, else from its files, where they are as soon as a turn has begun. Called by node.py.
"""

from dataclasses import dataclass

from dmq.broker.multiraft import cargo
from dmq.broker.multiraft.driven import Flights
from dmq.broker.multiraft.frames import (
    Frame,
    GroupKey,
    GroupMessage,
    Heartbeat,
    Outgoing,
    RangeReply,
    RangeRequest,
    Table,
)
from dmq.broker.multiraft.links import Link, PeerLinks
from dmq.broker.multiraft.replica import Replica
from dmq.errors import StorageError
from dmq.raft.leader import Want
from dmq.raft.messages import Append, Envelope
from dmq.storage.files import Buffer
from dmq.types import Position, Voter

SMALL_BYTES = 128
"""What a message without record bytes counts for in a frame."""


@dataclass(frozen=True, slots=True)
class SendSettings:
    """How much is sent at once."""

    piece_bytes: int = cargo.PIECE_BYTES
    """Record bytes of one append, unless a batch has more. Too low: more messages; too high: a
    catch-up keeps small appends waiting."""
    frame_bytes: int = 1024 * 1024
    """Record bytes for one peer in one pass."""
    flying_bytes: int = 8 * 1024 * 1024
    """Record bytes sent to one peer and not answered. Too low: a fast link idles; too high:
    memory on both sides when the peer's disk is slow."""


_NOTHING: Buffer = b""


class _Draft:
    """A frame being put together for one peer and session."""

    __slots__ = ("beat", "messages", "session", "size", "table")

    def __init__(self, session: int) -> None:
        self.session = session
        self.beat: Heartbeat | None = None
        self.table: Table | None = None
        self.messages: list[GroupMessage] = []
        self.size = 0

    @property
    def is_empty(self) -> bool:
        return self.beat is None and self.table is None and not self.messages

    def frame(self) -> Frame:
        return Frame(self.beat, self.table, tuple(self.messages))


class Sender:
    """See the module."""

    def __init__(self, links: PeerLinks, settings: SendSettings) -> None:
        self._links = links
        self._settings = settings
        self._control: dict[Voter, _Draft] = {}
        self._bulk: dict[Voter, _Draft] = {}
        self.waiting: dict[Replica, None] = {}
        """Leaders that may have something to send."""

    # ---- control

    def _draft(self, drafts: dict[Voter, _Draft], link: Link) -> _Draft:
        draft = drafts.get(link.peer)
        if draft is None or draft.session != link.session:
            draft = drafts[link.peer] = _Draft(link.session)
        return draft

    def beat(self, link: Link, beat: Heartbeat) -> None:
        self._draft(self._control, link).beat = beat

    def table(self, link: Link, table: Table) -> None:
        self._draft(self._control, link).table = table

    def post(self, replica: Replica, envelope: Envelope) -> None:
        """A message that promises something, and may leave now."""
        link = self._links.open_link(envelope.to)
        if link is not None and link.session == envelope.session:
            tag = replica.their_tags.get(link.peer, 0)
            draft = self._draft(self._control, link)
            draft.messages.append(GroupMessage(replica.key, envelope.message, b"", tag))

    def post_range(
        self, key: GroupKey, link: Link, message: RangeRequest | RangeReply, data: Buffer = b""
    ) -> None:
        draft = self._draft(self._bulk, link)
        draft.messages.append(GroupMessage(key, message, data))
        draft.size += len(data)

    def forget(self, peer: Voter) -> None:
        """A new session: all that was queued for the old one is dropped."""
        self._control.pop(peer, None)
        self._bulk.pop(peer, None)

    def take_control(self) -> list[Outgoing]:
        drafts, self._control = self._control, {}
        return self._outgoing(drafts, is_bulk=False)

    def take_bulk(self) -> list[Outgoing]:
        drafts, self._bulk = self._bulk, {}
        return self._outgoing(drafts, is_bulk=True)

    def _outgoing(self, drafts: dict[Voter, _Draft], *, is_bulk: bool) -> list[Outgoing]:
        found = []
        for peer, draft in drafts.items():
            link = self._links.open_link(peer)
            if link is not None and link.session == draft.session and not draft.is_empty:
                found.append(Outgoing(peer, draft.session, is_bulk, draft.frame()))
        return found

    # ---- appends

    def push(self, now: int) -> None:
        """Fill the bulk frames with what followers want, group after group."""
        for replica in list(self.waiting):
            if replica.is_retired or not replica.is_leader or self._push_one(replica, now):
                self.waiting.pop(replica, None)
                replica.piece = None
                replica.log.forget_fresh()

    def _push_one(self, replica: Replica, now: int) -> bool:
        """Send as much as may be sent for one group; whether that was all."""
        is_all = True
        blocked: dict[Voter, None] = {}
        while True:
            wants = [want for want in replica.core.wants(now) if want.to not in blocked]
            if not wants:
                return is_all
            for want in wants:
                link = self._links.open_link(want.to)
                if link is None:
                    blocked[want.to] = None  # It is told again when the peer is back.
                elif not self._send(replica, want, link, now):
                    blocked[want.to] = None
                    is_all = False
                if replica.core.is_damaged:
                    return True

    def _send(self, replica: Replica, want: Want, link: Link, now: int) -> bool:
        """One append; False if there is no room for it now or its bytes can't be read yet."""
        settings = self._settings
        draft = self._draft(self._bulk, link)
        if draft.size >= settings.frame_bytes:
            return False
        stop, data = want.start, _NOTHING
        if want.stop > want.start:
            _ground(replica, link, want.start)
            if link.flying_bytes >= settings.flying_bytes:
                return False
            try:
                stop, data = self._read(replica, want)
            except StorageError as error:
                replica.note_damage(error, now)
                return False
            if stop == want.start:
                return False
        envelope = replica.core.send(want, stop, now)
        message = envelope.message
        if envelope.session != link.session:
            return True  # The group has not been told of the new session yet.
        tag = replica.our_tags[want.to]
        draft.messages.append(GroupMessage(replica.key, message, data, tag))
        draft.size += len(data) + SMALL_BYTES
        if isinstance(message, Append):
            fly(replica, link, message, len(data))
        return True

    def _read(self, replica: Replica, want: Want) -> cargo.Piece:
        known = replica.piece
        if known is not None and known[:2] == (want.start, want.stop):
            return known[2]
        place = replica.log, want.start, want.stop, self._settings.piece_bytes
        piece = cargo.fresh_piece(*place) or cargo.read_piece(*place)
        if piece.stop > want.start:  # Else they are not in the file yet: look again.
            replica.piece = (want.start, want.stop, piece)
        return piece


# --- what is under way ----------------------------------------------------------------------------


def fly(replica: Replica, link: Link, message: Append, size: int) -> None:
    """Record bytes leave; those that are sent again don't count twice."""
    flights = replica.flying.get(link.peer)
    if flights is None or flights.session != link.session:
        flights = replica.flying[link.peer] = Flights(link.session)
    under_way = flights.under_way
    while under_way and under_way[-1][0] > message.prev:
        link.flying_bytes -= under_way.pop()[1]
    if size:
        under_way.append((message.end, size))
        link.flying_bytes += size


def _ground(replica: Replica, link: Link, start: int) -> None:
    """What is about to be sent again from `start` on is not under way any more, be there room for it
    or not: else a window full of what was never answered would stay full."""
    flights = replica.flying.get(link.peer)
    if flights is not None and flights.session == link.session:
        under_way = flights.under_way
        while under_way and under_way[-1][0].offset > start:
            link.flying_bytes -= under_way.pop()[1]


def landed(replica: Replica, link: Link, end: Position) -> None:
    """The peer has all up to `end`."""
    flights = replica.flying.get(link.peer)
    if flights is not None and flights.session == link.session:
        under_way = flights.under_way
        while under_way and under_way[0][0] <= end:
            link.flying_bytes -= under_way.popleft()[1]


def forgotten(replica: Replica, link: Link) -> None:
    """Nothing of what was sent will be answered any more."""
    flights = replica.flying.pop(link.peer, None)
    if flights is not None and flights.session == link.session:
        link.flying_bytes -= sum(size for _, size in flights.under_way)


def ground(replica: Replica, links: PeerLinks, members: tuple[Voter, ...] = ()) -> None:
    """Nothing that was sent to others than these will be answered any more."""
    for peer in [peer for peer in replica.flying if peer not in members]:
        link = links.by_peer.get(peer)
        if link is not None:
            forgotten(replica, link)
