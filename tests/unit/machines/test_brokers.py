"""Brokers register, are replaced by themselves, and leave."""

import pytest
from unit.machines.cluster_of import SUPPORTED_FEATURES, Cluster, load_state, new_machine

from dmq.errors import ErrorCode, KafkaError
from dmq.machines.brokers import (
    FORMER_MAX,
    FORMER_OF_ONE_MAX,
    NODE_MAX,
    PEER_LISTENER,
    is_fenced,
    is_unregistered,
    peer_addresses,
)
from dmq.machines.commands import CreateTopics, NewTopic, UnregisterBroker
from dmq.machines.machine import Record
from dmq.machines.records import Endpoint, FeatureRange, RegistrationsRecord, encode


def refused_with(code: ErrorCode) -> "pytest.RaisesContext":  # type: ignore[type-arg,name-defined]
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


def test_a_broker_registers_and_comes_back() -> None:
    cluster = Cluster(0)
    first = cluster.registration(
        4, rack="r", endpoints=(Endpoint("PLAINTEXT", "h", 1, "PLAINTEXT"),)
    )
    registered = cluster.do(first)
    assert (registered.node, registered.epoch) == (4, 1)
    length = len(cluster.log)
    assert cluster.do(first).epoch == 1
    assert len(cluster.log) == length, "the same registration again writes nothing"
    again = cluster.registration(4, directory=first.directory)
    assert cluster.do(again).epoch == 2
    assert cluster.state.brokers[4].incarnation == again.incarnation


def test_a_broker_without_a_number_gets_the_next_one() -> None:
    cluster = Cluster(3)
    assert cluster.do(cluster.registration(-1)).node == 4
    cluster.do(cluster.registration(9))
    assert cluster.do(cluster.registration(-1)).node == 10


def test_numbers_are_those_that_clients_can_be_told() -> None:
    cluster = Cluster(2)
    for node in (NODE_MAX + 1, 2**63, -2):
        with refused_with(ErrorCode.INVALID_REGISTRATION):
            cluster.do(cluster.registration(node))
    assert cluster.do(cluster.registration(NODE_MAX)).node == NODE_MAX
    asked = cluster.registration(-1)
    assert cluster.do(asked).node == 3, "the lowest that is free, when the highest is taken"
    assert cluster.do(cluster.registration(-1)).node == 4
    assert cluster.do(asked).node == 3
    cluster.do(UnregisterBroker(3))
    cluster.do(UnregisterBroker(NODE_MAX))
    assert cluster.do(cluster.registration(-1)).node == 5, "not one that somebody had"
    cluster.machine.state = load_state(cluster.log)
    assert cluster.do(cluster.registration(-1)).node == 6


def test_who_asks_again_for_a_number_gets_the_same() -> None:
    """The answer was lost, or the process died before it wrote its number down."""
    cluster = Cluster(3)
    asked = cluster.registration(-1)
    first = cluster.do(asked)
    assert cluster.do(asked) == first
    other_process = cluster.registration(-1, directory=asked.directory)
    assert cluster.do(other_process).node == first.node
    assert cluster.do(cluster.registration(-1)).node == first.node + 1


def test_numbers_and_epochs_are_never_given_twice() -> None:
    cluster = Cluster(3)
    gone = cluster.do(cluster.registration(-1))
    cluster.do(UnregisterBroker(gone.node))
    log = [record for record in cluster.log if record.key != b"broker/4"]
    cluster.machine.state = load_state(log)
    next_one = cluster.do(cluster.registration(-1))
    assert (next_one.node, next_one.epoch) == (gone.node + 1, gone.epoch + 1)
    assert cluster.do(cluster.registration(gone.node)).epoch == gone.epoch + 2


def test_the_directory_of_a_broker_that_left_does_not_bring_it_back() -> None:
    cluster = Cluster(3)
    ours = cluster.state.cluster_id
    known = cluster.state.brokers[3]
    cluster.do(UnregisterBroker(3))
    with refused_with(ErrorCode.BROKER_ID_NOT_REGISTERED):
        cluster.do(cluster.registration(3, directory=known.directory, cluster_id=ours))
    assert cluster.do(cluster.registration(3)).node == 3, "with an empty one it may"


def test_a_directory_that_was_taken_out_does_not_take_its_number_from_the_next_one() -> None:
    cluster = Cluster(3)
    ours = cluster.state.cluster_id
    first = cluster.state.brokers[3].directory
    cluster.do(UnregisterBroker(3))
    second = cluster.registration(3)
    cluster.do(second)
    cluster.machine.state = load_state(cluster.log)
    with refused_with(ErrorCode.DUPLICATE_BROKER_REGISTRATION) as refused:
        cluster.do(cluster.registration(3, directory=first, cluster_id=ours))
    assert "was taken out of the cluster" in str(refused.value)
    assert cluster.state.brokers[3].directory == second.directory
    back = cluster.registration(3, directory=second.directory, cluster_id=ours)
    assert cluster.do(back).node == 3, "its successor starts again as ever"


def test_all_that_had_a_number_and_were_taken_out_are_refused() -> None:
    cluster = Cluster(3)
    ours = cluster.state.cluster_id
    seen = []
    for _ in range(FORMER_OF_ONE_MAX + 5):
        seen.append(cluster.state.brokers[2].directory)
        cluster.do(UnregisterBroker(2))
        cluster.do(cluster.registration(2))
    for directory in seen[5:]:
        with refused_with(ErrorCode.DUPLICATE_BROKER_REGISTRATION):
            cluster.do(cluster.registration(2, directory=directory, cluster_id=ours))
    assert [voter.directory for voter in cluster.state.former] == seen[5:]


def test_a_directory_that_was_replaced_may_take_its_number_back() -> None:
    """Somebody started the broker with an empty folder by mistake."""
    cluster = Cluster(3)
    ours = cluster.state.cluster_id
    first = cluster.state.brokers[3].directory
    cluster.do(cluster.registration(3))
    cluster.do(cluster.registration(3, directory=first, cluster_id=ours))
    assert cluster.state.brokers[3].directory == first


def test_a_newcomer_that_was_taken_out_before_it_knew_may_come_again() -> None:
    """It asks with the same directory, which is empty still; the answer to its first try was lost."""
    cluster = Cluster(3)
    newcomer = cluster.registration(7)
    cluster.do(newcomer)
    cluster.do(UnregisterBroker(7))
    cluster.do(newcomer)
    started = cluster.registration(
        7, directory=newcomer.directory, cluster_id=cluster.state.cluster_id
    )
    assert cluster.do(started).node == 7


def test_former_directories_are_bounded() -> None:
    cluster = Cluster(1)
    for node in range(2, FORMER_MAX + 9):
        cluster.do(cluster.registration(node))
        cluster.do(UnregisterBroker(node))
    assert len(cluster.state.former) == FORMER_MAX
    assert cluster.state.former[-1].node == FORMER_MAX + 8


def test_a_cluster_may_begin_with_broker_0() -> None:
    cluster = Cluster(0)
    first = cluster.registration(0, cluster_id=cluster.state.cluster_id)
    assert cluster.do(first).node == 0


def test_a_directory_from_before_numbers_were_counted() -> None:
    cluster = Cluster(3)
    cluster.machine.state = load_state(
        [record for record in cluster.log if record.key != b"registrations"]
    )
    registered = cluster.do(cluster.registration(-1))
    assert (registered.node, registered.epoch) == (4, 4)


def test_registrations_that_are_refused() -> None:
    cluster = Cluster(1)
    known = cluster.state.brokers[1]
    with refused_with(ErrorCode.INCONSISTENT_CLUSTER_ID):
        cluster.do(cluster.registration(2, cluster_id="other"))
    with refused_with(ErrorCode.UNSUPPORTED_VERSION):
        cluster.do(cluster.registration(2, features={}))
    with refused_with(ErrorCode.UNSUPPORTED_VERSION):
        cluster.do(cluster.registration(2, features={"dmq.version": FeatureRange(2, 3)}))
    with refused_with(ErrorCode.DUPLICATE_BROKER_REGISTRATION):
        cluster.do(cluster.registration(2, directory=known.directory))
    cluster.do(cluster.registration(1, directory=known.directory, journal_seq=10))
    with refused_with(ErrorCode.INVALID_REGISTRATION):
        cluster.do(cluster.registration(1, directory=known.directory, journal_seq=9))
    with refused_with(ErrorCode.INVALID_REGISTRATION):
        cluster.do(cluster.registration(-1, directory=known.directory, journal_seq=9))


def test_a_wiped_disk_comes_back_under_its_number() -> None:
    cluster = Cluster(3)
    before = cluster.state.brokers[2]
    cluster.do(cluster.registration(2, directory=before.directory, journal_seq=10))
    wiped = cluster.registration(2, journal_seq=0)
    assert cluster.do(wiped).node == 2
    assert cluster.state.brokers[2].directory == wiped.directory != before.directory


def test_of_two_processes_with_one_number_the_older_is_fenced() -> None:
    cluster = Cluster(3)
    older = cluster.registration(2)
    epoch = cluster.do(older).epoch
    assert not is_fenced(cluster.state, 2, epoch)
    newer = cluster.do(cluster.registration(2))
    assert is_fenced(cluster.state, 2, epoch)
    assert not is_unregistered(cluster.state, 2, epoch)
    assert not is_fenced(cluster.state, 2, newer.epoch)
    # It can't take its number back either, if it missed that.
    again = cluster.registration(
        2, directory=older.directory, incarnation=older.incarnation, previous_epoch=epoch
    )
    with refused_with(ErrorCode.STALE_BROKER_EPOCH):
        cluster.do(again)
    cluster.do(UnregisterBroker(2))
    assert is_fenced(cluster.state, 2, newer.epoch)
    assert is_unregistered(cluster.state, 2, newer.epoch)
    with refused_with(ErrorCode.STALE_BROKER_EPOCH):
        cluster.do(cluster.registration(2, previous_epoch=newer.epoch))


def test_who_has_not_read_its_own_registration_yet_is_not_fenced() -> None:
    """A newcomer reads the log from its beginning, with the answer in hand."""
    cluster = Cluster(3)
    wiped = cluster.do(cluster.registration(2))
    registered = cluster.do(cluster.registration(-1))
    machine = new_machine()
    for record in cluster.log:
        assert not is_fenced(machine.state, registered.node, registered.epoch)
        assert not is_fenced(machine.state, wiped.node, wiped.epoch)
        machine.apply(record)
    assert not is_fenced(machine.state, registered.node, registered.epoch)
    cluster.do(UnregisterBroker(registered.node))
    assert is_fenced(cluster.state, registered.node, registered.epoch)


def test_a_process_tells_something_new_about_itself() -> None:
    cluster = Cluster(1)
    first = cluster.registration(2)
    epoch = cluster.do(first).epoch
    same = {"directory": first.directory, "incarnation": first.incarnation}
    moved = cluster.registration(2, **same, rack="r", previous_epoch=epoch)
    assert cluster.do(moved).epoch == epoch
    assert cluster.state.brokers[2].rack == "r"


def test_where_brokers_reach_each_other() -> None:
    cluster = Cluster(0)
    for node in (1, 2, 3):
        endpoints = (
            Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT"),
            Endpoint(PEER_LISTENER, f"h{node}", 9093 + node, "PEER"),
        )
        cluster.do(cluster.registration(node, endpoints=endpoints))
    cluster.do(cluster.registration(4))
    assert peer_addresses(cluster.state, but=2) == {1: ("h1", 9094), 3: ("h3", 9096)}


def test_a_broker_leaves_when_it_has_nothing() -> None:
    cluster = Cluster(2)
    cluster.create("t", assignments=((0, (2,)),))
    with refused_with(ErrorCode.INVALID_REQUEST):
        cluster.do(UnregisterBroker(2))
    cluster.do(UnregisterBroker(1))
    assert list(cluster.state.brokers) == [2]
    with refused_with(ErrorCode.BROKER_ID_NOT_REGISTERED):
        cluster.do(UnregisterBroker(1))


def test_the_last_broker_stays() -> None:
    cluster = Cluster(2)
    cluster.do(UnregisterBroker(1, voters=(1,)))
    with refused_with(ErrorCode.INVALID_REQUEST):
        cluster.do(UnregisterBroker(2))


def test_a_voter_on_the_metadata_is_replaced_before_it_is_gone() -> None:
    cluster = Cluster(4)
    cluster.do(UnregisterBroker(3, voters=(1, 2, 3)))
    assert cluster.state.brokers[3].is_leaving
    before = len(cluster.log)
    cluster.do(UnregisterBroker(3, voters=(1, 2, 3)))
    assert len(cluster.log) == before, "it is known already"
    cluster.do(cluster.registration(3))
    assert cluster.state.brokers[3].is_leaving, "a restart does not undo it"
    cluster.do(UnregisterBroker(3, voters=(1, 2, 4)))
    assert 3 not in cluster.state.brokers
    cluster.do(cluster.registration(3))
    assert not cluster.state.brokers[3].is_leaving, "this is a new beginning"


def test_a_broker_that_leaves_gets_nothing_new() -> None:
    cluster = Cluster(4)
    cluster.do(UnregisterBroker(4, voters=(4,)))
    cluster.create("t", 12, 3)
    assert 4 not in cluster.state.loads
    refused = cluster.create("u", assignments=((0, (4,)),))
    assert refused.error is not None
    assert refused.error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.create("v", 1, 4).error is not None
    topic = NewTopic("w", cluster.uuid(), 6, 3)
    (created,) = cluster.do(CreateTopics((topic,), usable=(1, 2, 4)))
    assert created.error is None
    assert 4 not in cluster.state.loads, "nor does it fill up for one that is down"


def test_the_default_replication_factor_counts_registered_brokers_not_live_ones() -> None:
    cluster = Cluster(3)
    topic = NewTopic("t", cluster.uuid())
    (created,) = cluster.do(CreateTopics((topic,), usable=(1, 2)))
    assert (created.error, created.replication_factor) == (None, 3)
    cluster = Cluster(3)
    cluster.do(UnregisterBroker(3, voters=(3,)))
    (created,) = cluster.do(CreateTopics((topic,), usable=(1, 2)))
    assert (created.error, created.replication_factor) == (None, 1)


def test_by_hand_replicas_may_be_down_but_not_all_of_them() -> None:
    cluster = Cluster(3)

    def create(name: str, *replicas: int) -> ErrorCode | None:
        topic = NewTopic(name, cluster.uuid(), assignments=((0, replicas),))
        (created,) = cluster.do(CreateTopics((topic,), usable=(1,)))
        return None if created.error is None else created.error.code

    assert create("t", 1, 2, 3) is None
    assert create("u", 2, 3) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_features_must_fit_when_a_broker_comes() -> None:
    cluster = Cluster(1)
    more = {**SUPPORTED_FEATURES, "other": FeatureRange(1, 2)}
    assert cluster.do(cluster.registration(2, features=more)).node == 2


def test_counters_are_a_record_of_their_own() -> None:
    cluster = Cluster(2)
    last: dict[bytes, Record] = {record.key: record for record in cluster.log}
    assert last[b"registrations"] == encode(RegistrationsRecord(3, 3))
