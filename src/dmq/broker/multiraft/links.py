"""One session per peer: who may connect, who is heard, who is suspect, whose lease stands.

    no session --connected--> live --nothing for suspect_ms--> suspect --a frame--> live
    live --closed--> live, but unreachable --refused, or nothing for suspect_ms--> gone
                                           --connected, with another number--> live

A closed connection alone says little: it may be back in a moment, and a leader that lives keeps its
groups. Nor does a new one say much: where sessions follow each other in which nothing comes, only the
first counts as a sign of life, for a leader that is not heard must not be held on to. A refused one
says that nobody listens there: the peer is dead at once. A peer that comes back under another directory
id is somebody else, and its old name is gone.

Keeps raft's `Links`, which the groups read, and a list of peers about which groups must be told. No
socket: whoever drives the node owns the connections. A lease counts from the *sending* of a heartbeat
that the peer answered while it followed us in every group that we lead it in; a pause of our own voids
all. Called by node.py.
"""

from dataclasses import dataclass

from dmq.broker.multiraft.frames import Hello
from dmq.errors import ProtocolError
from dmq.raft.links import Links
from dmq.types import Voter

PROTOCOL_MIN = PROTOCOL_MAX = 3
"""Versions of the peer protocol that this code speaks."""
NEVER = -1
"""`echo` of a peer that we have not heard in this session."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The times of a link, in ms."""

    heartbeat_ms: int = 100
    """Between heartbeats on each link. Too low: idle brokers work; too high: slow detection."""
    suspect_ms: int = 500
    """Without a frame for so long a peer is suspect. Too low: a hiccup starts elections."""
    pause_ms: int = 300
    """A broker that did nothing for so long was stopped itself: it reads before it judges."""
    grace_ms: int = 20
    """How long it reads first. The driver must hand in what lies in its sockets meanwhile."""
    lease_ms: int = 400
    """How long an answered heartbeat keeps leases. Must be below suspect_ms: clocks differ."""
    greeting_ms: int = 100
    """A new peer's table is awaited for so long before groups are told that the peer is there."""

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_ms < self.lease_ms < self.suspect_ms
        assert self.pause_ms > self.heartbeat_ms


class Link:
    """What is known of one peer, by its full name."""

    __slots__ = (
        "echo",
        "exchanged_at",
        "exchanged_digests",
        "flying_bytes",
        "greet_until",
        "has_spoken",
        "heard_at",
        "hello",
        "is_live",
        "is_open",
        "lease_at",
        "mismatches",
        "peer",
        "session",
        "sync_ms",
    )

    def __init__(self, hello: Hello) -> None:
        self.peer = hello.me
        self.hello = hello
        self.session = 0
        self.is_open = False
        """Whether frames can be sent; the peer may count as live without."""
        self.is_live = False
        self.heard_at = 0
        self.has_spoken = True
        """Whether a frame came in this session; before the first one, it has our trust."""
        self.greet_until: int | None = None
        """Groups have not been told of this session yet; at the latest, they are then."""
        self.begin(hello, 0, 0)
        self.is_open = self.is_live = False
        self.has_spoken = True

    def begin(self, hello: Hello, session: int, now: int) -> None:
        self.hello = hello
        self.session = session
        self.is_open = True
        if self.has_spoken:
            self.heard_at = now
            self.is_live = True
        self.has_spoken = False
        self.echo = NEVER
        self.lease_at: int | None = None
        """When we sent the last heartbeat that renewed our leases with this peer."""
        self.sync_ms = 0
        self.mismatches = 0
        self.exchanged_at = 0
        self.exchanged_digests: object = None
        self.flying_bytes = 0
        """Record bytes that were sent and not answered."""

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<Link {self.peer.node} {state} session={self.session} live={self.is_live}>"


class PeerLinks:
    """All links of this broker; see the module."""

    def __init__(self, hello: Hello, settings: LinkSettings, now: int) -> None:
        self.hello = hello
        self.settings = settings
        self.raft = Links(hello.me)
        self.by_peer: dict[Voter, Link] = {}
        self._changed: dict[Voter, None] = {}
        self._seen_at = now
        """When we last did anything."""
        self._resumed_at = now
        """When our last pause ended, or our life began."""
        self.judge_from = now

    # ---- time

    def enter(self, now: int) -> bool:
        """Called first in every input; whether it ends a pause of our own."""
        was_paused = now - self._seen_at > self.settings.pause_ms
        self._seen_at = max(now, self._seen_at)
        if was_paused:
            self._resumed_at = now
            for link in self.by_peer.values():
                link.lease_at = None
            self.judge_from = now + self.settings.grace_ms
        return was_paused

    def may_judge(self, now: int) -> bool:
        """False after a pause, until what lies in our sockets was read."""
        return now >= self.judge_from

    def tick(self, now: int) -> None:
        """Suspect whom we have not heard."""
        if not self.may_judge(now):
            return
        for link in list(self.by_peer.values()):
            if link.is_live and now - link.heard_at >= self.settings.suspect_ms:
                self._lose(link)
            if link.greet_until is not None and link.greet_until <= now:
                self.greeted(link)

    def deadline(self) -> int | None:
        """When `tick` must be called."""
        moments = []
        for link in self.by_peer.values():
            if link.is_live:
                moments.append(link.heard_at + self.settings.suspect_ms)
            if link.greet_until is not None:
                moments.append(link.greet_until)
        return max(min(moments), self.judge_from) if moments else None

    # ---- connections

    def connected(self, hello: Hello, session: int, now: int) -> Link:
        """A session begins. Raises ProtocolError if this peer must not be here."""
        self._check(hello)
        peer = hello.me
        for other in [v for v in self.by_peer if v.node == peer.node and v != peer]:
            self._forget(self.by_peer[other])
        link = self.by_peer.get(peer)
        if link is None:
            link = self.by_peer[peer] = Link(hello)
        link.begin(hello, session, now)
        link.greet_until = now + self.settings.greeting_ms
        self.raft.open(peer, session)
        if not link.is_live:
            self.raft.suspect(peer)
        return link

    def _check(self, hello: Hello) -> None:
        ours = self.hello
        if hello.cluster_id != ours.cluster_id:
            raise ProtocolError(f"broker {hello.me.node} belongs to cluster {hello.cluster_id}")
        if hello.protocol_min > ours.protocol_max or hello.protocol_max < ours.protocol_min:
            raise ProtocolError(
                f"broker {hello.me.node} speaks peer protocol {hello.protocol_min} to "
                f"{hello.protocol_max}, we speak {ours.protocol_min} to {ours.protocol_max}"
            )
        if hello.me.node == ours.me.node:
            raise ProtocolError(f"broker {hello.me.node} has our own id")
        known = self.by_peer.get(hello.me)
        if known is not None and hello.incarnation < known.hello.incarnation:
            raise ProtocolError(f"broker {hello.me.node} was started again since")

    def closed(self, peer: Voter, session: int) -> bool:
        """The connection ended; the peer itself may be well. False if there is a newer one."""
        link = self.by_peer.get(peer)
        if link is None or link.session != session:
            return False
        link.is_open = False
        link.lease_at = None
        if not link.is_live:
            self._lose(link)
        return True

    def refused(self, peer: Voter) -> None:
        """Nobody listens where the peer lived: it is dead. Said again and again, it is no news."""
        link = self.by_peer.get(peer)
        if link is None or link.is_open:
            return
        if link.is_live or link.session:
            self._lose(link)

    def heard(self, peer: Voter, session: int, now: int) -> Link | None:
        """A frame came; None if it is not of the present session."""
        link = self.by_peer.get(peer)
        if link is None or link.session != session or not link.is_open:
            return None
        link.heard_at = max(now, link.heard_at)
        link.has_spoken = True
        if not link.is_live:
            link.is_live = True
            self.raft.revive(peer)
            self._changed[peer] = None
        return link

    def greeted(self, link: Link) -> None:
        """The new session's table is here, or was awaited long enough: groups may know of it."""
        link.greet_until = None
        self._changed[link.peer] = None

    def _lose(self, link: Link) -> None:
        link.is_live = False
        if link.is_open:
            self.raft.suspect(link.peer)
        else:
            self.raft.close(link.peer)
            link.session = 0
            link.greet_until = None
        self._changed[link.peer] = None

    def _forget(self, link: Link) -> None:
        link.is_open = False
        self._lose(link)
        del self.by_peer[link.peer]

    def take_changed(self) -> list[Voter]:
        """Peers whose groups must be told of a change."""
        if not self._changed:
            return []
        changed, self._changed = list(self._changed), {}
        return changed

    def open_link(self, peer: Voter) -> Link | None:
        """The link to this peer if a frame can leave on it."""
        link = self.by_peer.get(peer)
        return link if link is not None and link.is_open else None

    # ---- leases

    def renew_lease(self, link: Link, echo: int) -> None:
        """The peer answered a heartbeat of ours, and follows us wherever we lead it."""
        if echo > self._resumed_at:
            link.lease_at = max(link.lease_at or echo, echo)

    def has_lease(self, voters: tuple[Voter, ...], led_at: int, now: int) -> bool:
        """Whether a majority can't have elected anybody else (SPEC §5).

        What it answered before we led, at `led_at`, was no word about this group.
        """
        return self.have_answered(voters, max(now - self.settings.lease_ms, led_at))

    def have_answered(self, voters: tuple[Voter, ...], since: int) -> bool:
        """Whether a majority, which is us if we are alone, answered heartbeats sent after `since`."""
        held = 0
        for voter in voters:
            link = self.by_peer.get(voter)
            at = None if link is None else link.lease_at
            held += voter == self.hello.me or (at is not None and at > since)
        return held > len(voters) // 2
