"""What others learned the hard way, one scenario each (the duties of storage and consensus).

Every scenario ends with `settle`: all faults over, all replicas equal, nothing lost that was promised.
The checkers of the simulator watch throughout; what is asserted here is what they can't know.
"""

import pytest
from model.mutants import MUTANTS as STORAGE_MUTANTS
from sim.checkers import BrokenPromiseError
from sim.mutants import (
    ANY_SESSION,
    MATCH_STAYS,
    NO_DIGESTS,
    NO_LISTS,
    UNINTRODUCED,
    UNSAFE_CHANGE,
    VOTES_AT_ONCE,
    VOTES_IN_A_LEASE,
    Patch,
    broken,
)
from sim.stage import Stage
from sim.swarm import Compacting

from dmq.errors import ErrorCode
from dmq.raft.quorum import NOTHING


def test_a_power_cut_of_everybody_loses_nothing_acknowledged() -> None:
    stage = Stage()
    stage.produce_all(40)
    for broker in stage.brokers:
        broker.power_cut()
    for broker in stage.brokers:
        broker.boot()
    stage.settle()
    assert stage.facts.high >= 40


def test_an_async_voter_that_lost_its_tail_gives_no_vote_until_it_is_healed() -> None:
    stage = Stage(is_async=True)
    leader = stage.leader
    loser, other = stage.others(leader)
    stage.produce_all(10)
    loser.power_cut()
    stage.isolate(leader)
    loser.boot()
    stage.run(5000)
    assert loser.watched["topic"].state.is_recovering
    assert not loser.leads(stage.topic)
    assert not other.leads(stage.topic)
    stage.join(leader)
    stage.settle()
    assert not loser.watched["topic"].state.is_recovering
    assert stage.reached["unclean quorum"] == 0


def test_an_async_voter_whose_flush_failed_gives_no_vote_until_it_is_healed() -> None:
    """Pages of a sync that failed are on no disk. It had acknowledged them, and only the leader has
    them now: with its vote the third one would lead, and records that were committed would be gone."""
    stage = Stage(is_async=True, seed=2)
    leader = stage.leader
    loser, other = stage.others(leader)
    stage.isolate(other)
    stage.run(1000)
    assert leader.leads(stage.topic)
    loser.disk.is_sync_failing = True
    acknowledged = stage.produce_all(10)
    stage.until(lambda: stage.reached["stopped by its disk"] > 0)
    stage.isolate(leader)
    loser.cure()
    stage.until(lambda: loser.holds(stage.topic))
    assert loser.watched["topic"].log.end_offset < 10
    assert loser.watched["topic"].state.is_recovering
    stage.world.network.heal([(loser.number, other.number), (other.number, loser.number)])
    stage.run(5000)
    assert not other.leads(stage.topic)
    assert not loser.leads(stage.topic)
    stage.join(leader)
    stage.settle()
    read = {entry.number for entry in stage.read(stage.leader)}
    assert read >= {attempt.number for attempt in acknowledged}


def test_a_wiped_broker_is_a_stranger_until_it_is_made_a_voter() -> None:
    stage = Stage()
    stage.produce_all(10)
    leader = stage.leader
    wiped, other = stage.others(leader)
    old = wiped.me
    stage.isolate(leader)
    wiped.wipe()
    wiped.boot()
    stage.run(5000)
    assert not other.leads(stage.topic)
    assert wiped.me != old
    stage.join(leader)
    stage.settle()
    assert old not in leader.watched["topic"].state.voters
    assert wiped.me in leader.watched["topic"].state.voters


@pytest.mark.parametrize("is_async", [False, True])
def test_a_replica_that_returns_does_not_lead_the_group_that_it_once_was(is_async: bool) -> None:
    """It is stopped while it catches up; so far its log names it as the only voter."""
    stage = Stage(brokers=2, replicas=1, is_async=is_async)
    first = stage.leader
    (second,) = [broker for broker in stage.brokers if broker is not first]
    stage.produce_all(30)
    stage.world.metadata.place(stage.topic, [second.number])
    stage.await_leader(second)
    stage.until(lambda: not first.holds(stage.topic))
    stage.produce_all(10)
    stage.world.metadata.place(stage.topic, [first.number])
    stage.until(lambda: first.holds(stage.topic) and first.watched["topic"].log.end_offset > 0)
    stage.isolate(first)
    first.kill()
    first.boot()
    state = first.watched["topic"].state
    assert state.voters == (first.me,)
    stage.run(5000)
    assert state.is_recovering
    assert not first.leads(stage.topic)
    stage.join(first)
    stage.settle()
    assert first.leads(stage.topic)
    assert len(stage.read(first)) >= 40
    assert stage.reached["unclean quorum"] == 0


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_a_change_of_voters_is_not_lost_with_the_tail_of_an_async_log(seed: int) -> None:
    """Else the one that was replaced would lead again, as the only voter, beside its successor."""
    stage = Stage(brokers=2, replicas=1, is_async=True, seed=seed)
    first = stage.leader
    (second,) = [broker for broker in stage.brokers if broker is not first]
    stage.world.metadata.place(stage.topic, [second.number])
    while not second.leads(stage.topic):
        stage.produce(first)  # So that there are always records which no flush has seen.
        stage.run(3)
    stage.until(lambda: second.watched["topic"].state.voters == (second.me,))
    first.power_cut()
    stage.isolate(first)
    acknowledged = stage.produce_all(10)
    first.boot()
    assert first.watched["topic"].state.is_recovering
    stage.run(3000)
    assert not first.leads(stage.topic)
    stage.join(first)
    stage.settle()
    assert stage.reached["unclean quorum"] == 0
    read = {entry.number for entry in stage.read(second)}
    assert read >= {attempt.number for attempt in acknowledged}


def test_a_change_of_voters_that_is_lost_would_be_noticed() -> None:
    with (
        broken(UNSAFE_CHANGE),
        pytest.raises(BrokenPromiseError, match="voters that were replaced"),
    ):
        test_a_change_of_voters_is_not_lost_with_the_tail_of_an_async_log(seed=3)


def test_an_async_voter_that_healed_in_vain_may_heal_again() -> None:
    """Its process ends before its disk knows that it is well."""
    stage = Stage(brokers=1, replicas=1, is_async=True)
    stage.produce_all(5)
    leader = stage.leader
    leader.power_cut()
    leader.boot()
    stage.await_leader(leader)
    assert leader.me in stage.facts.mending
    leader.kill()
    leader.boot()
    assert leader.me in stage.facts.shaken
    stage.await_leader(leader)
    assert stage.reached["unclean quorum"] == 2
    stage.run(1000)
    leader.kill()
    leader.boot()
    assert not stage.facts.shaken
    stage.settle()
    assert stage.reached["unclean quorum"] == 2


def test_rot_on_a_leader_is_found_where_it_is_and_repaired_from_the_others() -> None:
    stage = Stage()
    leader = stage.leader
    behind = stage.others(leader)[0]
    stage.isolate(behind)
    stage.run(1000)
    stage.produce_all(30)
    watched = leader.watched["topic"]
    segment = watched.log.segments_list[-1]
    name = f"{watched.log.directory}/{segment.base:020d}.log"
    watched.log.fresh.clear()  # Else it is sent out of memory, where nothing rots.
    leader.disk.flip(name, segment.size - 5)
    stage.facts.damaged[leader.me] = None
    stage.facts.was_rotten = True
    stage.join(behind)
    stage.until(lambda: stage.reached["damaged replica repaired"] > 0, 20_000)
    stage.settle()
    assert leader.me not in stage.facts.damaged


def test_a_damaged_log_begins_again_where_the_others_are_compacted() -> None:
    stage = Stage(compaction=Compacting(backoff_ms=50))
    stage.produce_all(10)
    leader = stage.leader
    behind = stage.others(leader)[0]
    for broker in (leader, behind):
        assert broker.cleaner is not None
        broker.cleaner.is_idle = True
    stage.isolate(behind)
    for _ in range(5):
        stage.produce_all(20)
    stage.until(lambda: stage.reached["compacted under load"] > 3)
    watched = leader.watched["topic"]
    segment = watched.log.segments_list[1]
    leader.disk.flip(f"{watched.log.directory}/{segment.base:020d}.log", segment.size - 5)
    stage.facts.damaged[leader.me] = None
    stage.facts.was_rotten = True
    stage.join(behind)
    stage.until(lambda: stage.reached["began again"] > 0, 20_000)
    assert leader.node.counts["repair of another length"] > 0
    stage.settle()
    assert leader.me not in stage.facts.damaged
    assert len(stage.read(leader)) < 110
    assert stage.reached["compacted log sent to a follower"] > 0


@pytest.mark.parametrize("operations", range(12))
def test_the_power_goes_while_compacted_files_take_their_places(operations: int) -> None:
    stage = Stage(1, replicas=1, compaction=Compacting(backoff_ms=50))
    (broker,) = stage.brokers
    assert broker.cleaner is not None
    stage.produce_all(60)
    stage.until(lambda: broker.cleaner is not None and broker.cleaner.is_busy)
    broker.cleaner.light_fuse(operations)
    stage.until(lambda: not broker.is_up)
    assert stage.reached["crash in a compaction"] == 1
    stage.until(lambda: stage.reached["compacted under load"] > 0)
    stage.settle()


def test_a_log_that_metadata_does_not_mention_is_kept() -> None:
    stage = Stage()
    stage.produce_all(10)
    broker = stage.others(stage.leader)[0]
    broker.kill()
    topic = stage.world.metadata.topics.pop("topic")
    broker.boot()
    stage.run(3000)
    assert [key.topic_id for key in broker.node.unclaimed] == [topic.topic_id]
    stage.world.metadata.topics["topic"] = topic
    stage.world.metadata.tell_all()
    stage.settle()
    assert len(stage.read(broker)) >= 10


def test_an_uncommitted_change_of_voters_rolls_back() -> None:
    stage = Stage()
    stage.produce_all(5)
    leader = stage.leader
    one, two = stage.others(leader)
    stage.isolate(leader)
    leader.arrive(leader.host, stage.topic, (leader.me, one.me))
    assert leader.watched["topic"].state.voters == (leader.me, one.me)
    stage.await_leader(one, two)
    stage.produce_all(5)
    stage.join(leader)
    stage.until(lambda: stage.reached["configuration rolled back"] > 0)
    leader.arrive(leader.host, stage.topic, stage.world.metadata.target(stage.topic))
    stage.settle()


@pytest.mark.parametrize("operations", range(0, 24, 3))
def test_a_crash_at_any_moment_of_a_creation_forgets_no_topic(operations: int) -> None:
    """The journal went round: the topic that was there is in its own files, and nowhere else."""
    stage = Stage(seed=operations, journal_file_bytes=1024)
    first, acknowledged = stage.topic, []
    while min(broker.store._journal.next_number for broker in stage.brokers) < 12:
        acknowledged += stage.produce_all(5)
    stage.topic = stage.create("other")
    for broker in stage.brokers:
        broker.crash_after(operations + broker.number)
    stage.run(3000)
    assert stage.reached["power lost in a write"] > 0
    for broker in stage.brokers:
        broker.cure()
    assert not stage.reached["damaged at start"], "files lack what was flushed"
    stage.until(lambda: stage._leaders() != [])
    stage.produce_all(3)
    stage.topic = first
    stage.until(lambda: stage._leaders() != [])
    stage.settle()
    read = {entry.number for entry in stage.read(stage.leader)}
    assert read >= {attempt.number for attempt in acknowledged}


@pytest.mark.parametrize("name", ["flush_without_sync", "no_dirsync", "retire_unflushed"])
@pytest.mark.parametrize("operations", [0, 12])
def test_files_that_a_crash_takes_would_be_noticed(name: str, operations: int) -> None:
    is_broken, _ = STORAGE_MUTANTS[name]
    with is_broken(), pytest.raises(AssertionError, match="files lack what was flushed"):
        test_a_crash_at_any_moment_of_a_creation_forgets_no_topic(operations)


@pytest.mark.parametrize("operations", range(8))
def test_a_crash_at_any_moment_of_a_cut_leaves_files_that_the_journal_knows(
    operations: int,
) -> None:
    """Before the turn is durable files are only extended: what was flushed stays until then."""
    stage = Stage(journal_file_bytes=1024)
    stage.produce_all(5)
    old = stage.leader
    log = old.watched["topic"].log
    stage.isolate(old)
    while log.flushed_base <= 5:  # Far beyond what the next leader has.
        stage.produce(old, 2, acks=1)
        stage.run(5)
    stage.await_leader(*stage.others(old))
    stage.produce_all(3)
    stage.until(lambda: not old.leads(stage.topic))
    end = log.end_offset
    stage.join(old)
    stage.until(lambda: log.end_offset < end)
    old.crash_after(operations)
    stage.until(lambda: not old.is_up)
    old.cure()
    assert not stage.reached["damaged at start"], "files lack what was flushed"
    stage.settle()
    assert old.me not in stage.facts.damaged


@pytest.mark.parametrize("operations", [1, 2, 6])
def test_a_cut_that_comes_too_early_would_be_noticed(operations: int) -> None:
    is_broken, _ = STORAGE_MUTANTS["early_cut"]
    with is_broken(), pytest.raises(AssertionError, match="files lack what was flushed"):
        test_a_crash_at_any_moment_of_a_cut_leaves_files_that_the_journal_knows(operations)


@pytest.mark.parametrize("operations", range(0, 24, 3))
def test_a_crash_at_any_moment_of_the_first_creation_is_survived(operations: int) -> None:
    stage = Stage(has_topic=False, seed=operations)
    stage.topic = stage.create("topic")
    for broker in stage.brokers:
        broker.crash_after(operations + broker.number)
    stage.run(3000)
    for broker in stage.brokers:
        broker.cure()
    stage.until(lambda: stage._leaders() != [])
    stage.produce_all(3)
    stage.settle()


@pytest.mark.parametrize("operations", range(9))
def test_files_are_used_again_on_the_strength_of_durable_facts_only(operations: int) -> None:
    """The oldest file is needed for a log that is dropped, in a turn that goes on in the next file."""
    stage = Stage(1, replicas=1, journal_file_bytes=1024)
    (broker,) = stage.brokers
    dropped = stage.topic
    while broker.store._journal.next_number < 10:
        stage.produce_all(5)  # The journal has room for eight: by now it goes round.
    stage.produce_all(5)
    stage.topic = stage.create("other")
    stage.until(lambda: stage._leaders() != [])
    broker.kill()
    broker.boot()  # What the broker knows of itself is in the newest file now.
    stage.until(lambda: stage._leaders() != [])
    journal = broker.store._journal
    while journal.position < 600:
        stage.produce_all(1)
    assert [*journal.files[0].needed_by] == [broker.watched[dropped.name].log.uid]
    number = journal.next_number
    broker.crash_after(operations)
    stage.world.metadata.delete(dropped)
    broker.arrive(stage.world.metadata.tell, broker)
    stage.produce(broker, 4)
    stage.until(lambda: not broker.is_up)
    assert operations < 2 or journal.next_number > number
    broker.cure()
    assert not stage.reached["rotten journal"], "a file was used again that is needed still"
    stage.until(lambda: stage._leaders() != [])
    stage.produce_all(5)
    stage.settle()


@pytest.mark.parametrize("operations", range(2, 7))
def test_a_file_that_is_used_again_too_soon_would_be_noticed(operations: int) -> None:
    is_broken, _ = STORAGE_MUTANTS["retire_on_undurable"]
    with is_broken(), pytest.raises(BrokenPromiseError, match="its journal is rotten"):
        test_files_are_used_again_on_the_strength_of_durable_facts_only(operations)


@pytest.mark.parametrize("operations", range(0, 30, 5))
def test_a_crash_amid_deletions_and_creations_is_survived(operations: int) -> None:
    stage = Stage(seed=operations)
    metadata = stage.world.metadata
    for index in range(4):
        stage.produce_all(15)
        metadata.delete(stage.topic)
        stage.leader.crash_after(operations)
        stage.topic = stage.create(f"again{index}")
        stage.run(2000)
        for broker in stage.brokers:
            broker.cure()
        stage.until(lambda: stage._leaders() != [])
    stage.produce_all(5)
    stage.settle()


@pytest.mark.parametrize("operations", [0, 1, 2, 4, 7])
def test_a_crash_at_any_moment_of_a_recovery_begins_it_again(operations: int) -> None:
    stage = Stage(seed=operations)
    stage.produce_all(30)
    broker = stage.leader
    for more in range(4):
        broker.power_cut()
        broker.crash_after(operations + more)
        broker.boot()
    stage.until(lambda: stage._leaders() != [])
    stage.produce_all(5)
    stage.settle()
    assert stage.reached["crash in recovery"] > 0
    assert stage.facts.high >= 35


def test_a_leader_that_restarts_within_a_heartbeat_is_noticed() -> None:
    stage = Stage()
    stage.produce_all(5)
    leader, epoch = stage.leader, stage.leader.watched["topic"].epoch
    leader.kill()
    leader.boot()
    took = stage.until(
        lambda: stage._leaders() != [] and stage.leader.watched["topic"].epoch > epoch
    )
    assert took < 3000
    stage.produce_all(5)
    stage.settle()


@pytest.mark.parametrize("patches", [(), UNINTRODUCED])
def test_a_leader_that_restarts_and_does_not_stand_is_noticed(patches: tuple[Patch, ...]) -> None:
    """Nobody is told that it went, its links seem never to have ended, and it asks for no vote: it does
    not know yet that it has the topic. Only what it says of itself tells the others: the list with which
    a session begins, and if that says nothing the digests."""
    with broken(patches):
        stage = Stage()
        stage.produce_all(5)
        stage.until(lambda: all(broker.holds(stage.topic) for broker in stage.brokers))
        leader = stage.leader
        others = stage.others(leader)
        topic = stage.world.metadata.topics.pop("topic")
        leader.power_cut()
        leader.boot()
        stage.run(3000)
        assert leader.is_up
        assert not leader.holds(topic)
        assert any(broker.leads(topic) for broker in others), "nobody noticed"
        stage.world.metadata.topics["topic"] = topic
        stage.world.metadata.tell_all()
        stage.produce_all(5)
        stage.settle()


@pytest.mark.parametrize("patches", [NO_LISTS, UNINTRODUCED + NO_DIGESTS])
def test_a_leader_whose_restart_nobody_minds_would_be_noticed(patches: tuple[Patch, ...]) -> None:
    with broken(patches), pytest.raises(AssertionError, match="nobody noticed"):
        test_a_leader_that_restarts_and_does_not_stand_is_noticed(())


def test_a_voter_that_comes_lets_no_acknowledgement_out_early() -> None:
    """With four voters a majority is as many as the topic wants; what three had committed is on two."""
    stage = Stage(brokers=4, min_insync=3)
    leader = stage.leader
    numbers = [*stage.topic.nodes]
    (newcomer,) = [broker for broker in stage.brokers if broker.number not in numbers]
    stage.others(leader)[0].sync_ms = (900, 900)
    newcomer.sync_ms = (30, 30)
    stage.world.metadata.place(stage.topic, [*numbers, newcomer.number])
    for _ in range(2000):
        if len(leader.watched["topic"].state.voters) == 4:
            break
        stage.produce(leader)
        stage.run(3)
    stage.run(2000)  # The checkers count the disks of all that is acknowledged.
    stage.settle()
    assert len(leader.watched["topic"].state.voters) == 4


def test_a_voter_that_goes_lets_no_acknowledgement_out_early() -> None:
    """It is dead and goes before its successor comes: the topic has three replicas all the same."""
    stage = Stage(brokers=4, min_insync=3)
    leader = stage.leader
    dead, other = stage.others(leader)
    (successor,) = [b for b in stage.brokers if b.number not in stage.topic.nodes]
    dead.kill()
    numbers = [leader.number, other.number, successor.number]
    stage.world.metadata.place(stage.topic, numbers)
    stage.until(lambda: len(leader.watched["topic"].state.voters) == 2)
    (refused,) = stage.produce(leader)
    assert refused.code is ErrorCode.NOT_ENOUGH_REPLICAS
    stage.until(lambda: len(leader.watched["topic"].state.voters) == 3)
    stage.until(lambda: len(leader.watched["topic"].replica.in_sync(leader.now)) == 3)
    stage.produce_all(3)
    stage.settle()


def test_an_heir_that_is_told_late_finds_no_lease_in_its_way() -> None:
    """The handover was given up long ago when the heir hears of it, and stands."""
    stage = Stage()
    stage.produce_all(5)
    leader = stage.leader
    heir, _ = stage.others(leader)
    there, back = (leader.number, heir.number), (heir.number, leader.number)
    network = stage.world.network
    network.cut([there])
    leader.arrive(leader.transfer, stage.topic, heir.number)
    stage.run(1500)
    assert leader.watched["topic"].core.can_append
    network.cut([back])  # Nor is the leader told what comes of it.
    network.heal([there])
    stage.await_leader(heir)  # Who led has no lease then: the checkers look at everybody's.
    stage.settle()


def test_a_leader_that_was_cut_off_does_not_tell_where_its_log_ends() -> None:
    stage = Stage()
    stage.produce_all(5)
    old = stage.leader
    stage.isolate(old)
    new = stage.await_leader(*stage.others(old))
    stage.produce(new, 3)
    stage.until(lambda: stage.facts.high >= 8)
    assert old.leads(stage.topic), "as far as it knows"
    old.arrive(old.list_latest, stage.topic)
    assert old.node.counts["read waits for a round"] == 1
    stage.until(lambda: not old.leads(stage.topic))
    assert old.node.counts["leadership lost under a read"] == 1
    assert not stage.reached["latest told"]
    new.arrive(new.list_latest, stage.topic)
    stage.until(lambda: stage.reached["latest told"] == 1)
    stage.settle()


def test_a_leader_whose_heir_never_stood_tells_by_rounds_alone() -> None:
    """Its lease is void for this epoch; what a majority answers to a heartbeat sent after the question
    counts as ever."""
    stage = Stage()
    stage.produce_all(5)
    leader = stage.leader
    heir, _ = stage.others(leader)
    there, back = (leader.number, heir.number), (heir.number, leader.number)
    stage.world.network.cut([there])
    leader.arrive(leader.transfer, stage.topic, heir.number)
    stage.world.network.cut([back])
    stage.run(1500)
    core = leader.watched["topic"].core
    assert (core.can_append, core.may_lease) == (True, False)
    leader.arrive(leader.list_latest, stage.topic)
    assert not stage.reached["latest told"]
    stage.until(lambda: stage.reached["latest told"] == 1, within_ms=300)
    stage.settle()


def test_a_voter_that_was_started_again_lets_the_leases_of_its_former_life_end() -> None:
    stage = Stage()
    stage.produce_all(5)
    leader = stage.leader
    heir, voter = stage.others(leader)
    network = stage.world.network
    network.cut([(leader.number, heir.number), (heir.number, leader.number)])
    stage.run(2000)
    assert leader.leads(stage.topic), "the voter hears it"
    voter.power_cut()
    network.cut([(leader.number, voter.number), (voter.number, leader.number)])
    voter.boot()
    stage.await_leader(heir, voter)
    stage.settle()


@pytest.mark.parametrize("patches", [VOTES_AT_ONCE, VOTES_IN_A_LEASE])
def test_a_voter_that_forgot_a_lease_would_be_noticed(patches: tuple[Patch, ...]) -> None:
    with broken(patches), pytest.raises(BrokenPromiseError, match="lease"):
        test_a_voter_that_was_started_again_lets_the_leases_of_its_former_life_end()


def test_frames_of_a_former_life_count_for_nothing() -> None:
    """Acknowledgements that were under way when their sender lost power, and what it had not synced."""
    stage = Stage(is_async=True)
    leader = stage.leader
    follower = stage.others(leader)[0]
    network, kept = stage.world.network, []
    send = network.send

    def keep(src: int, dst: int, session: int, is_bulk: bool, frame: object) -> None:
        if (src, dst) == (follower.number, leader.number):
            kept.append((session, frame))
        send(src, dst, session, is_bulk, frame)

    network.send = keep  # type: ignore[method-assign]
    stage.produce_all(20)
    progress = leader.watched["topic"].state.leading.followers[follower.me]
    old = progress.session
    assert progress.match.offset == 20
    follower.power_cut()
    follower.boot()
    stage.until(lambda: progress.session > old)
    assert progress.match == NOTHING, "a former life counts still"
    for session, frame in kept:
        if session == old:
            leader.receive(follower.number, session, frame)
    assert progress.match == NOTHING, "a former life counts again"
    stage.settle()


@pytest.mark.parametrize(("patches", "finding"), [(ANY_SESSION, "again"), (MATCH_STAYS, "still")])
def test_frames_of_a_former_life_would_be_noticed(patches: tuple[Patch, ...], finding: str) -> None:
    with broken(patches), pytest.raises(AssertionError, match=f"a former life counts {finding}"):
        test_frames_of_a_former_life_count_for_nothing()


def test_a_cut_off_leader_shows_nothing_that_is_not_committed() -> None:
    stage = Stage()
    acknowledged = stage.produce_all(5)
    leader = stage.leader
    stage.isolate(leader)
    lonely = stage.produce(leader, 5, acks=1)
    stage.run(200)
    assert [attempt.code for attempt in lonely] == [ErrorCode.NONE] * 5
    assert len(stage.read(leader)) == len(acknowledged)
    new = stage.await_leader(*stage.others(leader))
    stage.produce_all(2)
    assert len(stage.read(new)) == len(acknowledged) + 2
    stage.join(leader)
    stage.settle()


def test_a_deposed_leader_does_not_guess() -> None:
    stage = Stage()
    leader = stage.leader
    stage.produce_all(3)
    stage.isolate(leader)
    (lost,) = stage.produce(leader)
    stage.await_leader(*stage.others(leader))
    assert lost.code is None, "nobody can know yet"
    stage.produce_all(1)
    stage.join(leader)
    stage.until(lambda: lost.code is not None)
    assert lost.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    stage.settle()
    assert lost.number not in stage.facts.by_number


def test_a_deposed_leader_says_success_if_its_successor_commits_the_record() -> None:
    stage = Stage()
    leader = stage.leader
    stage.produce_all(3)
    others = [b.number for b in stage.others(leader)]
    back = [(number, leader.number) for number in others]
    stage.world.network.cut(back)  # They hear it, it does not hear them.
    (kept,) = stage.produce(leader)
    stage.run(200)
    stage.isolate(leader)
    stage.await_leader(*stage.others(leader))
    stage.produce_all(1)
    stage.world.network.heal(back)
    stage.join(leader)
    stage.until(lambda: kept.code is not None)
    assert kept.code is ErrorCode.NONE
    stage.settle()


def test_a_full_disk_refuses_definitely_and_serves_again_when_there_is_room() -> None:
    stage = Stage(brokers=1, replicas=1)
    stage.produce_all(3)
    leader = stage.leader
    leader.disk.capacity = leader.disk.used_bytes()
    refused = stage.produce(leader, 100)
    stage.until(lambda: all(attempt.code is not None for attempt in refused))
    assert {a.code for a in refused} <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
    leader.disk.capacity = None
    stage.run(1000)
    stage.produce_all(3)
    stage.settle()
