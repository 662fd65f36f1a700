"""From a connection to a session: who says what first, and which of two attempts wins.

Every broker dials every other that it knows and has no session with. The dialer opens two connections and
says HELLO on both; the acceptor answers WELCOME when it has both; the dialer says READY, and only
that begins the session, on both sides. So an attempt that was given up never takes a session's place.

Two brokers that dial each other at once: **the attempt of the lower node id wins.**

    lower   has said HELLO itself when the other's HELLO comes   refuses it (MINE_WINS)
            has not connected yet                                gives its own attempt up, WELCOME
    higher  an attempt of its own is under way                   gives that up, WELCOME

Neither side dials while an offer of the other is open, so there are never two that both go on. A peer
that has a session and offers another one has lost the first, or was started again: the new one takes its
place. What is not over in time is given up (`Waiting.deadline`), and each side dials again.

    Doorstep   accepted, has said nothing        -> Half | Visitor
    Half       has said HELLO on one connection  -> Offer
    Offer      WELCOME was said                  -> Session
    Dial       our own attempt                   -> Session
    Visitor    a stranger, asking
"""

import asyncio
import secrets
import socket
from typing import TYPE_CHECKING, Protocol

from dmq.broker.multiraft.codec import decode_hello, encode_hello
from dmq.broker.multiraft.frames import Hello
from dmq.broker.multiraft.links import PROTOCOL_MAX, PROTOCOL_MIN
from dmq.broker.peers import STRANGER, Address
from dmq.doors.peer import messages
from dmq.doors.peer.calls import Serving
from dmq.doors.peer.channel import CLOSED, Channel
from dmq.doors.peer.messages import Greeting, Kind, Role, Why
from dmq.doors.peer.sockets import NobodyThereError, connect
from dmq.errors import ProtocolError

if TYPE_CHECKING:
    from dmq.doors.peer.door import PeerDoor
    from dmq.doors.peer.peer import Peer


class Waiting(Protocol):
    """Something that must be over by its deadline (the loop's time)."""

    @property
    def deadline(self) -> float: ...

    def give_up(self, reason: str) -> None: ...


class Doorstep:
    """Somebody connected and has not said who it is."""

    __slots__ = ("_door", "channel", "deadline")

    def __init__(self, door: "PeerDoor", sock: socket.socket, address: str) -> None:
        self._door = door
        self.deadline = door.loop.time() + door.settings.connect_timeout_ms / 1000
        self.channel = Channel(door.loop, sock, address, door.shared, self)

    def received(self, channel: Channel, kind: Kind, body: memoryview) -> None:
        if kind is Kind.HELLO:
            greeting = messages.read_hello(body)
            hello = decode_hello(bytes(greeting.hello))
            self._door.forget(self)
            self._door.greeted(channel, greeting, hello)
        elif kind is Kind.KNOCK:
            low, high = messages.read_knock(body)
            self._door.forget(self)
            if low > PROTOCOL_MAX or high < PROTOCOL_MIN:
                self._door.knocked_in_vain(
                    channel,
                    f"the one that asks speaks peer protocol {low} to {high}, the one that answers "
                    f"{PROTOCOL_MIN} to {PROTOCOL_MAX}",
                )
            else:
                self._door.knocked(channel)
        else:
            raise ProtocolError(f"{kind.name} before HELLO")

    def ended(self, channel: Channel, reason: str) -> None:
        self._door.forget(self)
        if reason != CLOSED:  # Somebody who only looks whether we listen is no news.
            self._door.count("no peer")
            host = channel.address.rpartition(":")[0]
            self._door.complain(host, f"somebody at {host} {reason}")

    def give_up(self, reason: str) -> None:
        self.channel.close()
        self._door.forget(self)


class Half:
    """One connection of a pair: the other one is awaited."""

    __slots__ = ("_door", "channel", "deadline", "hello", "key", "role")

    def __init__(
        self, door: "PeerDoor", channel: Channel, greeting: Greeting, hello: Hello
    ) -> None:
        self._door = door
        self.channel = channel
        self.role = greeting.role
        self.hello = hello
        self.key = (hello.me, greeting.token)
        self.deadline = door.loop.time() + door.settings.connect_timeout_ms / 1000
        channel.owner = self

    def received(self, channel: Channel, kind: Kind, body: memoryview) -> None:
        raise ProtocolError(f"{kind.name} before WELCOME")

    def ended(self, channel: Channel, reason: str) -> None:
        self._door.forget_half(self)

    def give_up(self, reason: str) -> None:
        self.channel.close()
        self._door.forget_half(self)


class Offer:
    """A peer dialed us and was told WELCOME; its READY is awaited."""

    __slots__ = ("_door", "bulk", "control", "deadline", "hello", "peer")

    def __init__(
        self, door: "PeerDoor", peer: "Peer", hello: Hello, control: Channel, bulk: Channel
    ) -> None:
        self._door = door
        self.peer = peer
        self.hello = hello
        self.control, self.bulk = control, bulk
        self.deadline = door.loop.time() + door.settings.connect_timeout_ms / 1000
        for channel in (control, bulk):
            channel.owner = self
            channel.take_larger(messages.BYTES_MAX)  # What follows READY may come with it.
        bulk.pause()  # Its records may come before READY does.
        control.send(messages.message(Kind.WELCOME, encode_hello(door.hello)))

    def received(self, channel: Channel, kind: Kind, body: memoryview) -> None:
        if channel is not self.control or kind is not Kind.READY:
            raise ProtocolError(f"{kind.name} instead of READY")
        self._door.begin_session(self.peer, self.hello, self.control, self.bulk)

    def ended(self, channel: Channel, reason: str) -> None:
        self.give_up(reason)

    def give_up(self, reason: str) -> None:
        self.control.close()
        self.bulk.close()
        self.peer.offer_ended(self, reason)


class Dial:
    """An attempt of ours; ends in a session or in `Peer.dial_failed`, once."""

    __slots__ = ("_channels", "_door", "_is_over", "_task", "deadline", "has_spoken", "peer")

    def __init__(self, door: "PeerDoor", peer: "Peer", address: Address) -> None:
        self._door = door
        self.peer = peer
        self.has_spoken = False
        self._is_over = False
        self._channels: tuple[Channel, ...] = ()
        # Connecting and the greeting have their time each.
        self.deadline = door.loop.time() + 2 * door.settings.connect_timeout_ms / 1000
        self._task = door.loop.create_task(self._connect(address))
        self._task.add_done_callback(self._connected)

    async def _connect(self, address: Address) -> tuple[socket.socket, socket.socket]:
        async with asyncio.timeout(self._door.settings.connect_timeout_ms / 1000):
            control = await connect(address)
            try:
                return control, await connect(address)
            except BaseException:
                control.close()
                raise

    def _connected(self, task: "asyncio.Task[tuple[socket.socket, socket.socket]]") -> None:
        try:
            socks = task.result()
        except asyncio.CancelledError:
            return
        except NobodyThereError:
            self._fail("refuses connections", is_refused=True)
            return
        except TimeoutError:
            self._fail("does not answer")
            return
        except OSError as error:
            self._fail(f"can't be reached: {error}")
            return
        if self._is_over:
            for sock in socks:
                sock.close()
        else:
            self._speak(*socks)

    def _speak(self, control: socket.socket, bulk: socket.socket) -> None:
        door = self._door
        self.has_spoken = True
        token, said = secrets.token_bytes(16), encode_hello(door.hello)
        channels = []
        for role, sock in ((Role.CONTROL, control), (Role.BULK, bulk)):
            channel = Channel(door.loop, sock, self.peer.place, door.shared, self)
            channel.send(messages.hello(role, token, said))
            channels.append(channel)
        self._channels = tuple(channels)

    def received(self, channel: Channel, kind: Kind, body: memoryview) -> None:
        control, bulk = self._channels
        if kind is Kind.REFUSED:
            self._refused(*messages.read_refused(body))
        elif kind is Kind.WELCOME and channel is control:
            hello = decode_hello(bytes(body))
            if hello.me.node != self.peer.node:
                self._fail(f"is broker {hello.me.node}", is_lasting=True)
            elif (why := self._door.why_not(hello)) is not None:
                self._fail(why, is_lasting=True)
            else:
                self._is_over = True
                self._channels = ()  # They are the session's from here on.
                control.send(messages.message(Kind.READY))
                self._door.begin_session(self.peer, hello, control, bulk)
        else:
            raise ProtocolError(f"{kind.name} instead of WELCOME")

    def _refused(self, why: Why, text: str) -> None:
        if why is Why.MINE_WINS:
            self._close()
            self.peer.dial_lost(self)
        else:
            is_lasting, is_early = why is Why.NOT_WELCOME, why is Why.NOT_NOW
            self._fail(f"refuses us: {text}", is_lasting=is_lasting, is_early=is_early)

    def ended(self, channel: Channel, reason: str) -> None:
        if channel is self._channels[0]:  # Why, is said there; bulk may end a little earlier.
            self._fail(reason)

    def give_up(self, reason: str) -> None:
        self._fail(reason)

    def _fail(
        self,
        reason: str,
        *,
        is_refused: bool = False,
        is_lasting: bool = False,
        is_early: bool = False,
    ) -> None:
        if not self._is_over:
            self._close()
            self.peer.dial_failed(
                self, reason, is_refused=is_refused, is_lasting=is_lasting, is_early=is_early
            )

    def abandon(self) -> None:
        """Another attempt wins; nobody is told."""
        self._close()

    def _close(self) -> None:
        self._is_over = True
        self._task.cancel()
        for channel in self._channels:
            channel.close()


class Visitor:
    """A broker that does not belong yet; it may ask what is open to strangers."""

    __slots__ = ("_door", "_serving", "channel", "deadline")

    def __init__(self, door: "PeerDoor", channel: Channel) -> None:
        self._door = door
        self.channel = channel
        self._serving = Serving(door.verbs, STRANGER, channel.send)
        channel.owner = self
        channel.take_larger(messages.STRANGER_BYTES_MAX)
        self._stay()

    def _stay(self) -> None:
        self.deadline = self._door.loop.time() + self._door.settings.visit_ms / 1000

    def received(self, channel: Channel, kind: Kind, body: memoryview) -> None:
        if kind is not Kind.CALL:
            raise ProtocolError(f"{kind.name} from somebody who does not belong here")
        self._stay()
        self._serving.call(body)

    def ended(self, channel: Channel, reason: str) -> None:
        self._serving.close()
        self._door.forget(self)

    def give_up(self, reason: str) -> None:
        self.channel.close()
        self.ended(self.channel, reason)
