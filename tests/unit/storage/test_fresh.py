"""What leaders keep in memory for their followers: bounded for all logs together, and never wrong."""

import random

import pytest

from dmq.storage.fresh import Fresh, FreshBatches, backing


class Holder:
    def __init__(self) -> None:
        self.fresh: list[Fresh] = []

    def offsets(self) -> list[int]:
        return [batch.base for batch in self.fresh]


def run(*bases: int, size: int = 100) -> list[Fresh]:
    return [Fresh(base, base + 1, bytes(size)) for base in bases]


def test_the_oldest_go_first_whosever_they_are() -> None:
    batches, one, two = FreshBatches(500), Holder(), Holder()
    batches.add(one, run(0, 1))
    batches.add(two, run(7))
    batches.add(one, run(2, 3))
    assert (one.offsets(), two.offsets()) == ([0, 1, 2, 3], [7])
    batches.add(two, run(8))
    assert (one.offsets(), two.offsets()) == ([2, 3], [7, 8])
    batches.add(one, run(4, 5))
    assert (one.offsets(), two.offsets()) == ([2, 3, 4, 5], [8])
    assert batches.size_bytes == 500


def test_a_run_that_is_too_large_is_there_until_the_next() -> None:
    batches, log = FreshBatches(500), Holder()
    batches.add(log, run(0, size=10_000))
    assert log.offsets() == [0]
    batches.add(log, run(1))
    assert log.offsets() == [1]
    assert batches.size_bytes == 100


def test_a_log_that_took_all_back_begins_anew() -> None:
    batches, log = FreshBatches(500), Holder()
    batches.add(log, run(0, 1, 2))
    log.fresh.clear()
    batches.add(log, run(1))
    batches.add(log, run(2, 3))
    assert log.offsets() == [3], "what goes for the first run may be of a later one"
    batches.add(log, run(4, 5, 6, 7, 8))
    assert log.offsets() == [4, 5, 6, 7, 8]
    assert batches.size_bytes == 500


@pytest.mark.parametrize("seed", range(20))
def test_no_more_than_the_bound_is_there_and_all_in_order(seed: int) -> None:
    rng = random.Random(seed)
    batches, logs = FreshBatches(1000), [Holder() for _ in range(3)]
    ends = dict.fromkeys(logs, 0)
    for _ in range(300):
        log = rng.choice(logs)
        if rng.random() < 0.1:
            log.fresh.clear()
            ends[log] = rng.randint(0, ends[log])
        count = rng.randint(1, 4)
        batches.add(log, run(*range(ends[log], ends[log] + count), size=rng.randint(1, 200)))
        ends[log] += count
        for each in logs:
            assert each.offsets() == [*range(ends[each] - len(each.fresh), ends[each])]
        held = sum(len(batch.data) for each in logs for batch in each.fresh)
        assert held <= batches.size_bytes <= 1000


def test_a_small_part_of_a_large_request_counts_for_more_than_itself() -> None:
    batches, log = FreshBatches(10_000), Holder()
    request = memoryview(bytes(64_000))
    assert backing(request[:10]) == 64_000
    for n in range(5):
        batches.add(log, [Fresh(n, n + 1, request[n * 10 : n * 10 + 10])])
    assert log.offsets() == [3, 4]
