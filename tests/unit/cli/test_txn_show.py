"""Transactions as people and programs see them, and what `dmq txn abort` refuses without asking."""

import pytest

from dmq.cli.app import run
from dmq.cli.exits import Exit
from dmq.cli.output import Output
from dmq.cli.session import Session
from dmq.cli.txn import duration, show
from dmq.cli.txn_facts import Transaction

NOW_MS = 1_700_000_100_000
OPEN = Transaction(
    "transfers", "Ongoing", 4001, 7, 60_000, NOW_MS - 65_000, 2, [("t", 0), ("t", 1)]
)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, None),
        (0, "0 ms"),
        (999, "999 ms"),
        (12_345, "12 s"),
        (303_000, "5 m 3 s"),
        (7_620_000, "2 h 7 m"),
        (86_400_000, "1 d 0 h"),
    ],
)
def test_durations_for_people(ms: int | None, text: str | None) -> None:
    assert duration(ms) == text


def test_an_open_transaction(capsys: pytest.CaptureFixture[str]) -> None:
    show(Session("x:1", {}, Output(color=False)), OPEN, {("t", 1): 12}, NOW_MS)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "transfers",
        "Ongoing, producer 4001 epoch 7, timeout 1 m 0 s, coordinator 2",
        "open since 2023-11-14T22:13:55.000Z (1 m 5 s)",
        "TOPIC PARTITION START OFFSET",
        "t 0",
        "t 1 12",
    ]
    told = OPEN.as_json(NOW_MS)
    assert (told["age_ms"], told["started"]) == (65_000, "2023-11-14T22:13:55.000Z")


def test_a_clock_that_is_behind() -> None:
    assert OPEN.age_ms(0) == 0


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["x", "--partition", "t:0", "--producer-id", "1"],
        ["x", "--producer-id", "0"],
        ["--producer-id", "1"],
    ],
    ids=" ".join,
)
def test_which_transaction_is_meant(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["txn", "abort", *args]) == Exit.USAGE
    assert "Which transaction" in capsys.readouterr().err
