"""What people write to the group commands, and where offsets go for it: no cluster is asked."""

import pytest

from dmq.cli.exits import CommandError, Exit
from dmq.cli.group import show, spans
from dmq.cli.group_args import STATES, chosen_partitions, duration_ms, resolved, words_among
from dmq.cli.group_facts import Group, Member, Progress
from dmq.cli.group_offsets import Aim, one_aim, targets
from dmq.cli.output import Output
from dmq.cli.session import Session

LOGS = {("t", 0): (10, 100), ("t", 1): (0, 0), ("u", 0): (5, 50)}


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["orders"], {"orders": None}),
        (["orders:2,0"], {"orders": [0, 2]}),
        (["orders:0,2-4", "events"], {"orders": [0, 2, 3, 4], "events": None}),
        (["orders:0", "orders:3,0"], {"orders": [0, 3]}),
        (["orders:0", "orders"], {"orders": None}),
    ],
)
def test_partitions_as_they_are_written(words: list[str], chosen: object) -> None:
    assert chosen_partitions(words) == chosen


@pytest.mark.parametrize("word", ["", ":1", "t:", "t:a", "t:1,", "t:3-1", "t:-1"])
def test_what_names_no_partition(word: str) -> None:
    with pytest.raises(CommandError) as raised:
        chosen_partitions([word])
    assert raised.value.code is Exit.USAGE


def test_partitions_that_a_topic_has() -> None:
    counts = {"t": 2, "u": 1}
    assert resolved({"t": None, "u": [0]}, counts) == [("t", 0), ("t", 1), ("u", 0)]
    for chosen in ({"gone": None}, {"t": [2]}):
        with pytest.raises(CommandError) as raised:
            resolved(chosen, counts)  # type: ignore[arg-type]
        assert raised.value.code is Exit.NOT_FOUND


def test_states_in_any_writing() -> None:
    given = ["stable,EMPTY", "preparing-rebalance"]
    assert words_among(given, STATES, "--state") == {"Stable", "Empty", "PreparingRebalance"}
    with pytest.raises(CommandError, match="asleep"):
        words_among(["asleep"], STATES, "--state")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("5m", 300_000),
        ("1.5h", 5_400_000),
        ("250ms", 250),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("P1DT0.5S", 86_400_500),
        ("0s", 0),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text, "--by-duration") == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "5", "m", "-5m", "2026-01-01", "@5"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(CommandError) as raised:
        duration_ms(text, "--by-duration")
    assert raised.value.code is Exit.USAGE


@pytest.mark.parametrize(
    ("aim", "new"),
    [
        (Aim("earliest"), [10, 0, 5]),
        (Aim("latest"), [100, 0, 50]),
        (Aim("current"), [40, 0, 7]),
        (Aim("offset", 7), [10, 0, 7]),
        (Aim("offset", 70), [70, 0, 50]),
        (Aim("moment", 1), [60, 0, 50]),
        (Aim("shift", -1000), [10, 0, 5]),
        (Aim("shift", 20), [60, 0, 27]),
        (Aim("shift", 0), [40, 0, 7]),
    ],
    ids=str,
)
def test_where_offsets_go(aim: Aim, new: list[int]) -> None:
    committed = {("t", 0): 40, ("t", 1): 0, ("u", 0): 7}
    moments = {("t", 0): 60, ("t", 1): -1, ("u", 0): -1}
    plan = targets(aim, LOGS, committed, moments)
    assert [each.new for each in plan] == new
    assert [each.old for each in plan] == [40, 0, 7]


def test_offsets_that_were_never_committed() -> None:
    assert [each.new for each in targets(Aim("current"), LOGS, {}, {})] == [100, 0, 50]
    with pytest.raises(CommandError, match="t:1"):
        targets(Aim("shift", 1), LOGS, {("t", 0): 40, ("u", 0): 7}, {})


def test_one_place_and_no_more() -> None:
    assert one_aim({"earliest": True}, {"shift": None}, both=False) == Aim("earliest")
    assert one_aim({"earliest": False}, {"shift": 0}, both=False) == Aim("shift", 0)
    for flags, numbers, both in (
        ({}, {}, False),
        ({"earliest": True, "latest": True}, {}, False),
        ({"earliest": True}, {"shift": 1}, False),
        ({}, {"moment": 1}, True),
    ):
        with pytest.raises(CommandError) as raised:
            one_aim(flags, numbers, both=both)
        assert raised.value.code is Exit.USAGE


def test_partitions_drawn_together() -> None:
    assert spans([]) == "none"
    assert spans([("b", 1), ("a", 5), ("a", 0), ("a", 2), ("a", 1)]) == "a:0-2,5 b:1"


def test_a_group_as_people_see_it(capsys: pytest.CaptureFixture[str]) -> None:
    member = Member("m-1", "app", "10.0.0.1", "one", [("t", 0)], [("t", 0), ("t", 1)])
    group = Group(
        "billing",
        "Reconciling",
        "Consumer",
        "uniform",
        (3, "b3", 9092),
        [member],
        [
            Progress("t", 0, 40, 10, 100, member),
            Progress("t", 1, None, 0, 7, None),
            Progress("gone", 0, 5, None, None, None),
        ],
    )
    assert group.is_active
    assert group.lag == 60
    show(Session("x:1", {}, Output(color=False)), group)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    about = "Reconciling, consumer protocol, assignor uniform, coordinator 3 (b3:9092)"
    assert lines[:2] == ["billing", about]
    assert lines[3] == "m-1 app 10.0.0.1 one t:0 (moving to t:0-1)"
    assert lines[5:] == ["t 0 40 10 100 60 m-1", "t 1 0 7", "gone 0 5", "total lag 60"]
    told = group.as_json()
    assert told["coordinator"] == {"broker": 3, "host": "b3", "port": 9092}
    assert [each["lag"] for each in told["partitions"]] == [60, None, None]


def test_a_group_without_anything() -> None:
    empty = Group("g", "Empty", "Classic", "", None, [], [])
    assert not empty.is_active
    assert empty.lag is None
    assert empty.as_json()["coordinator"] is None
