"""Calls: those that we asked and wait for, those that we were asked and owe an answer.

A call is sent at most once. When its answer can no longer come, its `PeerError` says whether any byte of
it had left us. Both sides bound how many are under way: beyond that a call is refused before it does
anything. Casts are calls that nobody answers. Called by sessions and visitors.
"""

import asyncio
import logging
from collections.abc import Callable

from dmq.broker.answer import Answer
from dmq.broker.peers import STRANGER, Handler, PeerError
from dmq.doors.peer import messages
from dmq.doors.peer.channel import Channel
from dmq.errors import DmqError, ErrorCode, KafkaError

log = logging.getLogger("dmq.door.peer")

CALLS_MAX = 2048
"""Under way to one peer, or from it; one more is refused."""
CALL_BYTES_MAX = 64 * 1024 * 1024
"""Bodies of the calls under way to one peer; a call beyond it is refused, unless it is alone."""
VERB_BYTES_MAX = 255


class Verbs:
    """What we answer, and to whom."""

    __slots__ = ("_handlers", "_open")

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._open: dict[str, None] = {}

    def serve(self, verb: str, handler: Handler, *, is_open: bool) -> None:
        assert verb.isascii(), verb
        assert 0 < len(verb) <= VERB_BYTES_MAX, verb
        self._handlers[verb] = handler
        self._open.pop(verb, None)
        if is_open:
            self._open[verb] = None

    def find(self, verb: str, node: int) -> Handler | None:
        if node == STRANGER and verb not in self._open:
            return None
        return self._handlers.get(verb)


class Serving:
    """What one peer asked of us."""

    __slots__ = ("_is_closed", "_node", "_send", "_under_way", "_verbs")

    def __init__(self, verbs: Verbs, node: int, send: Callable[[bytes], None]) -> None:
        self._verbs = verbs
        self._node = node
        self._send = send
        self._under_way = 0
        self._is_closed = False

    @property
    def under_way(self) -> int:
        return self._under_way

    def call(self, body: memoryview) -> None:
        """Raises ProtocolError."""
        call = messages.read_call(body)
        handler = self._verbs.find(call.verb, self._node)
        if handler is None:
            self._send(messages.rejected(call.number, f"{call.verb} is not served"))
        elif self._under_way >= CALLS_MAX:
            self._send(messages.rejected(call.number, "too many calls are under way"))
        else:
            self._under_way += 1
            answer = self._handle(handler, call.verb, bytes(call.body))
            answer.on_done(lambda done: self._answered(call.number, done))

    def cast(self, body: memoryview) -> None:
        """Raises ProtocolError."""
        verb, rest = messages.read_cast(body)
        handler = self._verbs.find(verb, self._node)
        if handler is None:
            log.debug("broker %d cast %s, which is not served", self._node, verb)
        else:
            answer = self._handle(handler, verb, bytes(rest))
            answer.on_done(lambda done: self._note(verb, done))

    def _note(self, verb: str, done: Answer[bytes]) -> None:
        try:
            done.get()
        except DmqError as error:  # Nobody waits for it, but it should not be lost.
            log.warning("a cast of %s by broker %d failed: %s", verb, self._node, error)

    def _handle(self, handler: Handler, verb: str, body: bytes) -> Answer[bytes]:
        answer: Answer[bytes] = Answer()
        try:
            return handler(self._node, body)
        except AssertionError:
            raise  # A broken invariant: the runtime stops the process.
        except DmqError as error:
            answer.fail(error)
        except Exception:
            log.exception("the handler of %s failed", verb)
            answer.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{verb} met an internal error"))
        return answer

    def _answered(self, number: int, answer: Answer[bytes]) -> None:
        self._under_way -= 1
        if self._is_closed:
            return
        try:
            data = messages.answer(number, answer.get())
        except DmqError as error:
            data = messages.failed(number, error.code, str(error))
        self._send(data)

    def close(self) -> None:
        """Nobody waits for the answers any more."""
        self._is_closed = True


class _Waiting:
    """A call that was given to a channel."""

    __slots__ = ("answer", "channel", "size", "starts_at", "timer", "verb")

    def __init__(self, verb: str, size: int, channel: Channel) -> None:
        self.verb = verb
        self.size = size
        self.channel = channel
        self.starts_at = channel.queued_bytes
        self.answer: Answer[bytes] = Answer()
        self.timer: asyncio.TimerHandle | None = None

    @property
    def was_sent(self) -> bool:
        return self.channel.sent_bytes > self.starts_at


class Asking:
    """What we asked of one peer in one session."""

    __slots__ = ("_bytes", "_loop", "_next", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[int, _Waiting] = {}
        self._next = 0
        self._bytes = 0

    def ask(self, channel: Channel, verb: str, body: bytes, timeout_ms: int) -> Answer[bytes]:
        if len(self._waiting) >= CALLS_MAX or (
            self._waiting and self._bytes + len(body) > CALL_BYTES_MAX
        ):
            return failed_answer("too many calls are under way")
        self._next += 1
        number = self._next
        waiting = self._waiting[number] = _Waiting(verb, len(body), channel)
        self._bytes += len(body)
        channel.send(messages.call(number, timeout_ms, verb, body))
        waiting.timer = self._loop.call_later(timeout_ms / 1000, self._expire, number)
        return waiting.answer

    def _take(self, number: int) -> _Waiting | None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            self._bytes -= waiting.size
            if waiting.timer is not None:
                waiting.timer.cancel()
        return waiting

    def _expire(self, number: int) -> None:
        waiting = self._take(number)
        assert waiting is not None
        waiting.answer.fail(
            PeerError(f"{waiting.verb} was not answered in time", was_sent=waiting.was_sent)
        )

    def answered(self, body: memoryview) -> None:
        """Raises ProtocolError, as the others. An answer that comes too late is nobody's."""
        number, value = messages.read_answer(body)
        waiting = self._take(number)
        if waiting is not None:
            waiting.answer.resolve(value)

    def failed(self, body: memoryview) -> None:
        number, code, text = messages.read_failed(body)
        waiting = self._take(number)
        if waiting is not None:
            waiting.answer.fail(KafkaError(messages.code_of(code), text))

    def rejected(self, body: memoryview) -> None:
        number, text = messages.read_rejected(body)
        waiting = self._take(number)
        if waiting is not None:
            waiting.answer.fail(PeerError(text, was_sent=False))

    def close(self, reason: str) -> None:
        """The session ended: nothing will be answered any more."""
        for number in list(self._waiting):
            waiting = self._take(number)
            assert waiting is not None
            waiting.answer.fail(PeerError(f"{waiting.verb}: {reason}", was_sent=waiting.was_sent))


def failed_answer(reason: str) -> Answer[bytes]:
    """For a call that was never sent."""
    answer: Answer[bytes] = Answer()
    answer.fail(PeerError(reason, was_sent=False))
    return answer
