"""Calls and casts over real links: answered once, sent at most once, and honest about it."""

import asyncio
import random

import pytest
from embedded.eventually import until
from fakes.ports import closed_port
from unit.doors.peer.links import HOST, Corner, close, linked, run
from unit.doors.peer.test_links import rogue_session

from dmq.broker.answer import Answer
from dmq.broker.multiraft.links import PROTOCOL_MAX, PROTOCOL_MIN
from dmq.broker.peers import STRANGER, PeerError
from dmq.doors.peer import messages
from dmq.doors.peer.asking import ask
from dmq.doors.peer.calls import CALLS_MAX
from dmq.doors.peer.messages import Kind
from dmq.errors import ErrorCode, KafkaError, ProtocolError


async def pair() -> tuple[Corner, Corner]:
    one, two = Corner(1), Corner(2)
    one.open(two)
    two.open()
    await linked(one, two)
    return one, two


def error_of(answer: Answer[bytes]) -> PeerError:
    with pytest.raises(PeerError) as caught:
        answer.get()
    return caught.value


async def done(answer: Answer[bytes]) -> Answer[bytes]:
    await until(lambda: answer.is_done, "answered")
    return answer


def test_calls_are_answered_both_ways_whatever_their_size() -> None:
    async def test() -> None:
        one, two = await pair()
        for corner in (one, two):
            corner.door.serve("turn", lambda node, body: Answer.of(b"%d:" % node + body[::-1]))
        for body in (b"", b"abc", random.Random(1).randbytes(3_000_000)):
            answers = [one.door.call(2, "turn", body, 5000), two.door.call(1, "turn", body, 5000)]
            for node, answer in zip((1, 2), answers, strict=True):
                assert (await done(answer)).get() == b"%d:" % node + body[::-1]
        close(one, two)

    run(test)


def test_a_thousand_calls_find_their_answers_in_any_order() -> None:
    async def test() -> None:
        one, two = await pair()
        owed: list[tuple[bytes, Answer[bytes]]] = []

        def later(node: int, body: bytes) -> Answer[bytes]:
            owed.append((body, Answer()))
            return owed[-1][1]

        two.door.serve("later", later)
        asked = [one.door.call(2, "later", b"%d" % n, 10_000) for n in range(1000)]
        await until(lambda: len(owed) == 1000, "asked")
        random.Random(3).shuffle(owed)
        for body, answer in owed:
            answer.resolve(b"<" + body + b">")
        for number, answer in enumerate(asked):
            assert (await done(answer)).get() == b"<%d>" % number
        close(one, two)

    run(test)


def test_a_handlers_error_arrives_as_what_it_was() -> None:
    async def test() -> None:
        one, two = await pair()

        def refuse(node: int, body: bytes) -> Answer[bytes]:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "ask broker 3")

        def refuse_later(node: int, body: bytes) -> Answer[bytes]:
            answer: Answer[bytes] = Answer()
            asyncio.get_running_loop().call_soon(
                answer.fail, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "slow")
            )
            return answer

        two.door.serve("refuse", refuse)
        two.door.serve("refuse later", refuse_later)
        for verb, code, text in (
            ("refuse", ErrorCode.NOT_CONTROLLER, "ask broker 3"),
            ("refuse later", ErrorCode.REQUEST_TIMED_OUT, "slow"),
        ):
            answer = await done(one.door.call(2, verb, b"", 5000))
            with pytest.raises(KafkaError, match=text) as caught:
                answer.get()
            assert caught.value.code is code
        close(one, two)

    run(test)


def test_a_handlers_bug_is_an_error_and_the_link_stays(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        one, two = await pair()

        def bad(node: int, body: bytes) -> Answer[bytes]:
            raise ZeroDivisionError

        two.door.serve("bad", bad)
        answer = await done(one.door.call(2, "bad", b"", 5000))
        with pytest.raises(KafkaError, match="internal error"):
            answer.get()
        assert one.has_link(2)
        close(one, two)

    run(test)
    assert "the handler of bad failed" in caplog.text


def test_what_nobody_serves_was_definitely_not_done() -> None:
    async def test() -> None:
        one, two = await pair()
        answer = await done(one.door.call(2, "unheard of", b"", 5000))
        assert not error_of(answer).was_sent
        assert not error_of(one.door.call(7, "any", b"", 5000)).was_sent, "no link: at once"
        close(one, two)

    run(test)


def test_a_call_without_an_answer_times_out_and_may_have_been_done() -> None:
    async def test() -> None:
        one, two = await pair()
        owed: list[Answer[bytes]] = []

        def never(node: int, body: bytes) -> Answer[bytes]:
            owed.append(Answer())
            return owed[-1]

        two.door.serve("never", never)
        answer = await done(one.door.call(2, "never", b"", 30))
        assert error_of(answer).was_sent
        await until(lambda: owed, "asked")
        owed[0].resolve(b"too late")  # Nobody waits for it, and nothing breaks.
        two.door.serve("now", lambda node, body: Answer.of(b"now"))
        assert (await done(one.door.call(2, "now", b"", 5000))).get() == b"now"
        close(one, two)

    run(test)


def test_the_end_of_a_link_tells_what_was_sent_from_what_was_not() -> None:
    async def test() -> None:
        one = Corner(1)
        one.open()
        control, bulk = await rogue_session(one)
        sent = one.door.call(2, "first", b"", 60_000)
        session = one.door.session_with(2)
        assert session is not None
        await until(lambda: not session.control.unsent_bytes, "sent")
        large = [one.door.call(2, "large", bytes(20_000_000), 60_000) for _ in range(3)]
        await until(lambda: session.bulk.sent_bytes, "begun to be sent")
        assert not sent.is_done
        control.sock.close()
        await until(lambda: sent.is_done, "over")
        assert [error_of(answer).was_sent for answer in (sent, *large)] == [
            True,
            True,
            False,
            False,
        ]
        bulk.sock.close()
        close(one)

    run(test)


def test_calls_under_way_are_bounded_in_number_and_bytes() -> None:
    async def test() -> None:
        one = Corner(1)
        one.open()
        control, bulk = await rogue_session(one)
        large = one.door.call(2, "any", bytes(70_000_000), 60_000)
        assert not large.is_done, "one alone may be as large as it likes"
        assert not error_of(one.door.call(2, "any", b"x", 60_000)).was_sent
        session = one.door.session_with(2)
        assert session is not None
        session.end("starts again")
        control.sock.close()
        bulk.sock.close()
        control, bulk = await rogue_session(one)
        calls = [one.door.call(2, "any", b"", 60_000) for _ in range(CALLS_MAX)]
        assert not any(call.is_done for call in calls)
        assert not error_of(one.door.call(2, "any", b"", 60_000)).was_sent
        control.sock.close()
        bulk.sock.close()
        close(one)
        assert all(call.is_done for call in calls)

    run(test)


def test_a_peer_that_asks_too_much_is_told_so() -> None:
    async def test() -> None:
        one = Corner(1)
        one.open()
        one.door.serve("never", lambda node, body: Answer())
        control, bulk = await rogue_session(one)
        calls = b"".join(messages.call(n, 0, "never", b"") for n in range(CALLS_MAX + 1))
        await control.say(calls)
        loop = asyncio.get_running_loop()
        heard = b""
        while b"too many calls" not in heard:
            heard += await loop.sock_recv(control.sock, 65536)
        assert messages.rejected(CALLS_MAX, "too many calls are under way") in heard
        control.sock.close()
        bulk.sock.close()
        close(one)

    run(test)


def test_casts_arrive_in_order_or_not_at_all(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        one, two = await pair()
        heard: list[bytes] = []

        def hear(node: int, body: bytes) -> Answer[bytes]:
            heard.append(body)
            return Answer.of(b"")

        def refuse(node: int, body: bytes) -> Answer[bytes]:
            raise ProtocolError("no news")

        two.door.serve("news", hear)
        two.door.serve("old", refuse)
        rng = random.Random(9)
        said = [b"%d." % n + bytes(rng.choice((0, 10, 100_000))) for n in range(200)]
        for body in said:
            one.door.cast(2, "news", body)
        await until(lambda: len(heard) == len(said), "heard")
        assert heard == said
        one.door.cast(2, "nobody listens", b"")
        one.door.cast(2, "old", b"")
        one.door.cast(7, "news", b"there is no broker 7")
        one.door.cast(2, "news", b"last")
        await until(lambda: heard[-1] == b"last", "still heard")
        close(one, two)

    run(test)
    assert "a cast of old by broker 1 failed: no news" in caplog.text


def test_whoever_watches_hears_of_links() -> None:
    async def test() -> None:
        one, two = Corner(1), Corner(2)
        seen: list[tuple[int, bool]] = []
        one.door.watch(lambda node, is_linked: seen.append((node, is_linked)))
        one.open(two)
        two.open()
        await linked(one, two)
        close(two)
        await until(lambda: len(seen) == 2, "told")
        assert seen == [(2, True), (2, False)]
        close(one)

    run(test)


# ---- strangers


def test_a_stranger_may_ask_what_is_open_to_it_even_before_there_is_a_cluster() -> None:
    async def test() -> None:
        one = Corner(1)
        callers: list[int] = []

        def probe(node: int, body: bytes) -> Answer[bytes]:
            callers.append(node)
            return Answer.of(b"hello " + body)

        one.door.serve("probe", probe, is_open=True)
        one.door.serve("secret", lambda node, body: Answer.of(b"gold"))
        address = (HOST, one.port)
        assert await ask(address, "probe", b"you", 5000) == b"hello you"
        assert callers == [STRANGER]
        for verb in ("secret", "unheard of"):
            with pytest.raises(PeerError, match="is not served") as caught:
                await ask(address, verb, b"", 5000)
            assert not caught.value.was_sent
        await until(lambda: not one.door._waiting, "gone")
        close(one)

    run(test)


def test_a_strangers_call_fails_as_a_peers_does() -> None:
    async def test() -> None:
        one = Corner(1)

        def refuse(node: int, body: bytes) -> Answer[bytes]:
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, "elsewhere")

        one.door.serve("refuse", refuse, is_open=True)
        one.door.serve("never", lambda node, body: Answer(), is_open=True)
        address = (HOST, one.port)
        with pytest.raises(KafkaError, match="elsewhere"):
            await ask(address, "refuse", b"", 5000)
        with pytest.raises(PeerError, match="does not answer") as late:
            await ask(address, "never", b"", 1000)
        assert late.value.was_sent
        with closed_port(HOST) as port, pytest.raises(PeerError, match="reached") as nobody:
            await ask((HOST, port), "refuse", b"", 5000)
        assert not nobody.value.was_sent
        close(one)

    run(test)


@pytest.mark.parametrize(
    "data",
    [
        messages.knock(PROTOCOL_MIN, PROTOCOL_MAX) + messages.cast("probe", b""),
        messages.knock(PROTOCOL_MIN, PROTOCOL_MAX) + messages.message(Kind.FRAME, b""),
        messages.knock(PROTOCOL_MIN, PROTOCOL_MAX) + (2 << 20).to_bytes(4, "big"),
    ],
)
def test_a_stranger_may_do_nothing_else(data: bytes) -> None:
    async def test() -> None:
        one = Corner(1)
        one.door.serve("probe", lambda node, body: Answer.of(b""), is_open=True)
        reader, writer = await asyncio.open_connection(HOST, one.port)
        writer.write(data)
        assert await reader.read() == b""
        writer.close()
        close(one)

    run(test)
