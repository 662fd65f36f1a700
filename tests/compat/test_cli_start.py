"""`dmq up` and `dmq serve` as processes: ready, usable, stopped, and what they leave behind."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.compat


class Process:
    """One run of the command; its output is read to the end when it stops."""

    def __init__(self, *args: str, **environment: str) -> None:
        base = {k: v for k, v in os.environ.items() if not k.startswith("DMQ_")}
        self.child = subprocess.Popen(
            [sys.executable, "-m", "dmq", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=base | {"NO_COLOR": "1"} | environment,
        )

    def ready(self) -> Any:
        """The line that `--json` prints when the broker is ready."""
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line, self.end()
        return json.loads(line)

    def end(self, number: int | None = None) -> tuple[int, str, str]:
        """Signal it, wait for it; exit code, stdout, stderr."""
        if number is not None:
            self.child.send_signal(number)
        out, err = self.child.communicate(timeout=60)
        return self.child.returncode, out, err


@pytest.fixture
def start() -> Iterator[Any]:
    processes: list[Process] = []

    def run(*args: str, **environment: str) -> Process:
        processes.append(Process(*args, **environment))
        return processes[-1]

    yield run
    for process in processes:
        process.child.kill()
        process.child.communicate()


def dmq(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dmq", *args],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_up_is_usable_at_once_and_leaves_nothing(start: Any, number: int) -> None:
    process = start("up", "--port", "0", "--json")
    ready = process.ready()
    assert ready["temporary"]
    assert Path(ready["data_dir"]).is_dir()
    address = ready["bootstrap_servers"]
    dmq("produce", "greetings", "hello", "-b", address)
    assert dmq("consume", "greetings", "-b", address) == "hello\n"
    code, _, err = process.end(number)
    assert code == 0
    assert "Traceback" not in err
    assert not Path(ready["data_dir"]).exists()


def test_told_to_stop_again_and_again_it_stops_as_if_told_once(start: Any, tmp_path: Path) -> None:
    process = start("serve", "--json", "--port", "0", "--data", str(tmp_path / "data"))
    process.ready()
    for _ in range(60_000):
        process.child.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.child.wait(0.001)
            break
    code, _, err = process.end()
    assert code == 0, err
    assert "Traceback" not in err


def test_the_banner_names_address_data_and_time(start: Any, tmp_path: Path) -> None:
    process = start("up", "--port", "0", "--data", str(tmp_path / "data"), "--durability", "async")
    lines = [process.child.stdout.readline() for _ in range(6)]
    code, _, _ = process.end(signal.SIGINT)
    assert code == 0
    text = "".join(lines)
    assert "is ready in" in text
    assert "127.0.0.1:" in text
    assert str(tmp_path / "data") in text
    assert "async" in text


def test_records_survive_a_stop_and_the_dump_reads_the_files(start: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    process = start("up", "--port", "0", "--data", str(data), "--json")
    address = process.ready()["bootstrap_servers"]
    dmq("topic", "create", "t", "-b", address)
    dmq("produce", "t", "one", "two", "-k", "k", "-z", "gzip", "-b", address)
    # While the broker runs, too.
    dmq("log", "dump", str(data), "--summary")
    assert process.end(signal.SIGINT)[0] == 0

    events = [
        json.loads(line) for line in dmq("log", "dump", str(data), "-r", "--json").splitlines()
    ]
    kinds = {event["type"] for event in events}
    assert {"data_directory", "journal", "journal_record", "segment", "batch"} <= kinds
    values = [
        record.get("value")
        for event in events
        if event["type"] == "batch" and event["path"].endswith(".log")
        for record in event["records"]
    ]
    assert {"one", "two"} <= set(values)
    assert any(
        item["item"] == "CLOSE"
        for event in events
        if event["type"] == "journal_record"
        for item in event["items"]
    )

    again = start("up", "--port", "0", "--data", str(data), "--json")
    address = again.ready()["bootstrap_servers"]
    assert dmq("consume", "t", "-b", address) == "one\ntwo\n"


def test_a_data_directory_in_use_is_told(start: Any, tmp_path: Path) -> None:
    first = start("up", "--port", "0", "--data", str(tmp_path), "--json")
    first.ready()
    code, out, err = start("up", "--port", "0", "--data", str(tmp_path)).end()
    assert code == 1
    assert out == ""
    assert "in use" in err
    assert "Traceback" not in err


def test_a_port_that_is_taken_is_told(start: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        code, _, err = start("up", "--port", str(port)).end()
    assert code == 1
    assert f"127.0.0.1:{port} is taken" in err
    assert "Traceback" not in err


def test_a_peer_port_that_is_taken_is_told(start: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = str(holder.getsockname()[1])
        options = ("--port", "0", "--peer-port", port, "--data", str(tmp_path))
        code, _, err = start("serve", "--bootstrap", *options).end()
    assert code == 1
    assert f"127.0.0.1:{port} is taken" in err
    assert "--peer-port" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_broker_that_waits_for_a_cluster_can_be_stopped(
    start: Any, tmp_path: Path, number: int
) -> None:
    options = ("--port", "0", "--peer-port", "0", "--data", str(tmp_path))
    process = start("serve", "--join", "127.0.0.1:1", *options)
    while "waiting for a cluster" not in process.child.stderr.readline():
        assert process.child.poll() is None
    code, _, err = process.end(number)
    assert code == 0, err
    assert "Traceback" not in err


def test_whoever_joins_at_the_port_of_clients_is_told(start: Any, tmp_path: Path) -> None:
    address = str(start("up", "--port", "0", "--json").ready()["bootstrap_servers"])
    options = ("--port", "0", "--peer-port", "0", "--data", str(tmp_path))
    process = start("serve", "--join", address, *options)
    while "waiting for a cluster" not in (line := process.child.stderr.readline()):
        assert process.child.poll() is None
    assert f"{address} closed the connection" in line
    assert "is it a peer port" in line


def test_serve_takes_flags_over_environment_over_file(start: Any, tmp_path: Path) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text(
        f"log.dirs: {tmp_path / 'data'}\nport: 0\nnum:\n  partitions: 2\nnode.id: 7\n"
        "message.max.bytes: 500000\n"
    )
    process = start(
        *("serve", "--config", str(config), "--set", "num.partitions=4", "--json"),
        DMQ_NUM_PARTITIONS="3",
        DMQ_MESSAGE_MAX_BYTES="600000",
    )
    ready = process.ready()
    assert ready["node_id"] == 7
    address = ready["bootstrap_servers"]
    dmq("topic", "create", "t", "-b", address)
    [topic] = json.loads(dmq("topic", "describe", "t", "--json", "-b", address))["topics"]
    assert len(topic["partitions"]) == 4
    assert topic["configs"]["max.message.bytes"]["value"] == "600000"
    assert topic["partitions"][0]["leader"] == 7
    code, _, _ = process.end(signal.SIGTERM)
    assert code == 0
    assert (tmp_path / "data").is_dir()
