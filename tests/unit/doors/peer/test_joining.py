"""A newcomer's way into a cluster, over real sockets, with the real cluster machine behind members."""

import asyncio
import logging
import random
import socket
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from embedded.eventually import until
from fakes.ports import closed_port
from unit.doors.peer.links import HOST, Corner, close, run
from unit.machines.cluster_of import SUPPORTED_FEATURES, new_machine

from dmq.broker.answer import Answer
from dmq.broker.multiraft.links import PROTOCOL_MAX, PROTOCOL_MIN
from dmq.broker.peers import Address
from dmq.config.broker import BrokerConfig
from dmq.doors.peer import asking, joining
from dmq.doors.peer.admission import Admission
from dmq.doors.peer.entry import (
    Admitted,
    Postponed,
    Probed,
    Redirected,
    decode_join,
    decode_probed,
    decode_reply,
    encode_join,
    encode_probed,
    encode_reply,
)
from dmq.doors.peer.joining import (
    NO_NUMBER,
    Found,
    Founded,
    Join,
    Joined,
    JoinError,
    Newcomer,
    Pace,
    Search,
    Wait,
    check_cluster,
    find_place,
    judge,
    wished_node_id,
)
from dmq.errors import ErrorCode, KafkaError, ProtocolError
from dmq.machines.codec import decode_command, decode_result, encode_command, encode_result
from dmq.machines.commands import FormCluster, RegisterBroker, Registered
from dmq.testing.networks import free_port
from dmq.types import Millis, Voter

QUICK = Pace(ask_ms=500, register_ms=2000, pause_ms=5, pause_max_ms=20)
PEERS: dict[int, Address] = {1: ("a", 1), 2: ("b", 2), 3: ("c", 3)}


class Ministry:
    """The cluster's metadata: one machine, whoever leads it."""

    def __init__(self, cluster_id: str = "the cluster") -> None:
        self.machine = new_machine()
        self.machine_does(FormCluster(cluster_id, {"dmq.version": 1}))
        self.cluster_id = cluster_id
        self.leader: int | None = None
        self.at: dict[int, Address] = {}
        self.voters: tuple[Voter, ...] = ()
        self.registrations = 0

    def machine_does(self, command: Any) -> Any:
        outcome = self.machine.handle(command, Millis(0))
        for record in outcome.records:
            self.machine.apply(record)
        return outcome.response


class Official:
    """A member, as its admission sees it."""

    def __init__(self, ministry: Ministry, node_id: int) -> None:
        self.ministry = ministry
        self.node_id = node_id
        self.cluster_id = ministry.cluster_id

    def metadata_leader(self) -> int | None:
        return self.ministry.leader

    def metadata_voters(self) -> tuple[Voter, ...]:
        return self.ministry.voters

    def addresses(self) -> dict[int, Address]:
        return self.ministry.at

    def register(self, command: bytes) -> Answer[bytes]:
        decoded = decode_command(command)
        assert isinstance(decoded, RegisterBroker)
        self.ministry.registrations += 1
        try:
            return Answer.of(encode_result(self.ministry.machine_does(decoded)))
        except KafkaError as error:
            return Answer.of(encode_result(error))


class Person:
    """A broker: a door, a directory that is empty or not, and what it does about it."""

    def __init__(self, node_id: int, peers: Iterable[int] = (), directory: int = 0) -> None:
        self.node_id = node_id
        self.directory = UUID(int=directory or 100 + node_id)
        self.corner = Corner(max(node_id, 0))
        self.admission = Admission(self.directory, node_id=node_id, peers=peers)
        self.admission.open(self.corner.door)

    @property
    def address(self) -> Address:
        return (HOST, self.corner.port)

    def newcomer(self, **details: Any) -> Newcomer:
        def command() -> bytes:
            known = {"incarnation": UUID(int=9), "features": SUPPORTED_FEATURES} | details
            return encode_command(RegisterBroker(self.node_id, self.directory, **known))

        def result(data: bytes) -> tuple[int, int]:
            registered = decode_result(data)
            assert isinstance(registered, Registered)
            return registered.node, registered.epoch

        return Newcomer(self.node_id, self.directory, command, result, lambda: "new")

    def belongs(self, ministry: Ministry, node_id: int | None = None) -> None:
        """Take part from here on."""
        if node_id is not None:
            self.node_id = self.admission.node_id = node_id
        self.admission.cluster_id = ministry.cluster_id
        self.admission.member = Official(ministry, self.node_id)
        ministry.at[self.node_id] = self.address

    def search(self, **details: Any) -> Search:
        return Search(self.newcomer(**details), QUICK)


def leave(*people: Person) -> None:
    close(*(person.corner for person in people))


def cluster_of(count: int) -> tuple[Ministry, list[Person]]:
    ministry = Ministry()
    people = [Person(number, range(1, count + 1)) for number in range(1, count + 1)]
    for person in people:
        ministry.machine_does(decode_command(person.newcomer().command()))
        person.belongs(ministry)
    ministry.leader = 1
    ministry.voters = tuple(Voter(p.node_id, p.directory) for p in people)
    return ministry, people


# ---- joining


def test_a_newcomer_follows_to_the_metadata_leader_and_gets_a_number() -> None:
    async def test() -> None:
        ministry, people = cluster_of(3)
        ministry.leader = 3
        new = Person(NO_NUMBER, directory=77)
        joined = await new.search().join((people[0].address,))
        assert isinstance(joined, Joined)
        assert (joined.cluster_id, joined.node_id) == ("the cluster", 4)
        assert joined.broker_epoch == ministry.machine.state.brokers[4].epoch
        assert joined.metadata_voters == ministry.voters
        assert joined.addresses == {p.node_id: p.address for p in people}
        # Its answer was lost, say: it asks again and is who it was.
        again = await new.search().join((people[1].address,))
        assert (again.node_id, len(ministry.machine.state.brokers)) == (4, 4)
        leave(new, *people)

    run(test)


def test_it_asks_until_somebody_can_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        ministry, people = cluster_of(2)
        ministry.leader = None
        people[1].admission.member = None
        new = Person(NO_NUMBER, directory=77)
        addresses = ((HOST, nobody), people[1].address, people[0].address)
        task = asyncio.create_task(new.search().join(addresses))
        await until(lambda: "does not take part" in caplog.text, "it waits")
        line = next(line for line in caplog.messages if "does not take part" in line)
        for reason in ("can't be reached", "no metadata leader"):
            assert reason in line, "one line says all"
        assert not task.done()
        people[1].admission.member = Official(ministry, 2)
        ministry.leader = 2
        joined = await task
        assert joined.node_id == 3
        leave(new, *people)

    with closed_port(HOST) as nobody, caplog.at_level(logging.INFO, "dmq.broker"):
        run(test)
    told = [r for r in caplog.records if "waiting for a cluster" in r.message]
    assert len(told) == len({r.message for r in told}), "each reason once"
    assert {r.levelname for r in told} == {"WARNING"}


def test_leaders_that_each_name_another_one_are_not_followed_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        ministry, people = cluster_of(2)
        other = Ministry()
        other.at, other.leader = ministry.at, 1
        ministry.leader = 2
        people[1].admission.member = Official(other, 2)
        new = Person(NO_NUMBER, directory=77)
        task = asyncio.create_task(new.search().join((people[0].address,)))
        await until(lambda: "names another" in caplog.text, "it noticed")
        people[1].admission.member = Official(ministry, 2)
        assert (await task).node_id == 3
        leave(new, *people)

    with caplog.at_level(logging.INFO, "dmq.broker"):
        run(test)


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"cluster_id": "another"}, "cluster"),
        ({"features": {}}, "feature|version"),
    ],
)
def test_who_does_not_belong_is_told_why_and_stops(details: dict[str, Any], reason: str) -> None:
    async def test() -> None:
        _, people = cluster_of(1)
        new = Person(NO_NUMBER, directory=77)
        with pytest.raises(JoinError, match=reason):
            await new.search(**details).join((people[0].address,))
        leave(new, *people)

    run(test)


def test_a_refusal_that_passes_is_asked_again() -> None:
    async def test() -> None:
        ministry, people = cluster_of(1)
        codes = [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT]

        class Hesitant(Official):
            def register(self, command: bytes) -> Answer[bytes]:
                if codes:
                    raise KafkaError(codes.pop())
                return super().register(command)

        people[0].admission.member = Hesitant(ministry, 1)
        new = Person(NO_NUMBER, directory=77)
        assert (await new.search().join((people[0].address,))).node_id == 2
        assert codes == []
        leave(new, *people)

    run(test)


def test_a_port_that_speaks_something_else_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(http, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        new = Person(NO_NUMBER, directory=77)
        task = asyncio.create_task(new.search().join(((HOST, port),)))
        await until(lambda: "broke the protocol" in caplog.text, "it noticed")
        task.cancel()
        server.close()
        leave(new)

    with caplog.at_level(logging.INFO, "dmq.broker"):
        run(test)


def test_who_speaks_another_peer_protocol_is_told_so_and_stops(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sentence = (
        "the one that asks speaks peer protocol 7 to 9, the one that answers "
        f"{PROTOCOL_MIN} to {PROTOCOL_MAX}"
    )

    async def test() -> None:
        _, people = cluster_of(2)
        new = Person(NO_NUMBER, directory=77)
        monkeypatch.setattr(asking, "PROTOCOL_MIN", 7)
        monkeypatch.setattr(asking, "PROTOCOL_MAX", 9)
        with pytest.raises(JoinError, match=sentence):
            await asyncio.wait_for(new.search().join((people[0].address,)), 5)
        wiped = Person(3, directory=78)
        peers = {1: people[0].address, 2: people[1].address, 3: wiped.address}
        with pytest.raises(JoinError, match=sentence):
            await asyncio.wait_for(wiped.search().assemble(peers), 5)
        assert people[0].corner.door.counts["refused"]
        leave(new, wiped, *people)

    with caplog.at_level(logging.WARNING, "dmq.door.peer"):
        run(test)
    assert any("refused 127.0.0.1" in line and sentence in line for line in caplog.messages)


def test_a_broker_that_is_too_old_does_not_keep_others_from_being_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the midst of an upgrade: whoever can answer is asked first."""

    async def test() -> None:
        _, people = cluster_of(1)
        new = Person(NO_NUMBER, directory=77)
        real = joining.ask
        stranger = (HOST, 1)

        async def ask(address: Address, verb: str, body: bytes, timeout_ms: int) -> bytes:
            if address == stranger:
                raise asking.RefusedError("it speaks another")
            return await real(address, verb, body, timeout_ms)

        monkeypatch.setattr(joining, "ask", ask)
        assert (await new.search().join((stranger, people[0].address))).node_id == 2
        leave(new, *people)

    run(test)


# ---- a fixed set of peers


async def assemble(people: dict[int, Person]) -> dict[int, "asyncio.Task[Founded | Joined]"]:
    peers = {node: person.address for node, person in people.items()}
    return {
        node: asyncio.create_task(person.search().assemble(peers))
        for node, person in people.items()
        if person.admission.cluster_id is None
    }


def test_a_set_that_is_started_at_once_forms_one_cluster() -> None:
    async def test() -> None:
        rng = random.Random(4)
        for _ in range(10):
            ids = sorted(rng.sample(range(1, 20), rng.choice((1, 3, 5))))
            people = {node: Person(node, ids) for node in ids}
            peers = {node: person.address for node, person in people.items()}
            loop = asyncio.get_running_loop()
            tasks: dict[int, asyncio.Task[Founded | Joined]] = {}

            def begin(node: int) -> None:
                search = people[node].search()  # noqa: B023
                tasks[node] = asyncio.create_task(search.assemble(peers))  # noqa: B023

            for node in ids:
                loop.call_later(rng.random() / 50, begin, node)
            first = ids[0]
            await until(lambda: first in tasks and tasks[first].done(), "founded")  # noqa: B023
            assert tasks[first].result() == Founded("new", first)
            assert not any(task.done() for node, task in tasks.items() if node != first)
            ministry = Ministry("new")
            ministry.machine_does(decode_command(people[first].newcomer().command()))
            people[first].belongs(ministry)
            ministry.leader = first
            await until(lambda: len(tasks) == len(ids), "all began")  # noqa: B023
            for node in ids[1:]:
                joined = await tasks[node]
                assert isinstance(joined, Joined)
                assert (joined.cluster_id, joined.node_id) == ("new", node)
            leave(*people.values())

    run(test)


def test_a_wiped_lowest_id_joins_those_who_remember() -> None:
    async def test() -> None:
        ministry, members = cluster_of(3)
        ministry.leader = 2
        leave(members[0])
        wiped = Person(1, (1, 2, 3), directory=999)
        people = {1: wiped, 2: members[1], 3: members[2]}
        joined = await (await assemble(people))[1]
        assert isinstance(joined, Joined)
        assert (joined.cluster_id, joined.node_id) == ("the cluster", 1)
        assert ministry.machine.state.brokers[1].directory == wiped.directory
        leave(*people.values())

    run(test)


def test_a_wiped_lowest_id_waits_for_those_who_are_down(caplog: pytest.LogCaptureFixture) -> None:
    """Also if all that is left of the others is one empty broker."""

    async def test() -> None:
        ids = (1, 2, 3)
        wiped, other = Person(1, ids), Person(2, ids)
        port = free_port()
        peers = {1: wiped.address, 2: other.address, 3: (HOST, port)}
        tasks = [asyncio.create_task(person.search().assemble(peers)) for person in (wiped, other)]
        await until(lambda: caplog.text.count("no answer yet from broker 3") >= 2, "they wait")
        ministry = Ministry()
        third = Person.__new__(Person)
        third.node_id, third.directory = 3, UUID(int=103)
        third.corner = Corner(3, port=port)
        third.admission = Admission(third.directory, node_id=3, peers=ids, cluster_id="the cluster")
        third.admission.open(third.corner.door)
        await until(lambda: "does not take part" in caplog.text, "found, but not ready")
        ministry.machine_does(decode_command(third.newcomer().command()))
        third.belongs(ministry)
        ministry.leader = 3
        for node, task in zip((1, 2), tasks, strict=True):
            joined = await task
            assert isinstance(joined, Joined)
            assert (joined.cluster_id, joined.node_id) == ("the cluster", node)
        leave(wiped, other, third)

    with caplog.at_level(logging.INFO, "dmq.broker"):
        run(test)


def test_those_who_start_together_are_waited_for_quietly_and_then_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        first = Person(1, (1, 2))
        peers = {1: first.address, 2: (HOST, nobody)}
        search = Search(first.newcomer(), replace(QUICK, tell_again_s=0.05))
        task = asyncio.create_task(search.assemble(peers))
        await until(lambda: caplog.text.count("no answer yet from broker 2") >= 2, "it waits")
        task.cancel()
        leave(first)

    with closed_port(HOST) as nobody, caplog.at_level(logging.INFO, "dmq.broker"):
        run(test)
    assert [r.levelname for r in caplog.records if "no answer yet" in r.message][:2] == [
        "INFO",
        "WARNING",
    ]


def test_of_two_processes_with_the_lowest_id_only_the_one_at_its_address_forms_a_cluster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        ids = (1, 2, 3)
        people = {node: Person(node, ids) for node in ids}
        peers = {node: person.address for node, person in people.items()}
        impostor = Person(1, ids, directory=555)
        task = asyncio.create_task(impostor.search().assemble(peers))
        await until(lambda: "another process is broker 1" in caplog.text, "it waits")
        assert not task.done()
        task.cancel()
        assert await people[1].search().assemble(peers) == Founded("new", 1)
        leave(impostor, *people.values())

    with caplog.at_level(logging.INFO, "dmq.broker"):
        run(test)


def probed(node: int, cluster_id: str | None = None, **other: Any) -> Probed:
    known: dict[str, Any] = {"directory": UUID(int=100 + node), "peers": (1, 2, 3)}
    return Probed(node, cluster_id=cluster_id, **(known | other))


EMPTY = {node: probed(node) for node in PEERS}
RULES: list[tuple[str, int, dict[int, Probed], object]] = [
    ("all are empty", 1, EMPTY, Found()),
    ("not the lowest", 2, EMPTY, "broker 1 is to form the cluster"),
    ("one is silent", 1, {1: probed(1), 2: probed(2)}, "no answer yet from broker 3 at c:3"),
    ("it can't reach itself", 1, {2: probed(2), 3: probed(3)}, "no answer yet from broker 1"),
    ("somebody is a member", 1, EMPTY | {3: probed(3, "x")}, Join((("c", 3),))),
    ("one member is enough", 2, {3: probed(3, "x")}, Join((("c", 3),))),
    ("two clusters", 1, {2: probed(2, "x"), 3: probed(3, "y")}, "several clusters: x, y"),
    (
        "another list",
        1,
        EMPTY | {2: probed(2, peers=(2, 3))},
        "broker 2 was started with peers 2, 3",
    ),
    ("no list", 1, EMPTY | {3: probed(3, peers=())}, "broker 3 was started with peers"),
    ("another process", 1, EMPTY | {1: probed(1, directory=UUID(int=7))}, "another process"),
    ("also a member", 1, {1: probed(1, "x", directory=UUID(int=7))}, "another process"),
    ("addresses mixed up", 1, EMPTY | {2: probed(3)}, "address of broker 2 is that of broker 3"),
]


@pytest.mark.parametrize(
    ("me", "heard", "verdict"), [rule[1:] for rule in RULES], ids=[r[0] for r in RULES]
)
def test_the_rule_for_a_fixed_set(me: int, heard: dict[int, Probed], verdict: object) -> None:
    found = judge(me, UUID(int=100 + me), PEERS, heard)
    if isinstance(verdict, str):
        assert isinstance(found, Wait)
        assert verdict in found.reason
    else:
        assert found == verdict


# ---- settings


def test_which_way_the_settings_say() -> None:
    async def test() -> None:
        alone = Person(5)
        assert await find_place(BrokerConfig.of(node_id=5), alone.newcomer()) == Founded("new", 5)
        config = BrokerConfig.of(node_id=5, cluster_bootstrap=True)
        assert await find_place(config, alone.newcomer()) == Founded("new", 5)
        _, people = cluster_of(1)
        address = f"{HOST}:{people[0].corner.port}"
        config = BrokerConfig.of(cluster_join=address, peer_listener=":0")
        assert wished_node_id(config) == NO_NUMBER
        new = Person(NO_NUMBER, directory=7)
        joined = await find_place(config, new.newcomer(), QUICK)
        assert isinstance(joined, Joined)
        assert joined.node_id == 2
        ninth = Person(9, (1, 9))
        listed = f"1@{address},9@{HOST}:{ninth.corner.port}"
        config = BrokerConfig.of(cluster_peers=listed, node_id=9, peer_listener=":0")
        assert wished_node_id(config) == 9
        placed = await find_place(config, ninth.newcomer(), QUICK)
        assert isinstance(placed, Joined)
        leave(alone, new, ninth, *people)

    run(test)


def test_a_number_of_ones_own_may_be_asked_for() -> None:
    config = BrokerConfig.of(cluster_join="a:1", peer_listener=":0", node_id=12)
    assert wished_node_id(config) == 12


# ---- a broker that belongs to a cluster


def test_who_belongs_to_a_cluster_is_not_led_into_another() -> None:
    async def test() -> None:
        _, (member,) = cluster_of(1)
        empty = Person(7)
        silent = socket.create_server((HOST, 0))
        slow = silent.getsockname()[1]
        named = f"{HOST}:{nobody},{HOST}:{empty.corner.port},{HOST}:{member.corner.port}"
        config = BrokerConfig.of(cluster_join=named, peer_listener=":0", log_dirs="/data")
        assert await check_cluster(config, "the cluster", QUICK) == {1: member.address}
        config = BrokerConfig.of(
            cluster_join=f"{HOST}:{slow},{named}", peer_listener=":0", log_dirs="/data"
        )
        patient = Pace(ask_ms=600_000)  # Who answers is heard though others are silent.
        with pytest.raises(JoinError) as raised:
            await check_cluster(config, "ours", patient)
        for word in ("ours", "the cluster", "/data", str(member.corner.port), "--join"):
            assert word in str(raised.value)
        silent.close()
        leave(member, empty)

    with closed_port(HOST) as nobody:
        run(test)


def test_who_is_of_our_cluster_is_found_at_its_address() -> None:
    """Also by `--peers` of which a number is wrong; but not who does not know its number yet."""

    async def test() -> None:
        _, people = cluster_of(3)
        unsure, second, third = people
        unsure.admission.node_id = NO_NUMBER
        ports = [person.corner.port for person in people]
        join = BrokerConfig.of(
            cluster_join=",".join(f"{HOST}:{port}" for port in ports), peer_listener=":0"
        )
        peers = BrokerConfig.of(
            cluster_peers=",".join(f"{n}@{HOST}:{port}" for n, port in enumerate(ports, 3)),
            node_id=3,
            peer_listener=":0",
        )
        for config in (join, peers):
            found = await check_cluster(config, "the cluster", QUICK)
            assert found == {2: second.address, 3: third.address}
        leave(*people)

    run(test)


# ---- bytes


def test_what_is_said_round_trips() -> None:
    for said in (probed(1), probed(2, "x"), Probed(-1, UUID(int=1), None)):
        assert decode_probed(encode_probed(said)) == said
    voters = (Voter(1, UUID(int=5)),)
    for reply in (
        Redirected(("host", 9093)),
        Postponed("soon"),
        Admitted("id", b"\x00\xff", voters, {1: ("::1", 9093), 2: ("b", 1)}),
    ):
        assert decode_reply(encode_reply(reply)) == reply
    assert decode_join(encode_join(b"\x00command")) == b"\x00command"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\xff", b"[]", b"{}", b'{"v":2}', b'{"v":1}', b'{"v":1,"leader":[1]}',
        b'{"v":1,"leader":"x"}', b'{"v":1,"command":"zz"}', b'{"v":1,"command":7}',
        b'{"v":1,"node":1,"directory":7,"cluster":null,"peers":[]}',
        b'{"v":1,"cluster":"x","result":"","voters":[[1,2]],"addresses":[]}',
        b'{"v":1,"cluster":"x","result":"","voters":[],"addresses":[[1]]}',
        b"[" * 100_000,
    ],
)  # fmt: skip
def test_other_bytes_are_a_protocol_error(data: bytes) -> None:
    for decode in (decode_probed, decode_join, decode_reply):
        with pytest.raises(ProtocolError):
            decode(data)
