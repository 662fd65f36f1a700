"""`dmq cluster` and `dmq partition`: what they ask of a cluster, what they say, how they end."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from unit.cli.fake_cluster import SIZE, FakeCluster

from dmq.cli.app import run
from dmq.cli.cluster_facts import Cluster, Partition
from dmq.cli.cluster_wire import Move, UnsureError
from dmq.cli.exits import CommandError, Exit
from dmq.errors import ErrorCode

A, B, C = ("t", 0), ("t", 1), ("u", 0)


def three(monkeypatch: pytest.MonkeyPatch, brokers: int = 3) -> FakeCluster:
    placed = {A: [1, 2, 3], B: [2, 3, 1], C: [3, 1, 2]}
    return FakeCluster(brokers, placed).serve(monkeypatch)


def printed(capsys: pytest.CaptureFixture[str], *args: str, code: int = Exit.OK) -> Any:
    assert run([*args, "--json"]) == code
    return json.loads(capsys.readouterr().out)


# --- status


def test_a_healthy_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    three(monkeypatch)
    assert run(["cluster", "status", "--check"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cluster abc: healthy"
    assert "3 brokers, 2 topics, 3 partitions" in lines[1]
    assert "metadata led by 1 (epoch 3), voters 1,2,3" in lines[2]
    assert lines[3].split()[:5] == ["BROKER", "ADDRESS", "RACK", "STATE", "METADATA"]
    assert lines[4].split()[:7] == ["1", "h:9001", "r1", "up", "leader", "1", "3"]
    assert len(lines) == 7


def test_trouble_is_told_the_worst_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch)
    cluster.replicas[C] = [3, 1]
    cluster.stop(3)
    assert run(["cluster", "status", "--check"]) == Exit.FAILURE
    text = capsys.readouterr().out
    assert "not available in part" in text.splitlines()[0]
    assert "1 broker down: 3" in text
    assert "1 partition without a leader" in text
    assert "3 partitions under-replicated" in text
    assert text.index("Partitions without leader") < text.index("Partitions under-replicated")
    assert "u:0" in text


def test_status_for_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=4)
    cluster.stop(3)
    told = printed(capsys, "cluster", "status")
    assert not told["healthy"]
    assert told["metadata"]["voters"] == [1, 2, 3]
    assert told["metadata"]["observers"] == [4]
    assert told["metadata"]["lag"] == {"1": 0, "2": 1, "3": 2, "4": 3}
    third = told["brokers"][2]
    assert (third["up"], third["leaders"], third["replicas"]) == (False, 0, 3)
    assert third["log_bytes"] is None
    first = told["brokers"][0]
    assert (first["log_bytes"], first["disk_free_bytes"]) == (3 * SIZE, 10**8)
    assert [each["topic"] for each in told["under_replicated"]] == ["t", "t", "u"]
    assert told["leaderless"] == []


def test_a_move_is_no_trouble() -> None:
    """What comes is not in sync yet, what goes is not any more, and neither can lead."""
    first = Partition("t", 0, 2, 7, [4, 2, 3, 1], [2, 3, 1], [])
    second = Partition("t", 1, 2, 7, [2, 3, 1], [2, 3], [])
    moves = [Move("t", 0, [4, 2, 3, 1], [4], [1])]
    still, moving = (Cluster(None, {}, [first, second], 1, None, m) for m in ([], moves))
    assert (still.under_replicated, still.not_preferred) == ([first, second], [first])
    assert (moving.under_replicated, moving.not_preferred) == ([second], [])


def test_a_broker_that_nobody_registered_is_shown_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch)
    cluster.replicas[A] = [1, 2, 9]
    assert run(["cluster", "status"]) == Exit.OK
    row = next(line for line in capsys.readouterr().out.splitlines() if line.split()[0] == "9")
    assert row.split()[1] == "unknown"


def test_moves_are_shown_with_what_they_have_copied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=5)
    cluster.looks_per_move = 12
    cluster.reassign({A: [1, 4, 5], B: [3, 2, 1]})
    cluster.moves()  # And twice with each gathering.
    assert run(["cluster", "status"]) == Exit.OK
    text = capsys.readouterr().out
    row = next(line for line in text.splitlines() if line.startswith("t:0"))
    assert row.split()[:4] == ["t:0", "1,4,5,2,3", "4,5", "2,3"]
    assert row.endswith("500 B of 2.0 KiB (25%)")
    cluster.moves()
    [move] = printed(capsys, "cluster", "status")["moving"]
    assert (move["copied_bytes"], move["total_bytes"]) == (SIZE, 2 * SIZE)
    cluster.mute = {5}
    [move] = printed(capsys, "cluster", "status")["moving"]
    assert (move["copied_bytes"], move["total_bytes"]) == (None, 2 * SIZE)


def test_metadata_without_a_leader_are_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch)
    cluster.stop(2)
    cluster.is_headless = True
    assert run(["cluster", "status", "--check"]) == Exit.FAILURE
    lines = capsys.readouterr().out.splitlines()
    [told] = [line for line in lines if "the metadata have no leader" in line]
    assert "Start the brokers that are down (2)" in told
    assert "--accept-lost" in told
    row = next(line for line in lines if "h:9001" in line)
    assert row.split()[4] == "?"
    metadata = printed(capsys, "cluster", "status")["metadata"]
    assert (metadata["has_leader"], metadata["leader"], metadata["voters"]) == (False, None, None)


@pytest.mark.parametrize("words", [["rebalance"], ["decommission", "2", "--yes"]])
def test_nothing_is_planned_that_nobody_could_order(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch)
    cluster.is_headless = True
    assert run(["cluster", *words]) == Exit.FAILURE
    told = capsys.readouterr().err
    assert told.startswith(
        "error: The cluster's metadata have no leader, so nothing can be changed."
    )
    assert "dmq cluster status" in told
    assert not any(entry[0] in ("reassign", "elect") for entry in cluster.log)


def test_one_reason_is_told_once_and_many_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    placed = {("t", index): [1, 2, 3] for index in range(20)}
    cluster = FakeCluster(4, placed).serve(monkeypatch)
    cluster.refuses = dict.fromkeys(placed, ErrorCode.REASSIGNMENT_IN_PROGRESS)
    assert run(["cluster", "rebalance"]) != Exit.OK
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if line.endswith(": no.")]) == 5
    assert lines[-1].endswith("more.")
    cluster.refuses = dict.fromkeys(placed, ErrorCode.NOT_CONTROLLER)
    assert run(["cluster", "rebalance"]) != Exit.OK
    [line] = capsys.readouterr().err.splitlines()
    assert "metadata have no leader" in line


# --- rebalance


def test_a_new_broker_gets_its_share(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=4)
    plan = printed(capsys, "cluster", "rebalance", "--dry-run")
    assert plan["moves"]
    assert plan["copied_bytes"] == 2 * SIZE
    assert not any(entry[0] == "reassign" for entry in cluster.log)
    done = printed(capsys, "cluster", "rebalance", "--at-once", "1")
    assert len(done["moved"]) == len(plan["moves"])
    assert done["refused"] == []
    counts = [sum(node in nodes for nodes in cluster.replicas.values()) for node in (1, 2, 3, 4)]
    assert max(counts) - min(counts) <= 1
    batches = [entry[1] for entry in cluster.log if entry[0] == "reassign"]
    assert all(len(batch) == 1 for batch in batches)
    assert printed(capsys, "cluster", "rebalance", "--dry-run")["moves"] == []


def test_a_broker_that_is_behind_does_not_make_moves_arrive(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=4)
    cluster.looks_per_move, cluster.looks_behind = 5, 3
    done = printed(capsys, "cluster", "rebalance")
    assert done["moved"]
    cluster.looks_behind = 0
    assert cluster.moves() == [], "it waited for their end"


def test_a_move_that_somebody_takes_back_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=4)
    monkeypatch.setattr("dmq.cli.cluster_moves.BEHIND_S", 0.05)
    cluster.looks_behind = 10**9
    assert printed(capsys, "cluster", "rebalance")["refused"] == []


def test_how_far_moves_are_is_told_without_a_terminal_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster(2, {A: [1], B: [1]}).serve(monkeypatch)
    cluster.looks_per_move = 4
    monkeypatch.setattr("dmq.cli.output.PLAIN_EACH_S", 0.0)
    assert run(["cluster", "rebalance"]) == Exit.OK
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("moving: ")]
    assert told == [
        f"moving: 0 of 1 partition, {copied} B of 1000 B copied ({copied // 10}%)"
        for copied in (250, 500, 750, 1000)
    ] + ["moving: 1 of 1 partition, 1000 B of 1000 B copied (100%)"]
    asked = [entry[1:] for entry in cluster.log if entry[0] == "log dirs" and entry[2] is not None]
    assert asked
    assert all(entry == (2, [A]) or entry == (2, [B]) for entry in asked), "only what moves"
    assert run(["cluster", "rebalance", "--quiet"]) == Exit.OK
    assert capsys.readouterr().err == ""


def test_what_is_over_soon_writes_no_line_of_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    three(monkeypatch, brokers=4)
    assert run(["cluster", "rebalance"]) == Exit.OK
    assert "moving:" not in capsys.readouterr().err


def test_brokers_that_do_not_tell_of_their_disks_hold_nothing_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=4)
    cluster.looks_per_move = 5
    cluster.mute = {4}
    assert run(["cluster", "rebalance", "--at-once", "1"]) == Exit.OK
    asked = [entry for entry in cluster.log if entry[:2] == ("log dirs", 4) and entry[2]]
    assert len(asked) == 1, "and are left alone for a while"
    assert max(sum(node in nodes for nodes in cluster.replicas.values()) for node in (1, 4)) <= 3


@pytest.mark.parametrize("is_copying", [True, False])
def test_a_large_partition_that_gets_on_is_no_standstill(
    is_copying: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster(2, {A: [1], B: [1]}).serve(monkeypatch)
    cluster.looks_per_move = 20
    cluster.mute = set() if is_copying else {2}
    monkeypatch.setattr("dmq.cli.cluster_moves.QUIET_S", 0.0)
    assert run(["cluster", "rebalance"]) == Exit.OK
    assert ("is a broker that gets a replica down?" in capsys.readouterr().err) != is_copying


def test_a_move_that_stands_still_without_a_leader_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster(2, {A: [1], B: [1]}).serve(monkeypatch)
    cluster.looks_per_move, cluster.mute = 20, {2}
    reassign = cluster.reassign

    def lose_the_leader(targets: Any, *, may_resize: bool = False) -> Any:
        cluster.leaders = dict.fromkeys(cluster.leaders, -1)
        return reassign(targets, may_resize=may_resize)

    monkeypatch.setattr(cluster, "reassign", lose_the_leader)
    monkeypatch.setattr("dmq.cli.cluster_moves.QUIET_S", 0.0)
    assert run(["cluster", "rebalance"]) == Exit.OK
    told = capsys.readouterr().err
    assert "t:1 has no leader" in told or "t:0 has no leader" in told
    assert "is a broker that gets a replica down?" not in told


def test_what_is_refused_is_told_and_the_rest_moves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dmq.errors import ErrorCode

    cluster = three(monkeypatch, brokers=4)
    moves = printed(capsys, "cluster", "rebalance", "--dry-run")["moves"]
    refused = (moves[0]["topic"], moves[0]["partition"])
    cluster.refuses = {refused: ErrorCode.REASSIGNMENT_IN_PROGRESS}
    assert run(["cluster", "rebalance"]) == Exit.PARTLY_FAILED
    assert f"{refused[0]}:{refused[1]}: no" in capsys.readouterr().err


def test_a_throttle_is_not_pretended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    three(monkeypatch)
    assert run(["cluster", "rebalance", "--throttle", "10MB"]) == Exit.USAGE
    assert "--at-once" in capsys.readouterr().err


def test_time_that_is_over_stops_the_wait_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=4)
    cluster.looks_per_move = 10**9
    assert run(["cluster", "rebalance", "--timeout", "0"]) == Exit.FAILURE
    assert "go on by themselves" in capsys.readouterr().err


# --- plans while others move replicas


def begun(cluster: FakeCluster, after: list[int]) -> Callable[[], None]:
    """Somebody else moves the first partition."""
    return lambda: void(cluster.reassign({A: after}))


def void(_: object) -> None:
    """For lambdas that return nothing."""


@pytest.mark.parametrize("command", [["decommission", "2"], ["rebalance"]])
@pytest.mark.parametrize("is_ending", [False, True])
def test_a_move_that_begins_or_ends_meanwhile_costs_no_replica(
    command: list[str],
    is_ending: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = three(monkeypatch, brokers=5)
    cluster.looks_per_move = 100
    cluster.meanwhile = [begun(cluster, [4, 2, 3])]
    if is_ending:
        cluster.metadata()
        cluster.meanwhile = [lambda: cluster.end(A)]
    plan = printed(capsys, "cluster", *command, "--dry-run")
    assert plan["moves"]
    assert [len(move["new_replicas"]) for move in plan["moves"]] == [3] * len(plan["moves"])


def test_a_partition_of_which_nobody_can_be_sure_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=5)
    cluster.looks_per_move = 100
    cluster.meanwhile = [begun(cluster, [4, 2, 3]), lambda: cluster.end(A)]
    cluster.meanwhile += [begun(cluster, [1, 2, 3]), lambda: cluster.end(A)]
    cluster.meanwhile += [begun(cluster, [4, 2, 3])]
    plan = printed(capsys, "cluster", "decommission", "2", "--dry-run")
    assert [(move["topic"], move["partition"]) for move in plan["moves"]] == [B, C]


def test_a_partition_with_fewer_replicas_than_its_topic_gets_them_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=4)
    cluster.replicas[B] = [2, 3]
    assert run(["cluster", "status", "--check"]) == Exit.FAILURE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("degraded")
    assert any("fewer replicas than the rest of the topic: t:1 (" in line for line in lines)
    told = printed(capsys, "cluster", "status")
    assert told["thin"] == [{"topic": "t", "partition": 1, "missing_replicas": 1}]
    assert printed(capsys, "cluster", "rebalance")["refused"] == []
    assert [len(nodes) for nodes in cluster.replicas.values()] == [3, 3, 3]
    assert printed(capsys, "cluster", "status")["thin"] == []


def test_a_partition_for_which_there_is_no_broker_stays_thin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch)
    cluster.replicas[B] = [2, 3]
    cluster.stop(1)
    assert printed(capsys, "cluster", "rebalance", "--dry-run")["copied_bytes"] == 0
    assert sorted(cluster.replicas[B]) == [2, 3]


def test_a_leader_changes_while_its_partition_moves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=4)
    cluster.looks_per_move = 100
    cluster.reassign({A: [4, 2, 3]})
    assert run(["cluster", "transfer-leader", "t:0", "1"]) == Exit.USAGE
    assert "no replica of t:0 that stays: 4,2,3 have" in capsys.readouterr().err
    assert run(["cluster", "transfer-leader", "t:0", "3"]) == Exit.OK
    assert ("reassign", {A: [3, 4, 2]}) in cluster.log


# --- decommission


def test_a_broker_leaves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=4)
    cluster.looks_per_move = 3
    cluster.looks_to_leave = 4
    told = printed(capsys, "cluster", "decommission", "2", "--yes")
    assert told["unregistered"]
    assert cluster.registered == [1, 3, 4]
    assert cluster.log[-3:-1] == [("avoid", ("h", 9002)), ("unregister", 2)]
    assert all(2 not in nodes for nodes in cluster.replicas.values())
    assert all(len(nodes) == 3 for nodes in cluster.replicas.values())
    assert all(cluster.leaders[where] == nodes[0] for where, nodes in cluster.replicas.items())


def test_a_broker_that_can_not_leave_in_time_is_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=4)
    cluster.looks_to_leave = 10**9
    words = ("cluster", "decommission", "4", "--yes", "--timeout", "0.05")
    assert run([*words]) == Exit.FAILURE
    assert "still votes on the metadata" in capsys.readouterr().err


def test_it_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=4)
    cluster.looks_per_move = 4
    cluster.reassign({A: [1, 4, 3]})
    cluster.log.clear()
    told = printed(capsys, "cluster", "decommission", "2", "--yes")
    [batch] = [entry[1] for entry in cluster.log if entry[0] == "reassign"]
    assert A not in batch
    assert {"topic": "t", "partition": 0} in told["moved"]
    assert cluster.registered == [1, 3, 4]


def test_a_broker_that_is_needed_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch)
    assert run(["cluster", "decommission", "2", "--yes"]) == Exit.FAILURE
    assert "can't be taken out" in capsys.readouterr().err
    assert cluster.registered == [1, 2, 3]
    assert run(["cluster", "decommission", "7", "--yes"]) == Exit.NOT_FOUND


def test_nothing_moves_without_a_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=4)
    assert run(["cluster", "decommission", "2"]) == Exit.USAGE
    assert not any(entry[0] == "reassign" for entry in cluster.log)
    assert ("hang up",) in cluster.log


def test_a_broker_whose_replicas_do_not_all_move_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dmq.errors import ErrorCode

    cluster = three(monkeypatch, brokers=4)
    cluster.refuses = {A: ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert run(["cluster", "decommission", "2", "--yes"]) == Exit.PARTLY_FAILED
    assert 2 in cluster.registered


def test_replicas_that_somebody_else_moves_to_a_leaving_broker_move_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=5)
    cluster.looks_per_move = 4
    nothing: Callable[[], None] = lambda: None  # noqa: E731
    cluster.meanwhile = [nothing, begun(cluster, [1, 2, 3])]
    told = printed(capsys, "cluster", "decommission", "2", "--yes")
    assert told["unregistered"]
    assert all(2 not in nodes and len(nodes) == 3 for nodes in cluster.replicas.values())
    assert len([entry for entry in cluster.log if entry[0] == "unregister"]) == 1


def test_a_farewell_that_is_refused_because_of_new_replicas_has_another_round(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=5)
    asked, unregister = [0], cluster.unregister

    def too_early(node: int) -> None:
        asked[0] += 1
        if asked[0] == 1:
            cluster.reassign({A: [1, 2, 3]})
        unregister(node)

    monkeypatch.setattr(cluster, "unregister", too_early)
    assert printed(capsys, "cluster", "decommission", "2", "--yes")["gone"] == [2]
    assert asked == [2]
    assert all(2 not in nodes for nodes in cluster.replicas.values())


@pytest.mark.parametrize(
    ("error", "looks"),
    [
        (
            UnsureError("the link is gone"),
            5,
        ),  # The broker that leaves was asked, and knows it last.
        (CommandError("it is not registered", code=Exit.NOT_FOUND), 1),  # It was asked twice.
    ],
)
def test_a_farewell_whose_answer_is_lost_is_one(
    error: CommandError,
    looks: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = FakeCluster(4, {("t", 0): [1, 2, 3]}).serve(monkeypatch)
    unregister = cluster.unregister

    def unheard(node: int) -> None:
        unregister(node)
        cluster.looks_to_leave = looks
        raise error

    monkeypatch.setattr(cluster, "unregister", unheard)
    assert printed(capsys, "cluster", "decommission", "2", "--yes")["gone"] == [2]


@pytest.mark.parametrize("error", [UnsureError("nobody answers"), CommandError("no")])
def test_a_farewell_that_was_not_done_is_none(
    error: CommandError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = FakeCluster(4, {("t", 0): [1, 2, 3]}).serve(monkeypatch)

    def refuse(node: int) -> None:
        raise error

    monkeypatch.setattr(cluster, "unregister", refuse)
    monkeypatch.setattr("dmq.cli.cluster_farewell.UNSURE_S", 0.05)
    assert run(["cluster", "decommission", "4", "--yes"]) == Exit.FAILURE
    assert error.message in capsys.readouterr().err


def test_who_is_worked_against_gives_up_one_day(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=5)

    def refill(node: int) -> None:
        cluster.reassign({A: [1, node, 3]})
        raise CommandError("it has replicas")

    monkeypatch.setattr(cluster, "unregister", refill)
    assert run(["cluster", "decommission", "2", "--yes"]) == Exit.FAILURE
    told = capsys.readouterr().err
    assert "Broker 2 has 1 replica again" in told
    assert "call this again" in told


def test_several_brokers_leave_and_get_nothing_from_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=5)
    told = printed(capsys, "cluster", "decommission", "2", "4", "--yes")
    assert (told["brokers"], told["gone"], told["unregistered"]) == ([2, 4], [2, 4], True)
    targets = [entry[1] for entry in cluster.log if entry[0] == "reassign"]
    assert all(4 not in after for batch in targets for after in batch.values())
    assert all(sorted(nodes) == [1, 3, 5] for nodes in cluster.replicas.values())
    assert cluster.registered == [1, 3, 5]


def test_a_broker_that_somebody_else_empties_gets_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=6)
    cluster.replicas[("v", 0)], cluster.leaders[("v", 0)] = [5], 5
    cluster.looks_per_move = 100
    cluster.reassign({("v", 0): [6]})
    plan = printed(capsys, "cluster", "decommission", "2", "--dry-run")
    assert all(5 not in move["new_replicas"] for move in plan["moves"])
    cluster.stop(4)
    cluster.stop(6)
    plan = printed(capsys, "cluster", "decommission", "2", "--dry-run")
    assert all(5 in move["new_replicas"] for move in plan["moves"]), "but if there is no other"


def test_what_has_moved_is_told_to_programs_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch, brokers=4)
    cluster.looks_per_move = 10**9
    words = ("cluster", "decommission", "2", "--yes", "--timeout", "0", "--at-once", "1")
    told = printed(capsys, *words, code=Exit.FAILURE)
    assert (told["unregistered"], told["moved"], len(told["moving"])) == (False, [], 1)
    told = printed(capsys, "cluster", "rebalance", "--timeout", "0", code=Exit.FAILURE)
    assert told["moved"] == []


@pytest.mark.parametrize("words", [["decommission", "x"], ["transfer-leader", "t:0", "x"]])
def test_what_is_no_number_is_no_broker(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    three(monkeypatch)
    assert run(["cluster", *words]) == Exit.USAGE
    assert "'x' is no broker. Write its number" in capsys.readouterr().err


# --- leaders


def test_another_leader(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch)
    assert run(["cluster", "transfer-leader", "t:0", "3"]) == Exit.OK
    assert capsys.readouterr().out == "t:0: led by 3 (was 1)\n"
    assert cluster.replicas[A] == [3, 1, 2]
    assert cluster.leaders[A] == 3


@pytest.mark.parametrize(
    ("where", "node", "code", "told"),
    [
        ("t:0", "9", Exit.USAGE, "no replica"),
        ("t:9", "1", Exit.NOT_FOUND, "it has 0 to 1"),
        ("v:0", "1", Exit.NOT_FOUND, "no topic 'v'"),
        ("t", "1", Exit.USAGE, "TOPIC:PARTITION"),
        ("t:x", "1", Exit.USAGE, "TOPIC:PARTITION"),
        ("t:0", "3", Exit.FAILURE, "Broker 3 is down"),
    ],
)
def test_leaders_that_can_not_be(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    where: str,
    node: str,
    code: int,
    told: str,
) -> None:
    cluster = three(monkeypatch)
    cluster.stop(3)
    assert run(["cluster", "transfer-leader", where, node]) == code
    assert told in capsys.readouterr().err
    assert not any(entry[0] in ("reassign", "elect") for entry in cluster.log)


def test_preferred_leaders_come_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch)
    cluster.leaders = dict.fromkeys(cluster.leaders, 1)
    assert run(["cluster", "elect", "--preferred"]) == Exit.OK
    assert capsys.readouterr().out.startswith("2 leaders changed")
    assert cluster.leaders == {A: 1, B: 2, C: 3}


def test_elections_that_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch)
    cluster.stop(3)
    told = printed(capsys, "cluster", "elect", "u:0", code=Exit.FAILURE)
    assert told["elections"][0]["error"] == "PREFERRED_LEADER_NOT_AVAILABLE"
    assert run(["cluster", "elect", "nope:0"]) == Exit.NOT_FOUND


# --- recovery


def lost(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = three(monkeypatch)
    cluster.stop(1)
    cluster.stop(3)
    assert cluster.leaders[A] == -1
    return cluster


def test_recovery_says_what_may_be_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = lost(monkeypatch)
    assert run(["partition", "recover", "t:0", "--yes"]) == Exit.OK
    out, err = capsys.readouterr()
    assert "only brokers 1,3 have are lost for ever" in err
    assert "broker 2 has 1000 B of it" in err
    assert "led by 2" in out
    assert ("elect", 1, [A]) in cluster.log


def test_all_are_recovered_of_which_no_broker_is_down(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch)
    for where in cluster.leaders:
        cluster.leaders[where] = -1  # Their disks were damaged.
    cluster.down.add(3)
    waiting = [where for where, nodes in cluster.replicas.items() if 3 in nodes]
    cluster.replicas[("one", 0)], cluster.leaders[("one", 0)] = [1], -1
    assert run(["partition", "recover", "--all", "--yes"]) == Exit.OK
    out, err = capsys.readouterr()
    assert out == "1 partition recovered\n"
    assert "records that only this one had are lost" in err
    assert f"{len(waiting)} partitions without a leader" in err
    assert ("elect", 1, [("one", 0)]) in cluster.log
    assert printed(capsys, "partition", "recover", "--all", "--yes") == {"elections": []}


@pytest.mark.parametrize(
    ("which", "told"), [([], "or say --all"), (["t:0", "--all"], "Give one of them")]
)
def test_recovery_wants_one_or_all(
    which: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lost(monkeypatch)
    assert run(["partition", "recover", *which, "--yes"]) == Exit.USAGE
    assert told in capsys.readouterr().err


def test_recovery_of_all_has_a_line_for_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch)
    cluster.leaders = dict.fromkeys(cluster.leaders, -1)
    assert run(["partition", "recover", "--all", "--yes"]) == Exit.OK
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("t:0 has no leader: 1000 B on broker 1, ")


def test_recovery_needs_a_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = lost(monkeypatch)
    assert run(["partition", "recover", "t:0"]) == Exit.USAGE
    assert not any(entry[0] == "elect" for entry in cluster.log)


def test_what_is_well_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = three(monkeypatch)
    assert printed(capsys, "partition", "recover", "t:0", "--yes")["recovered"] is False
    assert not any(entry[0] == "elect" for entry in cluster.log)


def test_recovery_says_which_offsets_were_in_damaged_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = lost(monkeypatch)
    cluster.orders[A] = ErrorCode.NONE, "Offsets are lost: 3 to 4."
    assert run(["partition", "recover", "t:0", "--yes"]) == Exit.OK
    assert "Offsets are lost: 3 to 4." in capsys.readouterr().err
    cluster.leaders[A] = -1
    told = printed(capsys, "partition", "recover", "t:0", "--yes")
    assert told["message"] == "Offsets are lost: 3 to 4."
    cluster.leaders[A] = -1
    cluster.down.clear()
    assert run(["partition", "recover", "--all", "--yes"]) == Exit.OK
    assert "t:0: Offsets are lost: 3 to 4." in capsys.readouterr().err


def test_an_order_that_takes_long_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = lost(monkeypatch)
    cluster.orders[A] = ErrorCode.REQUEST_TIMED_OUT, "Ordered; broker 2 does not lead yet."
    assert printed(capsys, "partition", "recover", "t:0", "--yes")["leader"] == 2


def test_a_topic_that_is_deleted_meanwhile_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = lost(monkeypatch)
    cluster.deletes.append(A)
    assert run(["partition", "recover", "t:0", "--yes"]) == Exit.NOT_FOUND


def test_a_leader_that_the_asked_broker_does_not_see_is_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = lost(monkeypatch)
    cluster.orders[A] = ErrorCode.ELECTION_NOT_NEEDED, "Broker 3 leads it, as broker 2 says."
    assert run(["partition", "recover", "t:0", "--yes"]) == Exit.OK
    assert "Broker 3 leads it, as broker 2 says: there is nothing" in capsys.readouterr().out


def test_who_can_not_order_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = lost(monkeypatch)
    cluster.orders[A] = ErrorCode.NOT_CONTROLLER, "NOT_CONTROLLER"
    assert run(["partition", "recover", "t:0", "--yes"]) == Exit.FAILURE
    assert "finds no leader of them" in capsys.readouterr().err


def test_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = lost(monkeypatch)
    cluster.stop(2)
    assert run(["partition", "recover", "t:0", "--yes"]) == Exit.FAILURE
    assert "can't be recovered" in capsys.readouterr().err


def test_these_commands_need_a_plain_connection(capsys: pytest.CaptureFixture[str]) -> None:
    tls = ["--client-config", "security.protocol=SSL"]
    assert run(["cluster", "status", *tls]) == Exit.FAILURE
    assert "plain connections" in capsys.readouterr().err
