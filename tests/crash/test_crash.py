"""The short form of `make crash`: nothing acknowledged is lost by kill -9, nothing is doubled."""

from pathlib import Path

import pytest
from crash.harness import Ledger, run

KILLS = 20


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_kill_minus_nine_loses_nothing(tmp_path: Path) -> None:
    findings = run(KILLS, 7, tmp_path / "data", print, read_every=5)
    assert findings.problems == []
    assert findings.kills == KILLS
    assert findings.acknowledged > 100, "the broker was not under load"


class FakeMessage:
    def __init__(self, topic: str, offset: int, value: bytes) -> None:
        self._fields = (topic, 0, offset, value)

    def topic(self) -> str:
        return self._fields[0]

    def partition(self) -> int:
        return self._fields[1]

    def offset(self) -> int:
        return self._fields[2]

    def value(self) -> bytes:
        return self._fields[3]


def kinds(problems: list[str]) -> list[str]:
    return [problem.partition(":")[0] for problem in problems]


def test_the_ledger_finds_what_it_is_for() -> None:
    ledger = Ledger()
    for number in range(5):
        ledger.sent(b"w-%d" % number)
    ledger.acknowledged(FakeMessage("t", 0, b"w-0 "))
    ledger.acknowledged(FakeMessage("t", 1, b"w-1 "))
    ledger.acknowledged(FakeMessage("t", 9, b"w-4 "))
    assert ledger.read(FakeMessage("t", 0, b"w-0 ")) == []
    assert kinds(ledger.read(FakeMessage("t", 1, b"w-2 "))) == ["moved"]
    assert kinds(ledger.read(FakeMessage("t", 2, b"w-2 "))) == ["doubled", "reordered"]
    assert kinds(ledger.read(FakeMessage("t", 3, b"x-1 "))) == ["foreign"]
    assert kinds(ledger.missing()) == ["lost", "lost"]
