"""The command line as a whole, without a broker: help, usage, exit codes, what gets imported."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dmq import __version__
from dmq.cli.app import _MODULES, run
from dmq.cli.exits import Exit

GROUPS = {
    "topic": ["create", "list", "describe", "alter", "delete"],
    "group": ["list", "describe", "delete", "reset-offsets", "delete-offsets"],
    "txn": ["list", "describe", "abort"],
    "cluster": ["status", "rebalance", "decommission", "transfer-leader", "elect"],
    "partition": ["recover"],
    "pipeline": ["init", "run", "dry-run", "status", "stop", "land", "audit"],
    "config": ["list", "show", "set", "unset", "describe"],
    "log": ["dump"],
}


def every_command() -> Iterator[list[str]]:
    for name in _MODULES:
        if name in GROUPS:
            yield from ([name, sub] for sub in GROUPS[name])
        else:
            yield [name]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DMQ_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("DMQ_CLIENT_CONFIG", raising=False)


@pytest.mark.parametrize("command", list(every_command()), ids=" ".join)
def test_help_teaches_with_examples(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    assert run([*command, "--help"]) == 0
    text = capsys.readouterr().out
    examples = re.findall(rf"^\s+(?:\S+ .*\| )?dmq {' '.join(command)}\b", text, re.MULTILINE)
    assert len(examples) >= 2
    assert "--json" in text
    assert not re.search("<[a-z]", text), "a type of Python's stands where a word for people should"


def test_help_lists_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for name in _MODULES:
        assert re.search(rf"^│ {name} ", text, re.MULTILINE)
    for code in Exit:
        assert f" {code.value} " in text


def test_the_version_as_everybody_asks_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--version", "-V"):
        assert run([option]) == 0
        assert capsys.readouterr().out == f"dmq {__version__}\n"


def test_completion_offers_commands_options_and_settings() -> None:
    for line, expected in (
        ("dmq to", ["topic"]),
        ("dmq topic cr", ["create"]),
        ("dmq up --dur", ["--durability"]),
        ("dmq config show retention.m", ["retention.ms"]),
        ("dmq -b 127.0.0.1:1 produce x", []),  # Nobody is there: nothing is offered or said.
    ):
        done = subprocess.run(
            [sys.executable, "-m", "dmq"],
            env={
                "_DMQ_COMPLETE": "complete_bash",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(line.split()) - 1),
                "PYTHONPATH": "src",
            },
            capture_output=True,
            check=True,
            text=True,
        )
        assert (done.stdout.split(), done.stderr) == (expected, ""), line


def test_version_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["version", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["dmq"] == __version__
    assert data["libraries"]["confluent-kafka"]


@pytest.mark.parametrize("args", [["--json", "version"], ["version", "--json"]])
def test_shared_options_may_stand_on_either_side(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == 0
    json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["topic", "create"],
        ["topic", "create", "t", "-p", "0"],
        ["topic", "create", "t", "-c", "nonsense"],
        ["topic", "alter", "t"],
        ["topic", "alter", "t", "-c", "a=1", "-d", "a"],
        ["produce", "t", "v", "--acks", "2"],
        ["produce", "t", "v", "--compression", "rar"],
        ["produce", "t", "--tombstone"],
        ["produce", "t", "v", "--file", "f"],
        ["produce", "t", "--key", "k", "--key-separator", ":"],
        ["produce", "t", "v", "--header", "h"],
        ["produce", "t", "v", "--timestamp", "soon"],
        ["consume", "t", "--from", "soon"],
        ["consume", "t", "--follow", "--to", "end"],
        ["consume", "t", "--format", "{nonsense}"],
        ["consume", "t", "--group", "g", "--from", "7"],
        ["consume", "t", "--group", "g", "--partition", "0"],
        ["consume", "t", "-b", "host:port"],
        ["doctor", "--local", "--remote"],
        ["config", "list", "--for", "nobody"],
    ],
    ids=" ".join,
)
def test_wrong_calls_are_usage_errors_on_stderr(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == Exit.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert "rror" in err


@pytest.mark.parametrize(
    "args",
    [
        ["topic", "list"],
        ["topic", "delete", "t", "--yes"],
        ["produce", "t", "v"],
        ["consume", "t"],
        ["doctor", "--remote"],
    ],
    ids=" ".join,
)
def test_no_broker_is_exit_code_3(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    # Port 1 (tcpmux) is never served on a test machine and needs no race for a free port.
    assert run([*args, "--bootstrap-server", "127.0.0.1:1"]) == Exit.NOT_REACHABLE
    out, err = capsys.readouterr()
    assert "dmq up" in out + err


def test_the_bootstrap_server_may_come_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMQ_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    assert run(["topic", "list"]) == Exit.NOT_REACHABLE
    assert "127.0.0.1:1 " in capsys.readouterr().err


def test_a_slip_of_the_finger_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tpoic", "list"]) == Exit.USAGE
    assert "'topic'" in capsys.readouterr().err


def imported_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_the_way_to_a_broker_imports_nothing_heavy() -> None:
    heavy = {"typer", "rich", "confluent_kafka", "pydantic", "yaml", "inspect"}
    assert not heavy & imported_by("import dmq.cli.main")


def test_commands_import_librdkafka_and_tables_only_when_they_run() -> None:
    names = ", ".join(_MODULES.values())
    found = imported_by(f"import dmq.cli.app, {names}")
    assert not {"confluent_kafka", "rich.table", "yaml", "uvloop"} & found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--at-once", "x"], "it should be a whole number"),
        (["--at-once", "0"], "it should be 1 or more"),
        (["--timeout", "x"], "it should be a number"),
    ],
)
def test_a_value_that_does_not_fit_is_told_in_plain_words(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cluster", "rebalance", *words]) == Exit.USAGE
    assert told in " ".join(capsys.readouterr().err.split())


def test_help_of_up_tells_how_many_brokers_there_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", "--help"]) == 0
    assert "15 at most" in " ".join(capsys.readouterr().out.split())
