"""`dmq produce`: what it says and how it ends when nobody takes the records."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from dmq.cli.app import run
from dmq.cli.exits import Exit
from dmq.cli.session import Session


class SilentProducer:
    """Whatever is handed to it times out; `leaders` is what the metadata say."""

    def __init__(self, leaders: list[int]) -> None:
        self._leaders = leaders

    def produce(self, topic: str, *record: Any, on_delivery: Any, **rest: Any) -> None:
        partition = record[2]
        on_delivery(
            KafkaError(KafkaError._MSG_TIMED_OUT), SimpleNamespace(partition=lambda: partition)
        )

    def list_topics(self, topic: str, timeout: float) -> Any:
        partitions = {
            index: SimpleNamespace(leader=leader) for index, leader in enumerate(self._leaders)
        }
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=partitions)})

    def poll(self, timeout_s: float) -> int:
        return 0

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("leaders", "partition", "code", "told"),
    [
        ([2, -1], ["-p", "1"], Exit.FAILURE, "1 record failed: t:1 has no leader."),
        ([-1, -1], [], Exit.FAILURE, "1 record failed: t:0, t:1 have no leader."),
        ([2, -1], ["-p", "0"], Exit.NOT_REACHABLE, "timed out"),
        ([2, 2], [], Exit.NOT_REACHABLE, "timed out"),
    ],
)
def test_a_partition_without_a_leader_is_not_a_broker_that_can_not_be_reached(
    leaders: list[int],
    partition: list[str],
    code: Exit,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Session, "producer", lambda session, settings: SilentProducer(leaders))
    assert run(["produce", "t", "hello", *partition]) == code
    assert told in capsys.readouterr().err
