"""What leaders keep in memory for their followers: bounded for all logs together, and never wrong."""

import gc
import random
import weakref
from itertools import pairwise

import pytest

from dmq.storage.fresh import ENTRY_BYTES, Fresh, FreshBatches, backing

SIZE = 1000 - ENTRY_BYTES
"""With what a batch takes beside its bytes it takes 1000."""


class Holder:
    def __init__(self) -> None:
        self.fresh: list[Fresh] = []

    def offsets(self) -> list[int]:
        return [batch.base for batch in self.fresh]


def run(*bases: int, size: int = SIZE) -> list[Fresh]:
    return [Fresh(base, base + 1, bytes(size)) for base in bases]


def test_the_oldest_go_first_whosever_they_are() -> None:
    batches, one, two = FreshBatches(5000), Holder(), Holder()
    batches.add(one, run(0, 1))
    batches.add(two, run(7))
    batches.add(one, run(2, 3))
    assert (one.offsets(), two.offsets()) == ([0, 1, 2, 3], [7])
    batches.add(two, run(8))
    assert (one.offsets(), two.offsets()) == ([2, 3], [7, 8])
    batches.add(one, run(4, 5))
    assert (one.offsets(), two.offsets()) == ([2, 3, 4, 5], [8])
    assert batches.size_bytes == 5000


def test_a_run_that_is_too_large_is_there_until_the_next() -> None:
    batches, log = FreshBatches(5000), Holder()
    batches.add(log, run(0, size=10_000))
    assert log.offsets() == [0]
    batches.add(log, run(1))
    assert log.offsets() == [1]
    assert batches.size_bytes == 1000


def test_what_a_log_takes_back_counts_no_more() -> None:
    batches, log, other = FreshBatches(5000), Holder(), Holder()
    batches.add(log, run(0, 1))
    batches.add(other, run(0))
    batches.add(log, run(2))
    batches.forget(log)
    assert (log.offsets(), other.offsets(), batches.size_bytes) == ([], [0], 1000)
    batches.forget(log)
    batches.add(log, run(1, 2, 3, 4))
    assert (log.offsets(), other.offsets(), batches.size_bytes) == ([1, 2, 3, 4], [0], 5000)


@pytest.mark.parametrize("is_pushed_out", [True, False])
def test_a_log_that_has_nothing_here_is_not_kept_alive(is_pushed_out: bool) -> None:
    batches, log, other = FreshBatches(2000), Holder(), Holder()
    batches.add(log, run(0))
    known = weakref.ref(log)
    if is_pushed_out:
        batches.add(other, run(0, 1))
    else:
        batches.forget(log)
    assert not log.fresh
    del log
    gc.collect()
    assert known() is None


def test_a_request_counts_once_and_as_a_whole() -> None:
    batches, one, two = FreshBatches(10_000), Holder(), Holder()
    request = memoryview(bytes(6400))
    assert backing(request[:10]) == 6400
    batches.add(one, [Fresh(n, n + 1, request[n : n + 1]) for n in range(2)])
    batches.add(two, [Fresh(0, 1, request[10:20])])
    assert batches.size_bytes == 6400 + 3 * ENTRY_BYTES
    batches.forget(one)
    assert batches.size_bytes == 6400 + ENTRY_BYTES, "the other log has a part of it still"
    batches.add(one, [Fresh(2, 3, memoryview(bytes(6400))[:1])])
    assert (one.offsets(), two.offsets(), batches.size_bytes) == ([2], [], 6400 + ENTRY_BYTES)


@pytest.mark.parametrize("seed", range(20))
def test_no_more_than_the_bound_is_there_and_all_in_order(seed: int) -> None:
    rng = random.Random(seed)
    batches, logs = FreshBatches(10_000), [Holder() for _ in range(3)]
    ends = dict.fromkeys(logs, 0)
    request = bytes(100)
    for _ in range(300):
        log = rng.choice(logs)
        if rng.random() < 0.1:
            batches.forget(log)
            ends[log] = rng.randint(0, ends[log])
        if rng.random() < 0.3:
            request = bytes(rng.randint(1, 3000))
        added = run(*range(ends[log], ends[log] + rng.randint(1, 4)), size=rng.randint(1, 600))
        if rng.random() < 0.5:
            added = [batch._replace(data=memoryview(request)[:1]) for batch in added]
        batches.add(log, added)
        ends[log] = added[-1].next
        assert log.fresh[-len(added) :] == added
        held = [batch for each in logs for batch in each.fresh]
        requests = {id(b.data.obj): backing(b.data) for b in held if isinstance(b.data, memoryview)}
        own = sum(len(b.data) for b in held if not isinstance(b.data, memoryview))
        size = own + sum(requests.values()) + len(held) * ENTRY_BYTES
        assert size == batches.size_bytes <= 10_000
        for each in logs:
            assert all(a.next == b.base for a, b in pairwise(each.fresh))
            assert not each.fresh or each.fresh[-1].next == ends[each]
