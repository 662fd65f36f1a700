"""A run that breaks off is judged too: what there is of its history, and why it broke off."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from compat.eventually import eventually

from dmq.testing import BrokerFailedError
from tests.jepsen import history
from tests.jepsen.run import PRODUCERS, Client, Options, Run


class Breaking(Run):
    """A producer without brokers; fails as soon as it has sent something."""

    error: BaseException

    def _start_cluster(self, stack: ExitStack) -> None:
        self._bootstrap = "127.0.0.1:1"

    def _create_topics(self) -> None:
        pass

    def _wait_for_the_first_records(self, producers: list[Client], readers: list[Client]) -> None:
        eventually(lambda: all(each.did("send") for each in producers), "it sends")
        raise self.error


@pytest.mark.parametrize(
    "error", [BrokerFailedError("broker 2 ended"), KeyError("a slip"), KeyboardInterrupt()]
)
def test_the_verdict_is_given_in_any_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr("tests.jepsen.run.READERS", ())
    run = Breaking(Options(tmp_path, producers=PRODUCERS[:1]), print)
    run.error = error
    report = run.run()
    assert [finding.kind for finding in report.findings] == ["unfinished"]
    assert report.counts["sent"] > 0
    [problem] = run.problems
    assert "the run broke off" in problem
    assert type(error).__name__ in problem or str(error) in problem
    assert "the run broke off" in (tmp_path / "report.txt").read_text()
    kinds = [event["e"] for event in history.read(tmp_path / "history.jsonl")]
    assert kinds[0] == "producer"
    assert not list(tmp_path.glob("p*.jsonl")), "the parts are in one file"
