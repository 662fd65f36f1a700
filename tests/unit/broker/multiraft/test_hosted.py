"""A machine on a replicated log: followers read along, a deposed leader's state is what is committed.
A partition's producers on it: known again by whoever leads next."""

from typing import Any

import pytest
from unit.broker.multiraft.wiring import Broker, World

from dmq.broker.answer import Answer
from dmq.broker.host import MachineHost
from dmq.broker.multiraft.replica import NotLeaderError
from dmq.broker.multiraft.sending import SendSettings
from dmq.broker.multiraft.turn import NodeSettings
from dmq.broker.producing import ProducerBook
from dmq.errors import ErrorCode
from dmq.machines.machine import Command, Outcome, Record
from dmq.machines.producers.state import Duplicate
from dmq.records import Record as LogRecord
from dmq.records import build_batch, read_header

SMALL_FRAMES = SendSettings(piece_bytes=200, frame_bytes=200)


class Put(Command[int]):
    """Remember a word; the answer is how many there were before."""

    def __init__(self, word: bytes) -> None:
        self.word = word


class Words:
    """A machine that remembers words."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def handle(self, command: Command[Any], now: int) -> Outcome[Any]:
        assert isinstance(command, Put)
        return Outcome(len(self.seen), [Record(command.word, b"")])

    def apply(self, record: Record) -> None:
        self.seen.append(record.key)

    def restore(self, seen: list[bytes]) -> None:
        self.seen = list(seen)


class Hosts:
    """One host for each broker of a world, and what each announced."""

    def __init__(self, world: World) -> None:
        self.machines = {broker: Words() for broker in world.brokers.values()}
        self.announced: dict[Broker, list[bytes]] = {
            broker: [] for broker in world.brokers.values()
        }
        self.hosts = {broker: self._host(world, broker) for broker in world.brokers.values()}

    def _host(self, world: World, broker: Broker) -> MachineHost:
        machine, told = self.machines[broker], self.announced[broker]

        def tell(records: list[Record]) -> None:
            told.extend(record.key for record in records)

        def tell_anew(records: list[Record]) -> None:
            told.clear()
            tell(records)

        return MachineHost(
            machine,
            broker.replica,
            me=broker.me,
            restore=lambda: machine.restore(told),
            on_committed=tell,
            on_replaced=tell_anew,
            now=lambda: world.now,
            timers=broker.node.timers,
        )

    def put(self, broker: Broker, word: bytes) -> Answer[int]:
        return self.hosts[broker].submit(Put(word), 1_700_000_000_000)


def test_followers_apply_what_is_committed_and_no_more() -> None:
    world = World(3)
    leader = world.elected()
    hosts = Hosts(world)
    answer = hosts.put(leader, b"a")
    assert hosts.machines[leader].seen == [b"a"], "at once, on the leader"
    assert hosts.announced[leader] == []
    assert not answer.is_done
    world.pass_time(300)
    assert answer.get() == 0
    assert all(machine.seen == [b"a"] for machine in hosts.machines.values())
    assert all(told == [b"a"] for told in hosts.announced.values())


def test_a_follower_takes_no_command() -> None:
    world = World(3)
    leader = world.elected()
    hosts = Hosts(world)
    refused = hosts.put(world.others(leader)[0], b"a")
    with pytest.raises(NotLeaderError) as caught:
        refused.get()
    assert caught.value.leader == leader.me


def test_a_deposed_leader_forgets_what_was_not_committed() -> None:
    world = World(3)
    old = world.elected()
    hosts = Hosts(world)
    hosts.put(old, b"kept")
    world.pass_time(300)
    for other in world.others(old):
        world.cut(old.number, other.number)
    lost = hosts.put(old, b"lost")
    readers: list[bool] = []
    hosts.hosts[old].when_settled(readers.append)
    world.settle()
    assert hosts.machines[old].seen == [b"kept", b"lost"]
    world.until(lambda: not old.replica.is_leader)
    assert hosts.machines[old].seen == [b"kept"], "nobody may be shown the rest"
    assert readers == [False], "whoever read it must read again"
    new = next(broker for broker in world.others(old) if broker.replica.is_leader)
    hosts.put(new, b"next")
    world.heal()
    world.pass_time(500)
    assert all(machine.seen == [b"kept", b"next"] for machine in hosts.machines.values())
    assert hosts.announced[old] == [b"kept", b"next"]
    assert lost.is_done


def test_what_is_committed_in_the_step_that_deposes_a_leader_is_announced() -> None:
    """It was elected before it heard that the former leader's last record is committed; its own lines
    stall, and the first word of its successor says both."""
    world = World(5)
    old = world.elected()
    hosts = Hosts(world)
    hosts.put(old, b"before")
    world.pass_time(300)
    short, *rest = world.others(old)
    hosts.put(old, b"last")
    old.work()
    world.deliver()
    world.drops = lambda sender, to, frame: to == short.number
    world.settle()
    assert [hosts.announced[broker][-1] for broker in rest] == [b"last"] * 3
    old.kill()

    def stalls(sender: int, to: int, frame: object) -> bool:
        has_successor = any(broker.replica.is_leader for broker in rest)
        return short.replica.is_leader and short.number in (sender, to) and not has_successor

    world.drops = stalls
    world.until(lambda: short.replica.is_leader)
    assert hosts.machines[short].seen == [b"before", b"last"]
    assert hosts.announced[short] == [b"before"], "it can't know yet"
    world.until(lambda: not short.replica.is_leader)
    assert short.replica.high_watermark == 2
    world.pass_time(500)
    assert hosts.machines[short].seen == [b"before", b"last"]
    assert hosts.announced[short] == [b"before", b"last"]


def test_a_new_leader_has_applied_the_whole_log_before_it_handles_anything() -> None:
    world = World(3)
    old = world.elected()
    hosts = Hosts(world)
    for word in (b"a", b"b", b"c"):
        hosts.put(old, word)
    world.pass_time(300)
    old.kill()
    world.until(lambda: any(broker.replica.is_leader for broker in world.others(old)))
    new = next(broker for broker in world.others(old) if broker.replica.is_leader)
    answer = hosts.put(new, b"d")
    world.pass_time(300)
    assert answer.get() == 3


def test_a_log_that_begins_again_is_no_news() -> None:
    """All its records are sent once more, a few at a time: nothing is forgotten meanwhile, nothing is
    told twice, and what is new comes after it."""
    world = World(3, settings=NodeSettings(sending=SMALL_FRAMES))
    leader = world.elected()
    hosts = Hosts(world)
    words = [b"word %d" % n * 20 for n in range(30)]
    for word in words:
        hosts.put(leader, word)
        world.pass_time(50)
    world.pass_time(300)
    bad = world.others(leader)[0]
    known: list[tuple[int, int]] = []
    moved = hosts.hosts[bad].moved

    def look() -> None:
        moved()
        known.append((bad.replica.high_watermark, len(hosts.machines[bad].seen)))

    hosts.hosts[bad].moved = look  # type: ignore[method-assign]
    bad.node._repairs.give_up(bad.replica)
    hosts.put(leader, b"new")
    world.until(lambda: bad.replica.high_watermark == 31 and bool(bad.node.counts["began again"]))
    world.pass_time(100)
    assert bad.node.counts["began again"] == 1
    assert len([at for at, _ in known if at < 30]) > 3, "it came in pieces"
    assert {count for at, count in known if at <= 30} == {30}
    assert hosts.machines[bad].seen == hosts.announced[bad] == [*words, b"new"]
    assert hosts.hosts[bad].committed == 31


def test_after_a_loss_only_what_is_left_holds() -> None:
    """An operator has one that lacks committed words go on alone; another knew them."""
    world = World(3)
    old = world.elected()
    hosts = Hosts(world)
    hosts.put(old, b"kept")
    world.pass_time(300)
    other, behind = world.others(old)
    for broker in (old, other):
        world.cut(behind.number, broker.number)
    for word in (b"lost", b"lost too"):
        hosts.put(old, word)
        world.pass_time(50)
    assert hosts.announced[other] == [b"kept", b"lost", b"lost too"]
    old.kill()
    world.heal()
    epoch = 1000
    for broker in (other, behind):
        broker.replica.ordered(behind.me, epoch, world.now)
    world.until(lambda: behind.replica.is_leader)
    behind.replica.set_target((other.me, behind.me), world.now)
    answer = hosts.put(behind, b"next")
    world.until(lambda: hosts.hosts[other].committed == 2)
    world.pass_time(500)
    assert answer.get() == 1
    for broker in (other, behind):
        assert hosts.machines[broker].seen == hosts.announced[broker] == [b"kept", b"next"]


def rot(broker: Broker, word: bytes) -> None:
    """A bit of this word flips: only a CRC can tell."""
    name = broker.replica.log.segments_list[0].name()
    file = broker.disk.open(name)
    broker.disk.flip(name, file.read_at(0, file.size()).index(word))


@pytest.mark.parametrize("is_leader", [False, True])
def test_rotten_records_are_repaired_and_then_applied(is_leader: bool) -> None:
    """As at a start: the machine has seen nothing, its log is read from the beginning."""
    world = World(3)
    old = world.elected()
    hosts = Hosts(world)
    for word in (b"first", b"second", b"third"):
        hosts.put(old, word)
        world.pass_time(300)
    bad = old if is_leader else world.others(old)[0]
    for broker in world.brokers.values():
        broker.store.request_flush(broker.replica.log)
    world.pass_time(300)
    rot(bad, b"second")
    hosts.machines[bad] = Words()
    hosts.hosts[bad] = hosts._host(world, bad)
    hosts.hosts[bad].moved()
    assert hosts.machines[bad].seen == [], "not a record of a piece of which one is bad"
    refused = hosts.put(bad, b"refused")
    with pytest.raises(NotLeaderError):
        refused.get()
    world.until(lambda: hosts.machines[bad].seen == [b"first", b"second", b"third"])
    assert bad.node.counts["damaged"] == bad.node.counts["repaired"] == 1
    world.until(lambda: any(broker.replica.is_leader for broker in world.brokers.values()))
    answer = hosts.put(world.leader(), b"next")
    world.pass_time(500)
    assert answer.get() == 3
    assert hosts.machines[bad].seen[-1] == b"next"


# --- producers ------------------------------------------------------------------------------------


class Inline:
    def submit(self, work: Any, done: Any) -> None:
        work()
        done(None)


def idempotent(sequence: int) -> memoryview:
    record = LogRecord(0, 1_700_000_000_000, b"k", b"v")
    return memoryview(
        build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)
    )


def test_the_next_leader_knows_a_duplicate() -> None:
    world = World(3)
    old = world.elected()
    books = {
        broker: ProducerBook(broker.replica, Inline(), 10**9) for broker in world.brokers.values()
    }
    batch = idempotent(0)
    header = read_header(batch)
    assert books[old].check(header) is None
    append = old.replica.append(batch, -1, -1, world.now)
    books[old].appended(header._replace(base_offset=append.base_offset), append.position)
    codes: list[ErrorCode] = []
    append.on_done = codes.append
    assert isinstance(books[old].check(header), Duplicate)
    world.pass_time(300)
    assert codes == [ErrorCode.NONE]
    old.kill()
    world.until(lambda: any(broker.replica.is_leader for broker in world.others(old)))
    new = next(broker for broker in world.others(old) if broker.replica.is_leader)
    world.pass_time(200)
    duplicate = books[new].check(header)
    assert duplicate is not None
    assert duplicate.base_offset == append.base_offset
    again = new.replica.await_again(duplicate.base_offset, -1, duplicate.position, world.now)
    told: list[ErrorCode] = []
    again.on_done = told.append
    world.pass_time(200)
    assert told == [ErrorCode.NONE]


def test_a_new_log_takes_numbered_batches_before_its_first_mark_is_on_disk() -> None:
    """There is nothing to be read in it: whoever creates a topic and writes to it is not sent away."""
    world = World(1)
    broker = world[1]
    broker.is_syncing_by_hand = True
    world.create()
    book = ProducerBook(broker.replica, Inline(), 10**9)
    while not broker.replica.is_leader:
        world.pass_time(10)
        if broker.turn is not None:
            broker.end()
    assert broker.replica.core.commit.epoch == 0
    assert book.check(read_header(idempotent(0))) is None
    assert book.last_stable_offset() == 0
