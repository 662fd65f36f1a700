"""A session with one peer: two channels, the groups' frames, calls and casts.

    control   frames without records, casts (in order), calls and answers that are small
    bulk      frames with records, calls and answers that are large

So nothing small waits behind records. What can't be sent for too long, or would need too much memory,
ends the session: the peer does not read, and a new session begins from what it has. Either channel's end,
or a message that does not belong, ends both. A session that ended stays ended.
"""

import asyncio
import logging
from collections.abc import Callable

from dmq.broker.answer import Answer
from dmq.broker.multiraft import codec
from dmq.broker.multiraft.frames import Frame, Hello
from dmq.broker.peers import LinkEvents
from dmq.doors.peer import messages
from dmq.doors.peer.calls import Asking, Serving, Verbs
from dmq.doors.peer.channel import Channel
from dmq.doors.peer.messages import Kind
from dmq.errors import ProtocolError
from dmq.types import Voter

log = logging.getLogger("dmq.door.peer")

SMALL_BYTES = 32 * 1024
"""Calls and answers up to this size go beside the heartbeats; larger ones beside the records."""
CONTROL_UNSENT_BYTES_MAX = 64 * 1024 * 1024
"""A broker's whole table of leaderships has some megabytes. Beyond this the session ends."""
BULK_UNSENT_BYTES_MAX = 256 * 1024 * 1024
"""GroupNode has 8 MiB of records under way to a peer, or one batch that is larger; calls have
their own bound. Beyond this the session ends."""

OnEnd = Callable[["Session", str], None]


class Session:
    """See the module."""

    __slots__ = (
        "_asking",
        "_events",
        "_is_ending",
        "_loop",
        "_on_end",
        "_serving",
        "began_at",
        "bulk",
        "control",
        "hello",
        "is_ended",
        "number",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        number: int,
        hello: Hello,
        channels: tuple[Channel, Channel],
        events: LinkEvents,
        verbs: Verbs,
        on_end: OnEnd,
    ) -> None:
        self.number = number
        self.hello = hello
        self.control, self.bulk = channels
        self.began_at = loop.time()
        self.is_ended = False
        self._is_ending = False
        self._loop = loop
        self._events = events
        self._on_end = on_end
        self._asking = Asking(loop)
        self._serving = Serving(verbs, hello.me.node, self._send_sized)

    def __repr__(self) -> str:
        return f"<Session {self.number} with broker {self.peer.node}>"

    @property
    def peer(self) -> Voter:
        return self.hello.me

    def begin(self) -> None:
        """The node knows of it: let messages come."""
        for channel in (self.control, self.bulk):
            channel.owner = self
            channel.take_larger(messages.BYTES_MAX)
            channel.resume()

    # ---- out

    def send_frame(self, frame: Frame, *, is_bulk: bool) -> None:
        parts = codec.encode_parts(frame)
        size = sum(map(len, parts))
        channel = self.bulk if is_bulk else self.control
        bound = BULK_UNSENT_BYTES_MAX if is_bulk else CONTROL_UNSENT_BYTES_MAX
        if channel.unsent_bytes + size > bound and channel.unsent_bytes:
            self._end_soon(f"leaves {channel.unsent_bytes} bytes unread")
        if not self._is_ending:
            channel.send(messages.head(Kind.FRAME, size), *parts)

    def call(self, verb: str, body: bytes, timeout_ms: int) -> Answer[bytes]:
        return self._asking.ask(self._channel_for(len(body)), verb, body, timeout_ms)

    def cast(self, verb: str, body: bytes) -> None:
        if self.control.unsent_bytes > CONTROL_UNSENT_BYTES_MAX:
            self._end_soon(f"leaves {self.control.unsent_bytes} bytes unread")
        else:
            self.control.send(messages.cast(verb, body))

    def _send_sized(self, data: bytes) -> None:
        self._channel_for(len(data)).send(data)

    def _channel_for(self, size: int) -> Channel:
        return self.control if size <= SMALL_BYTES else self.bulk

    # ---- in

    def received(self, channel: Channel, kind: Kind, body: memoryview) -> None:
        if kind is Kind.FRAME:
            # The records in it stay where they were received: views of the message.
            frame = codec.decode(body)
            self._events.receive(self.peer, self.number, frame)
        elif kind is Kind.CALL:
            self._serving.call(body)
        elif kind is Kind.CAST:
            self._serving.cast(body)
        elif kind is Kind.ANSWER:
            self._asking.answered(body)
        elif kind is Kind.FAILED:
            self._asking.failed(body)
        elif kind is Kind.REJECTED:
            self._asking.rejected(body)
        else:
            raise ProtocolError(f"{kind.name} in the middle of a session")

    # ---- the end

    def look(self, now: float, silence_s: float) -> None:
        """End it if the peer says nothing or takes nothing for too long."""
        if now - self.control.heard_at > silence_s:
            self.end(f"said nothing for {silence_s:g} s")
            return
        for channel in (self.control, self.bulk):
            if channel.unsent_bytes and now - channel.progress_at > silence_s:
                self.end(f"read nothing for {silence_s:g} s")
                return

    def excuse(self, now: float) -> None:
        """We were stopped ourselves: what it did meanwhile lies in our sockets."""
        for channel in (self.control, self.bulk):
            channel.heard_at = channel.progress_at = now

    def ended(self, channel: Channel, reason: str) -> None:
        self.end(reason)

    def _end_soon(self, reason: str) -> None:
        """Not at once: whoever sends is in the middle of a turn."""
        if not self._is_ending:
            self._is_ending = True
            self._loop.call_soon(self.end, reason)

    def end(self, reason: str) -> None:
        if self.is_ended:
            return
        self.is_ended = self._is_ending = True
        self.control.close()
        self.bulk.close()
        self._serving.close()
        self._on_end(self, reason)
        self._asking.close(f"broker {self.peer.node} {reason}")
