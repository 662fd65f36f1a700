"""Clients with transactions, a coordinator and partitions, in a bad network.

Messages are lost, doubled, late and out of order; coordinator and leaders crash and lose what was not
committed; two clients may want the same name. At the end everything heals, and then: all or nothing
of each transaction is read, as its client was told; nothing twice; nothing hangs.

`is_orderly`: as on connections, messages between two keep their order and are not doubled; a loss takes
all that is under way. Transactions of version 1 need that much: with one epoch for many of them a late
request can't be told from a new one, which is what version 2 was made for.
"""

from collections import Counter
from collections.abc import Callable
from random import Random

from unit.machines.transactions.client import Client, Txn
from unit.machines.transactions.hosts import CoordinatorHost, OnAnswer, PartitionHost

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.machine import Command
from dmq.machines.producers.admission import Leave
from dmq.machines.transactions.commands import AddPartitions, TxnMarker, VerifyPartitions
from dmq.machines.transactions.facts import PREPARED, TxnState
from dmq.types import TopicPartition

PARTITIONS = 2
CLIENTS_MAX = 8
TIMEOUT_MS = 10_000


class World:
    def __init__(self, seed: int, version: int, *, is_orderly: bool) -> None:
        self.dice = Random(seed)
        self.version = version
        self.is_orderly = is_orderly
        self.channels: dict[str, list[Callable[[], None]]] = {}
        self.late: list[Callable[[], None]] = []
        self.stuck: set[str] = set()
        """Channels on which nothing moves for a while."""
        self.coordinator = CoordinatorHost(self.dice, self.send_marker)
        self.partitions = [PartitionHost(index, self.dice) for index in range(PARTITIONS)]
        self.is_healing = False
        self.reached: Counter[str] = Counter()
        self.clients: list[Client] = []
        for name in ("x", "y"):
            self.spawn(name)

    def spawn(self, name: str) -> None:
        number = len(self.clients)
        self.clients.append(Client(self, name, number, self.version))

    # ---- the network

    def send(self, channel: str, deliver: Callable[[], None]) -> None:
        self.channels.setdefault(channel, []).append(deliver)

    def deliver(self) -> None:
        if not self.is_healing and self.dice.random() < 0.05:
            self.stuck = (
                set(self.dice.choices(list(self.channels), k=2)) if self.channels else set()
            )
        busy = [name for name, queue in self.channels.items() if queue and name not in self.stuck]
        if not busy:
            return
        queue = self.channels[self.dice.choice(busy)]
        if self.is_healing:
            queue.pop(0)()
            return
        luck = self.dice.random()
        if self.is_orderly:
            if luck < 0.03:
                queue.clear()
            else:
                queue.pop(0)()
            return
        at = self.dice.randrange(len(queue))
        if luck < 0.1:
            queue.pop(at)
        elif luck < 0.2:
            self.late.append(queue.pop(at))
            self.late[-1]()
            self.reached["doubled"] += 1
        else:
            queue.pop(at)()

    def deliver_late(self) -> None:
        """A second copy that was long on its way."""
        if self.late:
            self.late.pop(self.dice.randrange(len(self.late)))()

    def ask_coordinator(
        self,
        who: str,
        command: Command[object],
        on_answer: OnAnswer,
        is_open: Callable[[], bool] | None = None,
    ) -> None:
        """From `who`, and the answer goes back to it. `is_open`: whether the one connection that
        carries the request, once, is still there."""
        carried = 0

        def answer(response: object) -> None:
            self.coordinator.begin(getattr(response, "ending", None))
            self.send(f"coordinator>{who}", lambda: on_answer(response))

        def arrive() -> None:
            nonlocal carried
            carried += 1
            if is_open is None or (is_open() and carried == 1):
                self.coordinator.submit(command, answer)

        self.send(f"{who}>coordinator", arrive)

    def send_marker(self, marker: TxnMarker, on_answer: OnAnswer) -> None:
        partition = self.partitions[marker.partition]
        back = f"p{marker.partition}>markers"

        def answer(code: object) -> None:
            self.send(back, lambda: on_answer(code))

        channel = f"markers>p{marker.partition}"  # Not the one that answers the leader's questions.
        self.send(channel, lambda: partition.write_marker(marker, answer))

    # ---- producing

    def produce(self, txn: Txn, request: "tuple[int, int, str]", on_answer: OnAnswer) -> None:
        """A client's batch goes to its partition, and the answer comes back."""
        index, sequence, value = request
        client, producer = txn.client, txn.producer
        back = f"p{index}>{client.label}"

        def answer(code: object) -> None:
            self.send(back, lambda: on_answer(code))

        self.send(
            f"{client.label}>p{index}",
            lambda: self.arrived(client.name, producer, index, sequence, value, answer),
        )

    def arrived(
        self,
        name: str,
        producer: tuple[int, int],
        index: int,
        sequence: int,
        value: str,
        answer: OnAnswer,
    ) -> None:
        partition = self.partitions[index]
        life, now = partition.leader_epoch, self.coordinator.now
        header = partition.header(*producer, sequence)
        leave = partition.append(header, value, answer, now)
        if not isinstance(leave, Leave):
            if leave is not ErrorCode.NONE:
                answer(leave)
            return

        def vouched(response: object) -> None:
            if partition.leader_epoch != life:
                return
            why = _refusal(response, self.version)
            if why is ErrorCode.NONE:
                partition.admission.vouch(leave, self.version)
                header = partition.header(*producer, sequence)
                why = partition.append(header, value, answer, now)
                if isinstance(why, Leave):  # Asked about again: its transaction ended meanwhile.
                    why = ErrorCode.INVALID_TXN_STATE
                    self.reached["revoked"] += 1
            if why is not ErrorCode.NONE:
                answer(why)

        wanted = frozenset({TopicPartition("t", index)})
        command: Command[object]
        if self.version == 1:
            command = VerifyPartitions(name, *producer, wanted)
        else:
            command = AddPartitions(name, *producer, wanted, 2)
        self.ask_coordinator(f"p{index}", command, vouched)

    # ---- what can happen

    def step(self) -> None:
        dice = self.dice
        luck = dice.random()
        if luck < 0.05:
            self.deliver_late()
        elif luck < 0.48:
            self.deliver()
        elif luck < 0.75:
            dice.choice(self.clients).act()
        elif luck < 0.85:
            partition = dice.choice(self.partitions)
            ends = [x.position for x in partition.log if x.position > partition.commit_position]
            if ends:
                partition.commit(dice.choice(ends))
        elif luck < 0.97:
            host = self.coordinator
            host.commit(dice.randint(host.committed, len(host.records)))
        else:
            self.mishap()

    def mishap(self) -> None:
        what = self.dice.choice([0, 0, 1, 1, 2, 2, 3, 4, 5])
        if what == 0:
            self.reached["coordinator crashed"] += 1
            if self.coordinator.endings:
                self.reached["crashed while ending"] += 1
            self.coordinator.crash()
        elif what == 1:
            self.dice.choice(self.partitions).crash()
        elif what == 2:
            self.coordinator.send_again()
        elif what == 3:
            self.dice.choice(self.partitions).take_snapshot()
        elif what == 4:
            self.coordinator.now += self.dice.choice([100, TIMEOUT_MS + 1])
            self.coordinator.abort_timed_out()
        elif len(self.clients) < CLIENTS_MAX:
            self.spawn("x")

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.heal()
        self.check()

    def heal(self) -> None:
        """No more faults and no new transactions: within a while everything must be settled."""
        self.is_healing = True
        self.stuck = set()
        for n in range(200):
            for client in self.clients:
                client.act()
            self.coordinator.send_again()
            if n % 20 == 19:
                self.coordinator.now += 2 * TIMEOUT_MS
                self.coordinator.abort_timed_out()
            for _ in range(20):
                self.settle()
            if self.is_settled():
                return
        raise AssertionError("something hangs")

    def settle(self) -> None:
        self.deliver_late()
        while any(self.channels.values()):
            self.deliver()
        self.coordinator.commit()
        for partition in self.partitions:
            if partition.log:
                partition.commit(partition.log[-1].position)

    def is_settled(self) -> bool:
        states = [transaction.state for _, transaction in self.coordinator.machine.state.all()]
        return (
            not self.late
            and not any(state is TxnState.ONGOING or state in PREPARED for state in states)
            and all(client.is_done for client in self.clients)
            and all(p.last_stable_offset() == p.end for p in self.partitions)
        )

    # ---- what must hold in the end

    def check(self) -> None:
        visible = [value for partition in self.partitions for value in partition.read_committed()]
        stored = [p.values[x.position] for p in self.partitions for x in p.log if x.marker is None]
        assert len(stored) == len(set(stored)), "a record is there twice"
        for client in self.clients:
            for txn in client.transactions:
                txn.check(set(visible))
                self.reached[txn.outcome] += 1
            if self.version >= 2 and client.name == "y":
                assert not client.is_dead, "fenced, and nobody wanted its name"


def _refusal(response: object, version: int) -> ErrorCode:
    if isinstance(response, KafkaError):
        return response.code
    if version == 1:
        (code,) = response.values()  # type: ignore[attr-defined]
        return ErrorCode(code)
    return ErrorCode.NONE
