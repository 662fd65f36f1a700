"""A call from outside: one question to a peer door, by a broker that does not belong to the cluster yet.

One connection per question, closed when it is answered. Called by joining.py, and by tools that look at a
cluster from outside.
"""

import asyncio

from dmq.broker.multiraft.links import PROTOCOL_MAX, PROTOCOL_MIN
from dmq.broker.peers import Address, PeerError
from dmq.doors.frames import SHARED_BYTES
from dmq.doors.peer import messages
from dmq.doors.peer.channel import Channel
from dmq.doors.peer.messages import BYTES_MAX, Kind
from dmq.doors.peer.sockets import connect
from dmq.errors import DmqError, ErrorCode, KafkaError, ProtocolError

_NUMBER = 1
"""Of the only question on its connection."""


class RefusedError(DmqError):
    """It does not talk to us: it is of another version, and somebody must look after it."""

    code = ErrorCode.UNSUPPORTED_VERSION


class _Question:
    """The owner of its channel, until there is an answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answer: asyncio.Future[bytes] = loop.create_future()

    def received(self, channel: Channel, kind: Kind, body: memoryview) -> None:
        if self.answer.done():
            raise ProtocolError("a second answer")
        if kind is Kind.ANSWER:
            self.answer.set_result(messages.read_answer(body)[1])
        elif kind is Kind.FAILED:
            _, code, text = messages.read_failed(body)
            self._fail(KafkaError(messages.code_of(code), text))
        elif kind is Kind.REJECTED:
            self._fail(PeerError(messages.read_rejected(body)[1], was_sent=False))
        elif kind is Kind.REFUSED:
            text = messages.read_refused(body)[1]
            self._fail(RefusedError(f"{channel.address} refuses this broker: {text}"))
        else:
            raise ProtocolError(f"{kind.name} instead of an answer")

    def ended(self, channel: Channel, reason: str) -> None:
        self._fail(PeerError(f"{channel.address} {reason}", was_sent=True))

    def _fail(self, error: DmqError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


async def ask(address: Address, verb: str, body: bytes, timeout_ms: int) -> bytes:
    """The answer. Raises PeerError, RefusedError, or the KafkaError that the handler gave."""
    place = f"{address[0]}:{address[1]}"
    loop = asyncio.get_running_loop()
    was_sent = False
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            sock = await connect(address)
            question = _Question(loop)
            channel = Channel(loop, sock, place, memoryview(bytearray(SHARED_BYTES)), question)
            channel.take_larger(BYTES_MAX)
            try:
                was_sent = True
                channel.send(
                    messages.knock(PROTOCOL_MIN, PROTOCOL_MAX),
                    messages.call(_NUMBER, timeout_ms, verb, body),
                )
                return await question.answer
            finally:
                channel.close()
    except TimeoutError as error:
        raise PeerError(f"{place} does not answer", was_sent=was_sent) from error
    except OSError as error:
        raise PeerError(f"{place} can't be reached: {error}", was_sent=was_sent) from error
