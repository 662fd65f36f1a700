"""`dmq up --brokers N`: children that are told the right things, and an end for all of them.

The children here are small programs that behave as `dmq serve --json` does towards its parent.
"""

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from compat.eventually import eventually

from dmq.cli import banner, up_many
from dmq.cli.exits import CommandError, Exit
from dmq.cli.up_many import Brokers

READY = "print(json.dumps({'event': 'ready', 'cluster_id': 'c'}), flush=True)"
WAIT = "signal.pause()"
STOP_IN_ORDER = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))"


def programs(monkeypatch: pytest.MonkeyPatch, *bodies: str) -> list[list[str]]:
    """Make the children run these instead; what each was told."""
    told: list[list[str]] = []
    real = up_many.subprocess.Popen

    def start(words: list[str], **options: Any) -> Any:
        body = bodies[len(told)]
        told.append(words)
        return real([sys.executable, "-S", "-c", f"import json, signal, sys; {body}"], **options)

    monkeypatch.setattr(up_many.subprocess, "Popen", start)
    return told


def test_ports_are_ten_apart_and_free_ones_differ(tmp_path: Path) -> None:
    brokers = Brokers(3, 9092, str(tmp_path))
    ports = [(broker.port, broker.peer_port) for broker in brokers.all]
    assert ports == [(9092, 9093), (9102, 9103), (9112, 9113)]
    assert brokers.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9102,127.0.0.1:9112"
    free = [p for b in Brokers(5, 0, str(tmp_path)).all for p in (b.port, b.peer_port)]
    assert len(set(free)) == 10


def test_each_is_told_who_it_is_and_who_the_others_are(tmp_path: Path) -> None:
    first, second = Brokers(2, 9092, str(tmp_path)).all
    assert second.settings("P") == {
        "node.id": "2",
        "host": "127.0.0.1",
        "port": "9102",
        "peer.listener": "127.0.0.1:9103",
        "cluster.peers": "P",
        "log.dirs": str(tmp_path / "broker-2"),
    }
    assert first.data_dir != second.data_dir


def test_from_the_start_to_an_orderly_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = f"{STOP_IN_ORDER}; print('hm', file=sys.stderr); {READY}; {WAIT}"
    told = programs(monkeypatch, body, body)
    brokers = Brokers(2, 9092, str(tmp_path))
    texts: list[str] = []
    said: list[str] = []

    def is_relayed() -> bool:
        said.append(capsys.readouterr().err)
        return all(line in "".join(said) for line in ("[1] hm", "[2] hm"))

    def on_ready(ready: Brokers) -> None:
        texts.append(banner.banner_many(ready, "sync", 1.5, True, ("", "")))
        eventually(is_relayed, "what they said is passed on")
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    assert brokers.run({"num.partitions": "3", "x": None}, on_ready) == Exit.OK
    assert signal.getsignal(signal.SIGINT) is before
    assert "--set=num.partitions=3" in told[0]
    assert not any(word.startswith("--set=x") for word in told[0])
    peers = "--set=cluster.peers=1@127.0.0.1:9093,2@127.0.0.1:9103"
    assert peers in told[0]
    assert peers in told[1]
    [text] = texts
    assert "2 brokers are ready in 1.50 s" in text
    assert brokers.bootstrap_servers in text
    assert str(brokers.all[1].pid) in text
    assert "warning" not in "".join(said) + capsys.readouterr().err


def test_one_that_dies_is_reported_and_the_rest_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = f"{STOP_IN_ORDER}; {READY}; {WAIT}"
    programs(monkeypatch, body, body)
    brokers = Brokers(2, 9092, str(tmp_path))
    reported = brokers.report_end

    def then_stop(node: int, code: int) -> None:
        reported(node, code)
        assert brokers.all[1].is_running
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(brokers, "report_end", then_stop)
    assert brokers.run({}, lambda _: brokers.all[0].signal(signal.SIGKILL)) == Exit.OK
    assert "broker 1 was ended by SIGKILL; 2 go on" in capsys.readouterr().err


def test_when_the_last_one_dies_it_is_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    programs(monkeypatch, f"{READY}; {WAIT}", f"{READY}; {WAIT}")
    brokers = Brokers(2, 9092, str(tmp_path))

    def kill_all(_: Brokers) -> None:
        for broker in brokers.all:
            broker.signal(signal.SIGKILL)

    assert brokers.run({}, kill_all) == Exit.FAILURE


def test_one_that_can_not_start_ends_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs(monkeypatch, f"{READY}; {WAIT}", "print('no', file=sys.stderr); sys.exit(1)")
    brokers = Brokers(2, 9092, str(tmp_path))
    with pytest.raises(CommandError, match="Broker 2 ended with exit code 1 before it was ready"):
        brokers.run({}, lambda _: None)
    assert "[2] no" in capsys.readouterr().err
    process = brokers.all[0].process
    assert process is not None
    assert process.wait(timeout=60) == -signal.SIGKILL


def test_brokers_of_two_clusters_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = READY.replace("'c'", "'d'")
    programs(monkeypatch, f"{READY}; {WAIT}", f"{other}; {WAIT}")
    with pytest.raises(CommandError, match="2 different clusters"):
        Brokers(2, 9092, str(tmp_path)).run({}, lambda _: None)
