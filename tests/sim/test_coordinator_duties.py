"""What coordinators owe to their clients, one scenario each that a person can read.

Every scenario ends with `settle`: all faults over, nothing open, all that was told is true. The checkers
of the simulator watch throughout; what is asserted here is what they can't know.
"""

from collections.abc import Callable

import pytest
from sim.checkers import BrokenPromiseError
from sim.coordination.mutants import MUTANTS
from sim.coordination.stage import TIMEOUT_MS, CoordinatorStage, Request
from sim.mutants import READS_AT_ONCE, broken

from dmq.errors import ErrorCode

KEY = ("group", "topic")
"""What `commit_offset` of a stage commits."""


def test_a_transaction_shows_in_all_its_partitions_when_it_is_committed() -> None:
    stage = CoordinatorStage()
    txn = stage.begin()
    stage.write(txn, stage.topic)
    stage.write(txn, stage.other)
    stage.commit_offset_in(txn, 7000)
    assert (stage.read(stage.topic), stage.read(stage.other), stage.offset()) == ([], [], -1)
    stage.ended(txn)
    stage.run(200)
    numbers = [[n] for n in txn.batches]
    assert [stage.read(stage.topic), stage.read(stage.other)] == numbers
    assert stage.offset() == 7000
    stage.settle()


def test_what_was_decided_is_finished_by_the_next_coordinator() -> None:
    stage = CoordinatorStage()
    txn = stage.begin()
    stage.write(txn, stage.topic)
    stage.commit_offset_in(txn, 7000)
    stage.isolate(stage.leader(stage.topic))  # Its marker can't be written for now.
    asked = stage.end(txn)
    stage.run(100)
    stage.world.network.heal_all([*stage.world.brokers])
    stage.coordinator.kill()
    stage.run(4000)
    if asked.reply is None:
        stage.ended(txn)
    stage.until(lambda: stage.read(stage.topic) == [*txn.batches], 10_000)
    assert stage.offset() == 7000
    stage.settle()


def test_an_end_asked_again_gets_the_same_answer_from_the_next_coordinator() -> None:
    stage = CoordinatorStage()
    txn = stage.begin()
    stage.write(txn, stage.topic)
    stage.ended(txn)
    stage.move(stage.world.transactions_topic)
    stage.ended(txn)
    assert len(txn.answers) == 1
    stage.settle()


def test_a_late_end_does_not_touch_the_next_transaction() -> None:
    stage = CoordinatorStage()
    first = stage.begin()
    stage.write(first, stage.topic)
    second = stage.ended(first)
    stage.run(300)
    stage.write(second, stage.topic)
    late = stage.end(first)
    stage.run(300)
    assert late.reply is not None
    assert late.reply.code is ErrorCode.PRODUCER_FENCED
    assert stage.read(stage.topic) == [*first.batches]
    stage.ended(second, is_commit=False)
    stage.settle()
    assert second.fate is False


def test_a_silent_transaction_is_aborted_and_its_late_batch_refused() -> None:
    stage = CoordinatorStage()
    txn = stage.begin()
    stage.write(txn, stage.topic)
    stage.run(2 * TIMEOUT_MS)
    late = stage.send(txn, stage.topic, 1)
    stage.run(300)
    assert late.reply is not None
    assert late.reply.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert stage.read(stage.topic) == []
    stage.settle()


def test_who_takes_a_name_over_ends_what_its_predecessor_began() -> None:
    stage = CoordinatorStage()
    txn = stage.begin()
    stage.write(txn, stage.topic)
    assert stage.ask_name("name") is ErrorCode.CONCURRENT_TRANSACTIONS
    assert stage.ask_name("name") is ErrorCode.NONE
    late = stage.end(txn)
    stage.run(300)
    assert late.reply is not None
    assert late.reply.code is ErrorCode.PRODUCER_FENCED
    stage.settle()
    assert txn.fate is False


def test_a_cut_off_coordinator_confirms_no_offset() -> None:
    stage = CoordinatorStage()
    known = stage.commit_offset(5000)
    stage.run(100)
    assert known.reply is not None
    lonely = stage.group_coordinator
    stage.isolate(lonely)
    asked = stage.commit_offset(6000)
    stage.run(3000)
    assert asked.reply is None or not asked.reply.is_good
    assert stage.group_coordinator is not lonely
    assert stage.offset() == 5000
    stage.settle()


@pytest.mark.parametrize("room", range(0, 2400, 300))
def test_a_coordinator_whose_disk_is_full_goes_on_when_there_is_room(room: int) -> None:
    stage = CoordinatorStage(seed=2)
    coordinator = stage.group_coordinator
    coordinator.disk.capacity = coordinator.disk.used_bytes() + room
    asked = []
    for value in range(6000, 6060, 3):
        # It hands its groups to the others soon, and says so then.
        asked += [stage.commit_offset(value + n, at=coordinator) for n in range(3)]
        stage.run(5)
    assert coordinator.is_up
    refused = [request for request in asked if request.reply and not request.reply.is_good]
    assert refused != []
    coordinator.disk.capacity = None
    stage.run(3000)
    good = [n for n, request in enumerate(asked) if request.reply and request.reply.is_good]
    assert stage.offset() == (6000 + good[-1] if good else -1)
    stage.settle()


def test_rot_in_a_coordinators_log_is_found_before_it_serves() -> None:
    stage = CoordinatorStage()
    for value in range(5000, 5020):
        stage.commit_offset(value)
        stage.run(20)
    topic, leader = stage.world.offsets_topic, stage.group_coordinator
    rotten = next(b for b in stage.world.brokers.values() if b is not leader)
    assert rotten.flip_segment(topic)
    leader.arrive(leader.transfer, topic, rotten.number)
    stage.until(lambda: stage.world.reached["damage found"] > 0)
    stage.until(lambda: stage.world.reached["damaged replica repaired"] > 0)
    stage.run(1000)
    assert stage.offset() == 5019
    stage.settle()


def test_what_waited_for_a_former_leadership_is_not_written_by_its_machine() -> None:
    """A name needs an id from elsewhere; meanwhile the coordinator was deposed and elected again."""
    stage = CoordinatorStage()
    coordinator = stage.coordinator
    down, _ = stage.others(coordinator)
    down.kill()  # So that nobody else can be elected.
    stage.isolate(coordinator)
    asked = [stage.ask_for(coordinator, name) for name in ("first", "name", "name", "name")]
    stage.until(lambda: not coordinator.leads(stage.world.transactions_topic))
    stage.world.network.heal_all([*stage.world.brokers])
    stage.until(lambda: coordinator.leads(stage.world.transactions_topic))
    stage.run(1000)
    assert all(request.reply is not None for request in asked)
    names = [stage.name("name") for _ in range(3)]
    assert len({producer_id for producer_id, _ in names}) == 1
    assert [epoch for _, epoch in names] == [*range(names[0][1], names[0][1] + 3)]
    down.boot()
    stage.settle()


def cut_off_coordinator() -> tuple[CoordinatorStage, Request]:
    """Asked for an offset after another coordinator has taken a newer one."""
    stage = CoordinatorStage()
    first = stage.commit_offset(7000)
    stage.until(lambda: first.reply is not None)
    old = stage.group_coordinator
    stage.isolate(old)
    stage.until(lambda: stage.group_coordinator is not old)
    stage.run(60)  # It reads the log.
    second = stage.commit_offset(7001)
    stage.until(lambda: second.reply is not None)
    assert second.reply is not None
    assert second.reply.is_good
    stage.world.promises.tell("offset_told", KEY, 7001)
    assert old.leads(stage.world.offsets_topic), "as far as it knows"
    asked = stage.fetch_offset(old)
    if asked.reply is not None:
        shown = asked.reply.value[0].offset
        floor = stage.world.chronicle.acknowledged[KEY]
        stage.world.promises.tell("offset_shown", KEY, shown, floor)
    return stage, asked


def test_a_coordinator_that_was_cut_off_tells_no_old_offset() -> None:
    stage, asked = cut_off_coordinator()
    assert asked.reply is None, "it waits for a majority to say that it leads"
    stage.until(lambda: asked.reply is not None)
    assert asked.reply is not None
    assert asked.reply.code is ErrorCode.NOT_COORDINATOR
    stage.settle()
    assert stage.offset() == 7001


def test_a_coordinator_that_tells_an_old_offset_would_be_noticed() -> None:
    with broken(READS_AT_ONCE), pytest.raises(BrokenPromiseError, match="never go back"):
        cut_off_coordinator()


def test_a_duplicate_waits_like_its_original_and_is_known_to_the_next_leader() -> None:
    """Else it would be acknowledged before the original is, and written twice by whoever leads next."""
    stage = CoordinatorStage()
    txn = stage.begin()
    stage.write(txn, stage.topic)
    leader = stage.leader(stage.topic)
    stage.isolate(leader)
    original = stage.send(txn, stage.topic, 1)
    (number,) = [n for n in txn.batches if n != min(txn.batches)]
    again = stage.send_again(txn, stage.topic, 1, number)
    stage.run(200)
    assert (original.reply, again.reply) == (None, None)
    stage.world.network.heal_all([*stage.world.brokers])
    stage.until(lambda: original.reply is not None and again.reply is not None)
    assert original.reply is not None
    assert original.reply.is_good
    assert again.reply == original.reply
    stage.move(stage.topic)
    late = stage.send_again(txn, stage.topic, 1, number)
    stage.until(lambda: late.reply is not None)
    assert late.reply == original.reply
    stage.ended(txn)
    stage.run(300)
    assert stage.read(stage.topic) == [*txn.batches]
    stage.settle()


def test_what_follows_a_batch_that_the_disk_refused_is_refused_until_that_one_is_there() -> None:
    stage = CoordinatorStage()
    txn = stage.begin()
    stage.write(txn, stage.topic)
    leader = stage.leader(stage.topic)
    leader.disk.capacity = leader.disk.used_bytes()
    refused = stage.send(txn, stage.topic, 1)
    number = max(txn.batches)
    stage.until(lambda: refused.reply is not None)
    leader.disk.capacity = None
    following = stage.send(txn, stage.topic, 2)
    after = max(txn.batches)
    stage.until(lambda: following.reply is not None)
    assert refused.reply is not None
    assert following.reply is not None
    assert not refused.reply.is_good
    assert not following.reply.is_good
    for sequence, missing in ((1, number), (2, after)):
        sent = [stage.send_again(txn, stage.topic, sequence, missing)]

        def is_taken(
            sent: list[Request] = sent, place: tuple[int, int] = (sequence, missing)
        ) -> bool:
            if sent[-1].reply is not None and not sent[-1].reply.is_good:
                sent.append(stage.send_again(txn, stage.topic, *place))
            return sent[-1].reply is not None and sent[-1].reply.is_good

        stage.until(is_taken)
    stage.ended(txn)
    stage.run(300)
    assert stage.read(stage.topic) == [*txn.batches]
    stage.settle()


@pytest.mark.parametrize(
    ("name", "duty"),
    [
        (
            "duplicates_are_unknown",
            test_a_duplicate_waits_like_its_original_and_is_known_to_the_next_leader,
        ),
        (
            "sequences_are_not_checked",
            test_what_follows_a_batch_that_the_disk_refused_is_refused_until_that_one_is_there,
        ),
    ],
)
def test_producers_that_are_not_known_would_be_noticed(name: str, duty: Callable[[], None]) -> None:
    with broken(MUTANTS[name].patches), pytest.raises((BrokenPromiseError, AssertionError)):
        duty()
