"""`dmq config set|unset|describe`: which resource is asked for, at which broker, and in which words."""

import json
from types import TracebackType
from typing import Any

import pytest

from dmq.cli.app import run
from dmq.cli.exits import Exit
from dmq.errors import ErrorCode
from dmq.wire.messages.k32_describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from dmq.wire.messages.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

SET, DELETE = 0, 1
TOPIC, BROKER, GROUP = 2, 4, 32


class Wire:
    """The other end of the two requests."""

    def __init__(self, code: int = 0, message: str | None = None) -> None:
        self.asked: list[tuple[int | None, Any]] = []
        self._error = (code, message)

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def ask_broker(self, node: int | None, key: int, request: Any) -> Any:
        self.asked.append((node, request))
        if key == 44:
            result = AlterConfigsResourceResponse(*self._error, 0, "")
            return IncrementalAlterConfigsResponse(responses=[result])
        configs = [
            DescribeConfigsResourceResult("b", "2", False, 1, False),
            DescribeConfigsResourceResult("a", "1", True, 5, False),
            DescribeConfigsResourceResult("c", None, False, 4, True),
        ]
        return DescribeConfigsResponse(
            results=[DescribeConfigsResult(*self._error, 0, "", configs)]
        )


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return served(monkeypatch, Wire())


def served(monkeypatch: pytest.MonkeyPatch, wire: Wire) -> Wire:
    monkeypatch.setattr("dmq.cli.config_values.ClusterWire", lambda session: wire)
    return wire


def changes(request: Any) -> list[tuple[int, str, str, int, str | None]]:
    return [
        (r.resource_type, r.resource_name, c.name, c.config_operation, c.value)
        for r in request.resources
        for c in r.configs
    ]


@pytest.mark.parametrize(
    ("whose", "node", "kind", "name"),
    [
        (["--topic", "t"], None, TOPIC, "t"),
        (["--broker", "2"], 2, BROKER, "2"),
        (["--brokers"], None, BROKER, ""),
        (["--group", "g"], None, GROUP, "g"),
    ],
)
def test_whose_settings(
    wire: Wire, whose: list[str], node: int | None, kind: int, name: str
) -> None:
    assert run(["config", "set", "a=1", "b=x=y", *whose]) == Exit.OK
    assert run(["config", "unset", "a", *whose, "--dry-run"]) == Exit.OK
    assert run(["config", "describe", *whose]) == Exit.OK
    (set_at, set_), (_, unset), (described_at, described) = wire.asked
    assert set_at == described_at == node
    assert changes(set_) == [(kind, name, "a", SET, "1"), (kind, name, "b", SET, "x=y")]
    assert not set_.validate_only
    assert changes(unset) == [(kind, name, "a", DELETE, None)]
    assert unset.validate_only
    [resource] = described.resources
    assert (resource.resource_type, resource.resource_name) == (kind, name)


@pytest.mark.parametrize("whose", [[], ["--topic", "t", "--brokers"]])
def test_one_at_a_time(wire: Wire, whose: list[str]) -> None:
    assert run(["config", "set", "a=1", *whose]) == Exit.USAGE
    assert wire.asked == []


def test_only_what_somebody_set(wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "describe", "--topic", "t"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["b", "2", "topic"],
        ["c", "(secret)", "broker", "file"],
    ]
    assert run(["config", "describe", "--topic", "t", "--all", "--json"]) == Exit.OK
    told = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in told["settings"]] == ["a", "b", "c"]
    assert told["settings"][2]["value"] is None


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (ErrorCode.INVALID_CONFIG, Exit.FAILURE),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Exit.NOT_FOUND),
    ],
)
def test_refusals(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: ErrorCode,
    exit_code: Exit,
) -> None:
    served(monkeypatch, Wire(code, "because"))
    assert run(["config", "set", "a=1", "--topic", "t"]) == exit_code
    assert "Changing settings of topic t failed: because" in capsys.readouterr().err
