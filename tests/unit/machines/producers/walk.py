"""Random walks of a partition's producer state beside the rules read from the whole log.

Each step does one thing that can happen to a partition (batches, duplicates, markers, late ones,
commits, cuts, restarts with and without a snapshot) and then compares every answer with `Naive`'s.
"""

from random import Random

from unit.machines.producers.partition_log import Naive, Partition, header_of, outcome

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.producers.entries import Marker
from dmq.records import CONTROL, TRANSACTIONAL, BatchHeader

PRODUCERS = 2
LARGEST = 2**31 - 1


class Walk:
    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.partition = Partition()
        self.snapshot: bytes | None = None
        self.reached: set[str] = set()

    def run(self, steps: int) -> None:
        doings = [self.batch] * 8 + [self.again] * 3 + [self.marker] * 2
        doings += [self.commit] * 3 + [self.cut, self.restart, self.take_snapshot]
        for _ in range(steps):
            self.dice.choice(doings)()
            self.compare()

    # ---- what can happen

    def batch(self) -> None:
        """Mostly the next batch of somebody, sometimes one that is out of place."""
        dice = self.dice
        producer_id = dice.randrange(PRODUCERS)
        mine = [x.header for x in self.partition.log if x.header.producer_id == producer_id]
        epoch, sequence = 0, dice.choice([0, 0, LARGEST, LARGEST - 1])
        if mine:
            epoch = mine[-1].producer_epoch
            data = [h for h in mine if h.producer_epoch == epoch and not h.is_control]
            sequence = (data[-1].base_sequence + data[-1].record_count) % 2**31 if data else 0
        if dice.random() < 0.1:
            epoch, sequence = epoch + 1, 0
        epoch += dice.choice([0] * 12 + [1, -1])
        sequence = (sequence + dice.choice([0] * 8 + [1, -1])) % 2**31
        in_txn = dice.random() < 0.6
        self.try_batch(
            header_of(
                producer_id, sequence, epoch=max(epoch, 0), count=dice.randint(1, 3),
                offset=self.partition.end, attributes=TRANSACTIONAL if in_txn else 0,
            ),
            dice.choice([0, 1, 1, 1]),
        )  # fmt: skip

    def again(self) -> None:
        """A batch that came before."""
        old = [logged.header for logged in self.partition.log if logged.marker is None]
        if old:
            repeated = self.dice.choice(old)
            if self.dice.random() < 0.3:  # As if its epoch did not matter.
                newest = [h for h in old if h.producer_id == repeated.producer_id][-1]
                repeated = repeated._replace(producer_epoch=newest.producer_epoch)
            self.try_batch(repeated._replace(base_offset=self.partition.end), 1)

    def try_batch(self, header: BatchHeader, verified: int) -> None:
        expected = Naive(self.partition).check(header, verified)
        found = outcome(self.partition, header, verified)
        fenced = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if expected is None and found is fenced and not self.is_known(header.producer_id):
            self.reached.add("not overtaken")  # A cut took an earlier one: stricter than the log.
            return
        assert found == expected, (header, found, expected)
        self.reached.add(str(found) if isinstance(found, ErrorCode) else type(found).__name__)
        if found is None:
            self.partition.append(header)

    def is_known(self, producer_id: int) -> bool:
        return any(logged.header.producer_id == producer_id for logged in self.partition.log)

    def marker(self) -> None:
        dice, partition = self.dice, self.partition
        producer_id, version = dice.randrange(PRODUCERS), dice.choice([1, 2])
        mine = [x.header for x in partition.log if x.header.producer_id == producer_id]
        epoch = mine[-1].producer_epoch if mine else 0
        epoch = max(0, epoch + dice.choice([version - 1, version - 1, 0, 1, -1]))
        open_at = Naive(partition).open_txn(producer_id)
        try:
            partition.state.check_marker(producer_id, epoch, 1, version)
        except KafkaError:
            assert open_at is not None or epoch < mine[-1].producer_epoch
            return
        if mine:
            assert epoch >= mine[-1].producer_epoch
            late = version == 2 and epoch == mine[-1].producer_epoch and open_at is not None
            assert not late, "a late marker would end a transaction that is not its own"
        header = header_of(
            producer_id, -1, epoch=epoch, offset=partition.end, attributes=TRANSACTIONAL | CONTROL
        )
        partition.append(header, Marker(dice.random() < 0.5, 1))
        self.reached.add("marker")

    def commit(self) -> None:
        waiting = [x.position for x in self.partition.log if x.position > self.partition.commit]
        if waiting:
            self.partition.commit_to(self.dice.choice(waiting))

    def cut(self) -> None:
        partition = self.partition
        ends = [x.position for x in partition.log if x.position >= partition.commit]
        if any(x.marker for x in partition.log if x.position > partition.commit):
            self.reached.add("marker may be cut")
        partition.cut(self.dice.choice([partition.commit, *ends]))

    def restart(self) -> None:
        self.partition.state = self.partition.reloaded(self.snapshot)
        self.reached.add("restarted" if self.snapshot is None else "restarted from a snapshot")

    def take_snapshot(self) -> None:
        self.snapshot = self.partition.state.snapshot(self.partition.commit).encode()

    # ---- what must hold

    def compare(self) -> None:
        partition, naive, state = self.partition, Naive(self.partition), self.partition.state
        assert partition.last_stable_offset == naive.last_stable_offset()
        start = self.dice.randint(0, partition.end + 1)
        end = start + self.dice.randint(1, 20)
        aborted = [(a.producer_id, a.first_offset) for a in state.aborted(start, end)]
        assert len(aborted) == len(set(aborted))
        assert set(aborted) == naive.aborted(start, end)
        followed = partition.followed(self.snapshot)
        assert followed.last_stable_offset(partition.commit.offset) == partition.last_stable_offset
        assert followed.aborted(start, end) == state.aborted(start, end)
        anew = partition.reloaded()
        assert dict(anew.producers()) == dict(state.producers())
        for producer_id in range(PRODUCERS):
            opened = any(state.has_open(producer_id, epoch) for epoch in range(40))
            assert opened is (naive.open_txn(producer_id) is not None)
