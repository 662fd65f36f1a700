"""Logs and the states that they mean: for tests that a log says all, however it was compacted."""

import random
from typing import Any

from unit.machines.groups.coordinator import Coordinator, LogEntry, load

from dmq.machines.groups.consumer_group import ConsumerGroup
from dmq.machines.groups.state import GroupsState


def shape(state: GroupsState) -> dict[str, Any]:
    """All of a state, to be compared."""
    return {
        "classic": dict(state.classic),
        "offsets": state.offsets,
        "consumer": {
            name: {slot: _plain(getattr(group, slot)) for slot in ConsumerGroup.__slots__}
            for name, group in state.consumer.items()
        },
    }


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def compact(log: list[LogEntry], dice: random.Random) -> list[LogEntry]:
    """A log as a cleaner may leave it: superseded records gone here and there, tombstones perhaps.

    Nothing from the first open transaction on is cleaned; of transactions that ended, superseded
    records go like others (their markers stay).
    """
    clean_to = dice.randint(0, _first_unstable(log))
    last = {record.key: n for n, (record, _) in enumerate(log[:clean_to]) if _counts(log, n)}
    kept: list[LogEntry] = []
    for n, (record, producer) in enumerate(log):
        if n < clean_to and record.key:
            superseded = last.get(record.key, -1) > n or not _counts(log, n)
            dead = record.value is None and not superseded and dice.random() < 0.5
            if superseded or dead:
                continue
        kept.append((record, producer))
    return kept


def _first_unstable(log: list[LogEntry]) -> int:
    open_since: dict[int, int] = {}
    for n, (record, producer) in enumerate(log):
        if producer >= 0 and record.key:
            open_since.setdefault(producer, n)
        elif producer >= 0:
            open_since.pop(producer, None)
    return min(open_since.values(), default=len(log))


def _counts(log: list[LogEntry], n: int) -> bool:
    """Whether a record is of no transaction, or of one that committed."""
    _, producer = log[n]
    if producer < 0:
        return True
    for record, other in log[n:]:
        if other == producer and not record.key:
            return record.value == b"commit"
    return True


def check_replay(coordinator: Coordinator, seed: int) -> None:
    """The log, whole or compacted, says what the leader knows."""
    expected = shape(coordinator.state)
    for log in (coordinator.log, compact(coordinator.log, random.Random(seed))):
        assert shape(load(coordinator.new_machine(), log).state) == expected
