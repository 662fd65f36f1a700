"""Links between doors on real sockets: one session, whoever dials; its end, and the next one."""

import asyncio
import logging
import random
import socket
from uuid import UUID

import pytest
from embedded.eventually import until
from fakes.ports import closed_port
from unit.doors.peer.links import HOST, Corner, close, hello, linked, run, voter

from dmq.broker.multiraft.codec import encode, encode_hello
from dmq.broker.multiraft.frames import (
    NO_GROUPS,
    Frame,
    GroupKey,
    GroupMessage,
    Heartbeat,
    Hello,
    RangeReply,
)
from dmq.doors.peer import messages
from dmq.doors.peer import peer as peer_module
from dmq.doors.peer.door import PeerSettings
from dmq.doors.peer.messages import Kind, Role


def beat(number: int) -> Frame:
    return Frame(heartbeat=Heartbeat(number, -1, 0, NO_GROUPS, NO_GROUPS))


def records(size: int) -> Frame:
    key = GroupKey(UUID(int=7), 0)
    return Frame(messages=(GroupMessage(key, RangeReply(1, 0, 1), b"r" * size),))


def test_two_doors_that_know_each_other_have_one_session() -> None:
    async def test() -> None:
        one, two = Corner(1), Corner(2)
        one.open(two)
        two.open(one)
        await linked(one, two)
        for number in range(100):
            one.send(2, beat(number))
            two.send(1, records(100_000), is_bulk=True)
        await until(lambda: len(two.recorder.frames) == 100, "frames")
        await until(lambda: len(one.recorder.frames) == 100, "frames with records")
        assert [f.heartbeat.sent_at for _, f in two.recorder.frames if f.heartbeat] == [*range(100)]
        for _, frame in one.recorder.frames:
            assert bytes(frame.messages[0].cargo) == b"r" * 100_000
        assert one.door.counts["sessions"] == two.door.counts["sessions"] == 1
        close(one, two)

    run(test)


def test_only_one_of_them_needs_to_know_the_other() -> None:
    async def test() -> None:
        one, two = Corner(1), Corner(2)
        one.open()
        two.open(one)
        await linked(one, two)
        close(one, two)

    run(test)


def test_doors_that_dial_each_other_at_once_end_up_with_one_session() -> None:
    """Whatever the order in which their connections arrive, and without losing a session on the way."""

    async def test() -> None:
        rng = random.Random(5)
        patient = PeerSettings(connect_timeout_ms=60_000, backoff_ms=5, backoff_max_ms=50)
        met = 0
        for _ in range(60):
            corners = [Corner(node, patient) for node in rng.sample(range(1, 9), 4)]
            loop = asyncio.get_running_loop()
            for corner in corners:
                others = [other for other in corners if other is not corner]
                loop.call_later(rng.choice((0, 0, 0.0005, 0.001)), corner.open, *others)
            await linked(*corners)
            for corner in corners:
                assert corner.door.counts["sessions"] == 3
                assert "replaced" not in corner.door.counts
                assert all(event == "connected" for event, _ in corner.recorder.events)
                met += corner.door.counts.get("dialed each other", 0)
            for corner in corners:
                for other in corners:
                    if other is not corner:
                        corner.send(other.node, beat(corner.node))
            await until(lambda: all(len(c.recorder.frames) == 3 for c in corners), "frames")  # noqa: B023
            close(*corners)
        assert met > 20, "they did not meet often enough to show anything"

    run(test)


def test_a_link_that_breaks_is_back_at_once() -> None:
    async def test() -> None:
        # A second attempt would come after the test's end.
        lazy = PeerSettings(connect_timeout_ms=30_000, backoff_ms=600_000, backoff_max_ms=600_000)
        one, two = Corner(1, lazy), Corner(2, lazy)
        one.open(two)
        two.open(one)
        await linked(one, two)
        for number in range(5):
            session = one.door.session_with(2)
            assert session is not None
            session.began_at -= 10  # A good one, for its age.
            other = two.door.session_with(1)
            assert other is not None
            other.began_at -= 10
            session.bulk.close()
            session.ended(session.bulk, "was cut")
            await until(lambda: one.door.counts["sessions"] == number + 2, "linked again")  # noqa: B023
            await linked(one, two)
        assert one.recorder.count("closed", 2) == two.recorder.count("closed", 1) == 5
        close(one, two)

    run(test)


def test_a_peer_that_is_gone_is_told_as_refused_and_found_when_it_is_back() -> None:
    async def test() -> None:
        one, two = Corner(1), Corner(2)
        one.open(two)
        two.open(one)
        await linked(one, two)
        close(two)
        await until(lambda: one.recorder.count("refused", 2), "refused")
        assert one.recorder.events[:2] == [("connected", 2), ("closed", 2)]
        again = Corner(2, port=two.port, incarnation=2)
        again.open()  # It knows nobody: only being dialed helps it.
        await linked(one, again)
        close(one, again)

    run(test)


def test_a_peer_that_never_was_linked_is_not_told_as_refused() -> None:
    async def test() -> None:
        one = Corner(1)
        one.open()
        with closed_port(HOST) as port:
            one.door.know({2: (HOST, port)})
            peer = one.door.peer(2)
            await until(lambda: peer._failures >= 3, "attempts")
        assert one.recorder.events == []
        close(one)

    run(test)


def test_a_peer_at_another_address_is_found() -> None:
    async def test() -> None:
        one, two = Corner(1), Corner(2)
        one.open(two)
        two.open(one)
        await linked(one, two)
        close(two)
        moved = Corner(2, incarnation=2)
        moved.open(one)  # It dials itself: nobody must be told its new address first.
        await linked(one, moved)
        close(moved)
        await until(lambda: not one.recorder.sessions, "lost")
        third = Corner(2, incarnation=3)
        third.open()
        one.know(third)  # Or the metadata tell it.
        await linked(one, third)
        close(one, third)

    run(test)


def test_who_is_no_longer_known_is_left() -> None:
    async def test() -> None:
        one, two, three = Corner(1), Corner(2), Corner(3)
        one.open(two, three)
        two.open()
        three.open()
        await until(lambda: one.has_link(2, 3), "linked")
        one.know(two)
        await until(lambda: one.has_link(2) and three.has_link(), "left")
        close(one, two, three)

    run(test)


def test_a_newer_process_takes_the_place_of_a_session_that_seems_well() -> None:
    async def test() -> None:
        one, two = Corner(1), Corner(2)
        one.open()
        two.open(one)
        await linked(one, two)
        before = one.recorder.sessions[2]
        session = one.door.session_with(2)
        newer = Corner(2, incarnation=2)
        newer.open(one)
        await until(lambda: newer.has_link(1), "linked")
        await until(lambda: one.recorder.sessions.get(2, before) > before, "replaced")
        assert session is not None
        assert session.is_ended
        # And the older one, which dials again, is told to stay away.
        await until(lambda: one.door.counts.get("refused"), "refused")
        assert one.has_link(2)
        assert newer.has_link(1)
        close(one, two, newer)

    run(test)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"cluster_id": "elsewhere"}, "broker 2 is of cluster elsewhere, this is cluster"),
        ({"protocol_min": 2, "protocol_max": 3}, "broker 2 speaks peer protocol 2 to 3"),
        ({"me": voter(1, 5)}, "broker 1 has the id of this one"),
    ],
)
def test_who_does_not_belong_is_refused_with_one_line(
    other: dict[str, object], sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        one, two = Corner(1), Corner(2, **other)
        one.open()
        two.door.open_links(two.recorder)
        for _ in range(3):  # As if it had waited.
            two.door.know({1: (HOST, one.port)})
            count = one.door.counts.get("refused", 0)
            await until(lambda: one.door.counts.get("refused", 0) >= count + 2, "refused")  # noqa: B023
            await until(lambda: two.door.peer(1).dial is None, "told so")
            two.door.know({})
        assert not one.recorder.sessions
        assert not two.recorder.sessions
        close(one, two)

    with caplog.at_level(logging.WARNING, "dmq.door.peer"):
        run(test)
    lines = [line for line in caplog.messages if sentence in line and "refused 127" in line]
    assert len(lines) == 1, "though each connection comes from a port of its own"
    assert any("refuses us" in line for line in caplog.messages)


def test_an_old_address_that_is_ours_now_is_told_once_and_by_the_name_of_its_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a broker with an empty folder was given a new number: the old one is still looked for."""
    monkeypatch.setattr(peer_module, "LASTING_MS", 10)

    async def test() -> None:
        one = Corner(6)
        one.open()
        one.door.know({4: (HOST, one.port)})
        await until(lambda: one.door.counts.get("refused", 0) >= 6, "refused")
        close(one)

    with caplog.at_level(logging.WARNING, "dmq.door.peer"):
        run(test)
    (line,) = caplog.messages
    assert line.startswith("broker 4 at 127.0.0.1:")
    assert "that is the address of broker 6 now, and broker 6 is this one" in line


def test_the_node_may_refuse_too() -> None:
    async def test() -> None:
        one, two = Corner(1), Corner(2)
        one.recorder.refuses = True
        one.open()
        two.open(one)
        await until(lambda: two.recorder.count("closed", 1), "sent away")
        assert not one.recorder.sessions
        one.recorder.refuses = False
        await linked(one, two)
        close(one, two)

    run(test)


def test_a_broker_that_is_not_in_a_cluster_yet_links_later() -> None:
    async def test() -> None:
        one, two = Corner(1), Corner(2)
        two.open(one)
        await until(lambda: one.door.counts.get("refused"), "refused")
        one.open()
        await linked(one, two)
        close(one, two)

    run(test)


# ---- bytes that don't belong


class Rogue:
    """A socket that says what a test wants said."""

    def __init__(self, corner: Corner) -> None:
        self.sock = socket.create_connection((HOST, corner.port))
        self.sock.setblocking(False)

    async def say(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def hears_the_end(self) -> bytes:
        heard = b""
        while True:
            try:
                data = await asyncio.get_running_loop().sock_recv(self.sock, 65536)
            except ConnectionError:
                data = b""
            if not data:
                self.sock.close()
                return heard
            heard += data


def said_hello(role: Role, said: Hello, token: bytes = b"t" * 16) -> bytes:
    return messages.hello(role, token, encode_hello(said))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes(64),
        b"\xff" * 64,
        messages.message(Kind.FRAME, b"x"),
        messages.message(Kind.HELLO, b"short"),
        messages.message(Kind.HELLO, b"\x07" + bytes(16) + encode_hello(hello(2))),
        b"\x00\x00\x00\x02\x09\x01",
        b"\x00\x00\x00\x02\x01\xee",
        (1 << 20).to_bytes(4, "big") + b"\x01\x01",
        said_hello(Role.CONTROL, hello(2)) + messages.message(Kind.READY),
    ],
)
def test_garbage_is_hung_up_on_and_nobody_else_notices(data: bytes) -> None:
    async def test() -> None:
        one, two = Corner(1), Corner(3)
        one.open(two)
        two.open()
        await linked(one, two)
        rogue = Rogue(one)
        await rogue.say(data)
        await rogue.hears_the_end()
        one.send(3, beat(1))
        await until(lambda: two.recorder.frames, "still linked")
        assert one.recorder.events == [("connected", 3)]
        close(one, two)

    run(test)


async def rogue_session(one: Corner, node: int = 2) -> tuple[Rogue, Rogue]:
    control, bulk = Rogue(one), Rogue(one)
    await bulk.say(said_hello(Role.BULK, hello(node)))
    await control.say(said_hello(Role.CONTROL, hello(node)))
    await until(lambda: one.door.peer(node).offer, "an offer")
    await control.say(messages.message(Kind.READY))
    await until(lambda: one.has_link(node), "linked")
    return control, bulk


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 64,
        messages.message(Kind.FRAME, b"\xff" * 40),
        messages.message(Kind.FRAME, encode(beat(1)) + b"more"),
        messages.message(Kind.READY),
        messages.message(Kind.HELLO, bytes(17) + encode_hello(hello(2))),
        messages.message(Kind.CALL, b"?"),
        messages.message(Kind.CAST, b"\x0ashort"),
        messages.message(Kind.ANSWER, b"?"),
        messages.message(Kind.FAILED, b"?"),
        messages.message(Kind.REJECTED, b"?"),
    ],
)
def test_a_bad_message_ends_the_session_and_nothing_else(data: bytes) -> None:
    async def test() -> None:
        one, three = Corner(1), Corner(3)
        one.open(three)
        three.open()
        await linked(one, three)
        for which in (0, 1):
            rogues = await rogue_session_beside(one)
            await rogues[which].say(data)
            await rogues[0].hears_the_end()
            await rogues[1].hears_the_end()
            await until(lambda: one.has_link(3), "ended")
        assert one.recorder.count("closed", 2) == 2
        assert one.recorder.count("closed", 3) == 0
        close(one, three)

    run(test)


async def rogue_session_beside(one: Corner) -> tuple[Rogue, Rogue]:
    control, bulk = Rogue(one), Rogue(one)
    await control.say(said_hello(Role.CONTROL, hello(2)))
    await bulk.say(said_hello(Role.BULK, hello(2)))
    await until(lambda: one.door.peer(2).offer, "an offer")
    await control.say(messages.message(Kind.READY))
    await until(lambda: one.has_link(2, 3), "linked")
    return control, bulk


def test_whoever_says_nothing_is_shown_out() -> None:
    async def test() -> None:
        quick = PeerSettings(connect_timeout_ms=50, backoff_ms=5, backoff_max_ms=50)
        one = Corner(1, quick)
        one.open()
        silent, half = Rogue(one), Rogue(one)
        await half.say(said_hello(Role.BULK, hello(2)))
        await silent.hears_the_end()
        await half.hears_the_end()
        assert not one.recorder.events
        close(one)

    run(test)


def test_connections_that_say_nothing_are_bounded() -> None:
    async def test() -> None:
        one = Corner(1, PeerSettings(connect_timeout_ms=60_000))
        one.open()
        rogues: list[Rogue] = []
        while len(rogues) < 256:  # The system holds 128 for us between two looks.
            rogues.extend(Rogue(one) for _ in range(64))
            await until(lambda: len(one.door._waiting) == len(rogues), "all wait")
        await Rogue(one).hears_the_end()
        for rogue in rogues:
            rogue.sock.close()
        await until(lambda: not one.door._waiting, "all gone")
        two = Corner(2)
        two.open(one)
        await linked(one, two)
        close(one, two)

    run(test)


# ---- peers that are slow


def test_a_large_table_right_behind_the_greeting_is_taken() -> None:
    async def test() -> None:
        one = Corner(1)
        one.open()
        control, bulk = Rogue(one), Rogue(one)
        await bulk.say(said_hello(Role.BULK, hello(2)))
        await control.say(said_hello(Role.CONTROL, hello(2)))
        await until(lambda: one.door.peer(2).offer, "an offer")
        ready = messages.message(Kind.READY)
        await control.say(ready + messages.message(Kind.FRAME, encode(records(200_000))))
        await until(lambda: one.recorder.frames, "the frame")
        control.sock.close()
        bulk.sock.close()
        close(one)

    run(test)


def test_a_peer_that_reads_no_records_still_hears_and_is_left_in_the_end() -> None:
    async def test() -> None:
        settings = PeerSettings(backoff_ms=5, backoff_max_ms=50, silence_max_ms=3000)
        one = Corner(1, settings)
        one.open()
        control, bulk = await rogue_session(one)
        for _ in range(64):
            one.send(2, records(1_000_000), is_bulk=True)
        session = one.door.session_with(2)
        assert session is not None
        await until(lambda: session.bulk.sent_bytes, "begun")
        one.send(2, beat(77))
        wanted = messages.message(Kind.FRAME, encode(beat(77)))
        heard = b""
        loop = asyncio.get_running_loop()
        while wanted not in heard:
            data = await loop.sock_recv(control.sock, 65536)
            assert data, "it was left before it heard"
            heard += data
        assert session.bulk.unsent_bytes > 50_000_000, "nobody reads it"
        while not session.is_ended:  # It goes on to speak, and reads no records.
            await control.say(messages.message(Kind.FRAME, encode(beat(1))))
            await until(lambda: one.recorder.frames or session.is_ended, "heard")
            one.recorder.frames.clear()
        assert one.recorder.events == [("connected", 2), ("closed", 2)]
        control.sock.close()
        bulk.sock.close()
        close(one)

    run(test)


def test_more_than_memory_allows_ends_the_session_at_once() -> None:
    async def test() -> None:
        one = Corner(1)
        one.open()
        control, bulk = await rogue_session(one)
        frame = records(16_000_000)
        for _ in range(20):
            one.send(2, frame, is_bulk=True)
        session = one.door.session_with(2)
        assert session is not None
        assert session.bulk.unsent_bytes < 300_000_000
        await until(lambda: session.is_ended, "ended")
        control.sock.close()
        bulk.sock.close()
        close(one)

    run(test)


def test_a_silent_peer_is_left_and_dialed_again() -> None:
    async def test() -> None:
        one = Corner(1, PeerSettings(silence_max_ms=400, backoff_ms=5, backoff_max_ms=20))
        one.open()
        control, bulk = await rogue_session(one)
        await until(lambda: one.recorder.count("closed", 2), "left")
        await control.hears_the_end()
        await bulk.hears_the_end()
        close(one)

    run(test)


def test_our_own_pause_is_not_held_against_others() -> None:
    async def test() -> None:
        one = Corner(1, PeerSettings(silence_max_ms=1000))
        one.open()
        control, bulk = await rogue_session(one)
        session = one.door.session_with(2)
        assert session is not None
        now = asyncio.get_running_loop().time()
        session.control.heard_at = now - 60
        one.door._looked_at = now - 60  # As if we had been stopped for a minute.
        one.door._look()
        assert not session.is_ended
        assert session.control.heard_at >= now
        session.control.heard_at = now - 60
        one.door._look()
        assert session.is_ended
        control.sock.close()
        bulk.sock.close()
        close(one)

    run(test)


def test_backoff_grows_and_is_bounded() -> None:
    async def test() -> None:
        one = Corner(1, PeerSettings(backoff_ms=4, backoff_max_ms=64))
        one.open()
        delays: list[float] = []
        peer = one.door.peer(2)
        look_in = peer.__class__._look_in
        peer.__class__._look_in = lambda self, ms: (delays.append(ms), look_in(self, ms))[1]  # type: ignore[method-assign]
        try:
            with closed_port(HOST) as port:
                one.door.know({2: (HOST, port)})
                await until(lambda: len(delays) >= 8, "attempts")
        finally:
            peer.__class__._look_in = look_in  # type: ignore[method-assign]
        for number, delay in enumerate(delays):
            most = min(4 * 2**number, 64)
            assert most / 2 <= delay <= most
        close(one)

    run(test)


def test_names_are_looked_up() -> None:
    async def test() -> None:
        one, two = Corner(1), Corner(2)
        one.open()
        two.door.open_links(two.recorder)
        two.door.know({1: ("localhost", one.port)})
        await linked(one, two)
        names = ("no-such-host.invalid", "a..b", "null\0byte", "x" * 100, "", "::1")
        others = {3 + n: (name, 9) for n, name in enumerate(names)} | {20: (HOST, 70_000)}
        two.door.know({1: ("localhost", one.port)} | others)
        for node in others:
            peer = two.door.peer(node)
            await until(lambda: peer._failures, "no such address")  # noqa: B023
        assert two.has_link(1)
        close(one, two)

    run(test)
