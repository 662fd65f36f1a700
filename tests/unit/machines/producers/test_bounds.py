"""Producer state is bounded, expires, and outlives a restart."""

import pytest
from unit.machines.producers.partition_log import Partition

from dmq.errors import CorruptError
from dmq.machines.producers.snapshot import ProducerSnapshot
from dmq.machines.producers.state import Duplicate

HOUR = 3_600_000


def ids(partition: Partition) -> list[int]:
    return [producer_id for producer_id, _ in partition.state.producers()]


def test_the_longest_idle_goes_at_the_limit() -> None:
    partition = Partition(producers_max=3)
    for producer_id in (1, 2, 3):
        partition.produce(producer_id)
    partition.commit_all()
    partition.produce(1, 1)
    partition.produce(4)
    partition.commit_all()
    assert ids(partition) == [3, 1, 4]


def test_an_open_transaction_is_never_forgotten() -> None:
    partition = Partition(producers_max=2, expiration_ms=1)
    partition.produce(1, in_txn=True, verified=1)
    partition.produce(2)
    partition.commit_all()
    partition.produce(3)
    partition.commit_all()
    assert ids(partition) == [1, 3] or ids(partition) == [3, 1]
    partition.state.expire(10 * HOUR)
    assert ids(partition) == [1]
    assert partition.last_stable_offset == 0


def test_at_the_limit_with_nothing_but_open_transactions_none_is_lost() -> None:
    partition = Partition(producers_max=2)
    for producer_id in range(5):
        partition.produce(producer_id, in_txn=True, verified=1)
        partition.commit_all()
    assert sorted(ids(partition)) == [0, 1, 2, 3, 4]


def test_an_uncommitted_batch_keeps_its_producer() -> None:
    partition = Partition(expiration_ms=HOUR)
    partition.produce(1, timestamp=0)
    partition.commit_all()
    partition.produce(1, 1, timestamp=0)
    assert partition.state.expire(2 * HOUR) == 0
    partition.commit_all()
    assert partition.state.expire(2 * HOUR) == 1


def test_the_silent_are_forgotten_by_the_time_of_their_batches() -> None:
    partition = Partition(expiration_ms=HOUR)
    partition.produce(1, timestamp=0)
    partition.produce(2, timestamp=HOUR)
    partition.commit_all()
    assert partition.state.expire(HOUR - 1) == 0
    assert partition.state.expire(HOUR) == 1
    assert ids(partition) == [2]
    assert isinstance(partition.produce(1, 17), int), "it may begin anew anywhere"


def test_expiry_looks_at_a_part_at_a_time() -> None:
    partition = Partition(expiration_ms=1)
    for producer_id in range(2_500):
        partition.produce(producer_id)
    partition.commit_all()
    assert [partition.state.expire(HOUR) for _ in range(4)] == [1_000, 1_000, 500, 0]


# --- snapshots ----------------------------------------------------------------------------------


def filled() -> Partition:
    partition = Partition()
    for sequence in range(7):
        partition.produce(1, sequence, count=1)
    partition.produce(2, in_txn=True, verified=1)
    partition.end_txn(2, is_commit=False, coordinator_epoch=3)
    partition.produce(3, epoch=9, in_txn=True, verified=1)
    partition.produce(4, 5, in_txn=True, verified=1)
    partition.commit_all()
    return partition


def test_a_snapshot_gives_the_state_back() -> None:
    partition = filled()
    data = partition.state.snapshot(partition.commit).encode()
    restored = partition.reloaded(data)
    assert restored.producers() == partition.state.producers()
    assert restored.aborted(0, 100) == partition.state.aborted(0, 100) != []
    assert restored.last_stable_offset(100) == partition.state.last_stable_offset(100) == 9
    assert restored.oldest_open() == partition.state.oldest_open()
    assert restored.snapshot(partition.commit).encode() == data


def test_a_snapshot_holds_committed_state_only() -> None:
    partition = filled()
    before = partition.state.snapshot(partition.commit).encode()
    partition.produce(1, 7)
    partition.end_txn(3, epoch=9)
    assert partition.state.snapshot(partition.commit).encode() == before


def test_batches_behind_the_snapshot_are_told_again_without_harm() -> None:
    partition = filled()
    data = partition.state.snapshot(partition.commit).encode()
    partition.produce(1, 7)
    partition.commit_all()
    partition.produce(1, 8)
    state = partition.state = partition.reloaded(data)
    assert [e.last_sequence for p, e in state.producers() if p == 1] == [7]
    duplicate = partition.produce(1, 8)
    assert isinstance(duplicate, Duplicate)
    assert duplicate.position == partition.log[-1].position


@pytest.mark.parametrize("at", [0, 5, 7, 20, 50, -1])
def test_rotten_bytes_are_told_from_a_snapshot(at: int) -> None:
    data = bytearray(filled().state.snapshot(filled().commit).encode())
    data[at] ^= 0x10
    with pytest.raises(CorruptError):
        ProducerSnapshot.decode(bytes(data))


@pytest.mark.parametrize("size", [0, 9, 41, 60])
def test_a_torn_snapshot_is_told_from_a_whole_one(size: int) -> None:
    partition = filled()
    data = partition.state.snapshot(partition.commit).encode()
    with pytest.raises(CorruptError):
        ProducerSnapshot.decode(data[:size])


def test_a_reset_forgets_all() -> None:
    partition = filled()
    partition.state.reset()
    assert partition.state.producers() == []
    assert partition.state.last_stable_offset(100) == 100
    assert partition.state.aborted(0, 100) == []
