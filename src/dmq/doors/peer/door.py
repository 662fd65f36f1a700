"""PeerDoor: listens for other brokers, dials them, and is `Peers` to the broker behind it.

    door = PeerDoor(settings, dice)
    door.serve(...)                     verbs; those that are open work from `listen` on
    door.listen(host, port)             strangers may ask; links are refused for now
    door.open_links(events)             this broker belongs to a cluster: link with those we `know`

Owns the listening socket, the peers by id, and the rule who belongs: the same cluster, a common version
of the peer protocol, another node id, no older process of the same directory.
Runs on the loop that made it; nothing here blocks.
"""

import asyncio
import logging
import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Self

from dmq.broker.answer import Answer
from dmq.broker.multiraft.frames import Hello, Outgoing
from dmq.broker.peers import Address, Handler, LinkEvents, LinkWatcher
from dmq.config.broker import BrokerConfig
from dmq.doors.frames import SHARED_BYTES
from dmq.doors.peer import messages
from dmq.doors.peer.calls import Verbs, failed_answer
from dmq.doors.peer.channel import Channel
from dmq.doors.peer.handshake import Doorstep, Half, Offer, Visitor, Waiting
from dmq.doors.peer.messages import Greeting, Role, Why
from dmq.doors.peer.peer import Peer
from dmq.doors.peer.session import Session
from dmq.doors.peer.sockets import Listening
from dmq.errors import ProtocolError
from dmq.types import Voter

log = logging.getLogger("dmq.door.peer")

LOOK_S = 0.25
"""Between looks at what takes too long."""
PAUSED_S = 0.5
"""A look that comes so much too late says that we were stopped, not the others."""
WAITING_MAX = 256
"""Connections that have not become a session; one more is closed."""
COMPLAINTS_MAX = 1000
"""Remembered, so that each is told once."""


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """The times of connections between brokers, in ms; see the settings `peer.*`."""

    connect_timeout_ms: int = 1000
    backoff_ms: int = 20
    backoff_max_ms: int = 500
    silence_max_ms: int = 3000
    visit_ms: int = 30_000
    """A stranger that asks nothing for so long is shown out."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Self:
        return cls(
            connect_timeout_ms=config.peer_connect_timeout_ms,
            backoff_ms=config.peer_reconnect_backoff_ms,
            backoff_max_ms=config.peer_reconnect_backoff_max_ms,
            silence_max_ms=config.peer_silence_max_ms,
        )


class PeerDoor:
    """See the module."""

    def __init__(
        self, settings: PeerSettings | None = None, dice: random.Random | None = None
    ) -> None:
        self.settings = settings or PeerSettings()
        self.dice = dice or random.Random()  # noqa: S311  Jitter is no secret.
        self.loop = asyncio.get_running_loop()
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.verbs = Verbs()
        self.counts: dict[str, int] = {}
        """How often rare things happened, for people and for tests."""
        self._events: LinkEvents | None = None
        self._listening: Listening | None = None
        self._peers: dict[int, Peer] = {}
        self._waiting: dict[Waiting, None] = {}
        self._halves: dict[tuple[Voter, bytes], Half] = {}
        self._watchers: list[LinkWatcher] = []
        self._numbers = count(1)
        self._complaints: dict[str, str] = {}
        self._is_closed = False
        self._looked_at = self.loop.time()
        self._look_timer = self.loop.call_later(LOOK_S, self._look)

    # ---- Peers

    def serve(self, verb: str, handler: Handler, *, is_open: bool = False) -> None:
        self.verbs.serve(verb, handler, is_open=is_open)

    def know(self, addresses: Mapping[int, Address]) -> None:
        for node, address in addresses.items():
            self.peer(node).move(address)
        for node, peer in list(self._peers.items()):
            if node not in addresses:
                peer.move(None)
                self._drop_if_forgotten(peer)

    def call(self, node: int, verb: str, body: bytes, timeout_ms: int) -> Answer[bytes]:
        session = self.session_with(node)
        if session is None:
            return failed_answer(f"there is no link with broker {node}")
        return session.call(verb, body, timeout_ms)

    def cast(self, node: int, verb: str, body: bytes) -> None:
        session = self.session_with(node)
        if session is not None:
            session.cast(verb, body)

    def send(self, frames: list[Outgoing]) -> None:
        for to, number, is_bulk, frame in frames:
            session = self.session_with(to.node)
            if session is not None and session.number == number:
                session.send_frame(frame, is_bulk=is_bulk)

    def watch(self, watcher: LinkWatcher) -> None:
        self._watchers.append(watcher)

    def linked(self) -> list[int]:
        return [node for node, peer in self._peers.items() if peer.session is not None]

    def close(self) -> None:
        """End everything; the node is told of the sessions' ends."""
        self._is_closed = True
        self._look_timer.cancel()
        self.stop_listening()
        for waiting in [*self._waiting, *self._halves.values()]:
            waiting.give_up("")
        for peer in list(self._peers.values()):
            peer.close()
            if peer.session is not None:
                peer.session.end("was left, as we stop")

    # ---- the beginning

    def listen(self, host: str, port: int) -> int:
        """The port that it became. Raises OSError."""
        self._listening = Listening(
            self.loop, (host, port), self._admit, lambda text: self.complain("", text)
        )
        return self._listening.port

    def stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def open_links(self, events: LinkEvents) -> None:
        """From here on there are sessions."""
        assert self._events is None
        self._events = events
        for peer in self._peers.values():
            peer.look()

    @property
    def events(self) -> LinkEvents:
        assert self._events is not None
        return self._events

    @property
    def hello(self) -> Hello:
        return self.events.hello

    @property
    def may_dial(self) -> bool:
        return self._events is not None and not self._is_closed

    def peer(self, node: int) -> Peer:
        found = self._peers.get(node)
        if found is None:
            found = self._peers[node] = Peer(self, node)
        return found

    def session_with(self, node: int) -> Session | None:
        peer = self._peers.get(node)
        return None if peer is None else peer.session

    def _drop_if_forgotten(self, peer: Peer) -> None:
        if peer.is_forgotten:
            peer.close()
            self._peers.pop(peer.node, None)

    # ---- being dialed

    def _admit(self, sock: socket.socket, address: str) -> None:
        if len(self._waiting) + len(self._halves) >= WAITING_MAX:
            self.complain("", "too many connections that don't say who they are")
            sock.close()
            return
        self._waiting[Doorstep(self, sock, address)] = None

    def forget(self, waiting: Waiting) -> None:
        self._waiting.pop(waiting, None)

    def forget_half(self, half: Half) -> None:
        if self._halves.get(half.key) is half:
            del self._halves[half.key]

    def knocked(self, channel: Channel) -> None:
        self._waiting[Visitor(self, channel)] = None

    def knocked_in_vain(self, channel: Channel, why: str) -> None:
        self.count("refused")
        host = channel.address.rpartition(":")[0]
        self.complain(host, f"refused {host}: {why}")
        channel.say_last(messages.refused(Why.NOT_WELCOME, why))

    def greeted(self, channel: Channel, greeting: Greeting, hello: Hello) -> None:
        """One connection said HELLO; with its twin it is an offer."""
        why = self.why_not(hello)
        if why is not None:
            self.count("refused")
            kind = Why.NOT_NOW if self._events is None else Why.NOT_WELCOME
            if kind is Why.NOT_WELCOME:
                self._tell_refused(channel.address.rpartition(":")[0], hello, why)
            channel.say_last(messages.refused(kind, why))
            return
        half = Half(self, channel, greeting, hello)
        twin = self._halves.get(half.key)
        if twin is None or twin.role is half.role:
            self._halves[half.key] = half
            return
        del self._halves[half.key]
        control, bulk = (half, twin) if half.role is Role.CONTROL else (twin, half)
        self._offered(hello, control.channel, bulk.channel)

    def _tell_refused(self, host: str, hello: Hello, why: str) -> None:
        """Without its port, which is another one each time. What we hear from ourselves is told by
        whoever dialed, with the broker that it looked for."""
        if hello.me != self.hello.me:
            self.complain(f"broker {hello.me.node}", f"refused {host}: {why}")

    def _offered(self, hello: Hello, control: Channel, bulk: Channel) -> None:
        peer = self.peer(hello.me.node)
        dial = peer.dial
        if dial is not None:
            self.count("dialed each other")
            if dial.has_spoken and self.hello.me.node < peer.node:
                bulk.close()
                control.say_last(messages.refused(Why.MINE_WINS, "we dialed you"))
                return
        peer.offered(Offer(self, peer, hello, control, bulk))

    def why_not(self, hello: Hello) -> str | None:
        """Why there may be no session with this broker."""
        if self._events is None or self._is_closed:
            return "this broker is not in a cluster yet" if not self._is_closed else "it stops"
        ours, node = self.hello, hello.me.node
        if hello.cluster_id != ours.cluster_id:
            return f"broker {node} is of cluster {hello.cluster_id}, this is {ours.cluster_id}"
        if hello.protocol_min > ours.protocol_max or hello.protocol_max < ours.protocol_min:
            return (
                f"broker {node} speaks peer protocol {hello.protocol_min} to {hello.protocol_max}, "
                f"this one {ours.protocol_min} to {ours.protocol_max}"
            )
        if hello.me == ours.me:
            return f"that is the address of broker {node} now, and broker {node} is this one"
        if node == ours.me.node:
            return f"broker {node} has the id of this one: two processes were given one number"
        session = self.session_with(node)
        known = session.hello if session is not None else hello
        if known.me == hello.me and hello.incarnation < known.incarnation:
            return f"broker {node} was started again since"
        return None

    # ---- sessions

    def begin_session(self, peer: Peer, hello: Hello, control: Channel, bulk: Channel) -> None:
        """Both sides agree. A session that was there before is over."""
        before = peer.session
        if before is not None:
            self.count("replaced")
            before.end("began another session")
        session = Session(
            self.loop,
            next(self._numbers),
            hello,
            (control, bulk),
            self.events,
            self.verbs,
            self._session_ended,
        )
        peer.begun(session)
        try:
            self.events.connected(hello, session.number)
        except ProtocolError as error:
            session.end(f"does not belong here: {error}")
            return
        log.info("linked with broker %d at %s", peer.node, control.address)
        self.count("sessions")
        for watcher in self._watchers:
            watcher(peer.node, True)
        session.begin()

    def _session_ended(self, session: Session, reason: str) -> None:
        peer = self._peers[session.peer.node]
        if not self._is_closed:
            peer.tell(f"lost the link with broker {peer.node}: it {reason}")
        self.events.closed(session.peer, session.number)
        peer.lost(session)
        for watcher in self._watchers:
            watcher(peer.node, False)
        self._drop_if_forgotten(peer)

    # ---- time

    def _look(self) -> None:
        now = self.loop.time()
        was_paused = now - self._looked_at > LOOK_S + PAUSED_S
        self._looked_at = now
        silence_s = self.settings.silence_max_ms / 1000
        for peer in list(self._peers.values()):
            if peer.session is not None:
                if was_paused:
                    peer.session.excuse(now)
                peer.session.look(now, silence_s)
            for attempt in (peer.dial, peer.offer):
                if attempt is not None and attempt.deadline < now:
                    attempt.give_up("took too long")
            self._drop_if_forgotten(peer)
        for waiting in [*self._waiting, *self._halves.values()]:
            if waiting.deadline < now:
                waiting.give_up("took too long")
        self._look_timer = self.loop.call_later(LOOK_S, self._look)

    # ---- for people

    def complain(self, about: str, text: str) -> None:
        """Log it, once until it changes."""
        if self._complaints.get(about) != text:
            if len(self._complaints) >= COMPLAINTS_MAX:
                self._complaints.clear()
            self._complaints[about] = text
            log.warning("%s", text)

    def count(self, event: str) -> None:
        self.counts[event] = self.counts.get(event, 0) + 1
