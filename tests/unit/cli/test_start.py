"""`dmq up` and `dmq serve` up to the point where the broker takes over."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from dmq.cli import app as tree
from dmq.cli import banner, fast, start
from dmq.cli.app import run
from dmq.cli.exits import Exit
from dmq.cli.fast import SERVE, UP, parse
from dmq.config.broker import BrokerConfig
from dmq.doors.serve import Ready
from dmq.storage.files import OsFiles

READY = Ready(1, "abc", "/data", {"PLAINTEXT": ("127.0.0.1", 9092)}, 0.05, "nothing to recover")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DMQ_")]:
        monkeypatch.delenv(name)


def test_plain_options_are_read_without_typer() -> None:
    args = ["--port", "0", "--data=/d", "--set", "a=1", "--set=b=2", "-q", "--json"]
    assert parse(args, UP) == {
        "port": "0",
        "data": "/d",
        "settings": ["a=1", "b=2"],
        "quiet": True,
        "json": True,
    }
    assert parse([], UP) == {}


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["--port"],
        ["--port", "x"],
        ["--port", "-1"],
        ["word"],
        ["--quiet=yes"],
        ["--prt=1"],
    ],
    ids=" ".join,
)
def test_anything_else_is_left_to_typer(args: list[str]) -> None:
    assert parse(args, UP) is None


@pytest.mark.parametrize(("name", "table"), [("up", UP), ("serve", SERVE)])
def test_both_roads_have_the_same_options(name: str, table: dict[str, str]) -> None:
    group = typer.main.get_command(tree.app)
    command = group.get_command(typer.Context(group), name)  # type: ignore[attr-defined, arg-type]
    slow = {opt: param.name for param in command.params for opt in param.opts}
    assert {opt: name for opt, name in slow.items() if opt not in ("--help", "-h")} == table


def error_of(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize("count", ["0", "16"])
def test_so_many_brokers_and_no_more(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert start.up({"brokers": count}) == Exit.USAGE
    assert "from 1 to 15" in error_of(capsys)


def test_an_unknown_durability(capsys: pytest.CaptureFixture[str]) -> None:
    assert start.up({"durability": "maybe"}) == Exit.USAGE
    assert "sync or async" in error_of(capsys)


def test_all_problems_of_the_settings_are_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text("num.partitions: many\n")
    monkeypatch.setenv("DMQ_NODE_ID", "first")
    assert start.serve({"config": str(path), "settings": ["prot=1"]}) == Exit.USAGE
    lines = error_of(capsys).splitlines()
    assert len(lines) == 3
    assert any("broker.yaml:1" in line and "num.partitions" in line for line in lines)
    assert any("DMQ_NODE_ID" in line for line in lines)
    assert any("prot" in line and "did you mean port?" in line for line in lines)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["up", "--data", ""], "--data is empty"),
        (["up", "--data="], "--data is empty"),
        (["serve", "--config="], "--config is empty"),
        (["serve", "--accept-rotten", "yes"], "--accept-rotten 'yes' is no directory id"),
        (["serve", "--accept-lost", "1,2"], "--accept-lost '1,2' does not name directory ids"),
        (["up", "--port", "70000"], "flag port: "),
        (["up", "--brokers", "3", "--port", "65530"], "Port 65530 leaves no room for 3 brokers"),
        (["serve", "--peers", "1@a:1,2@b:1"], "--peers needs --node-id"),
        (
            ["serve", "--bootstrap", "--port", "7", "--peer-port", "7"],
            "flag peer.listener: clients are served at port 7",
        ),
        (["up", "--set", "listeners=x"], "flag listeners: "),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    args: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fast.start(args) == Exit.USAGE
    assert f"error: {told}" in capsys.readouterr().err


def test_a_cluster_is_not_founded_among_files_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "_run", lambda config, options: 0)
    for name in (".hidden", "lost+found", "lock", "sync-failed", "clean-points"):
        (tmp_path / name).touch()
    options: fast.Options = {"bootstrap": True, "data": str(tmp_path)}
    assert start.serve(options) == Exit.OK
    assert start.serve({"bootstrap": True, "data": str(tmp_path / "none")}) == Exit.OK
    (tmp_path / "thesis.tex").touch()
    assert start.serve(options) == Exit.FAILURE
    assert "is no broker's, and not empty: it has 'thesis.tex'. Give --data" in error_of(capsys)
    (tmp_path / "meta").write_text("version=2\ndirectory.id=x\n")
    assert start.serve(options) == Exit.FAILURE, "a broker tried to join from here, in vain"
    (tmp_path / "meta").write_text("version=2\ndirectory.id=x\ncluster.id=c\nnode.id=1\n")
    assert start.serve(options) == Exit.OK, "it is a broker's"


def test_one_broker_does_not_begin_anew_in_the_folder_of_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def runs(config: BrokerConfig, options: fast.Options, *, is_temporary: bool) -> int:
        begun.append(config.data_dir)
        return 0

    monkeypatch.setattr(start, "_run", runs)
    monkeypatch.setattr(start, "_run_many", lambda count, flags, *rest, **more: runs(*rest, **more))
    data = str(tmp_path)
    for folder in ("broker-1", "broker-2", "broker-10", "broker-x", "broker-3"):
        (tmp_path / folder).mkdir()
    assert start.up({"data": data}) == Exit.OK, "no broker was there yet"
    for folder in ("broker-1", "broker-2", "broker-10"):
        (tmp_path / folder / "meta").touch()
    begun.clear()
    assert start.up({"data": data}) == Exit.FAILURE
    assert not begun
    assert "has the brokers of a cluster, 1, 2 and 10. Go on with `dmq up --brokers 10" in error_of(
        capsys
    )
    assert start.up({"data": data, "brokers": "2"}) == Exit.FAILURE
    assert "has 10 brokers: --brokers 2 would leave some out. Go on with --brokers 10" in error_of(
        capsys
    )
    assert start.up({"data": data, "brokers": "10"}) == Exit.OK
    assert start.up({}) == Exit.OK
    (tmp_path / "meta").touch()
    assert start.up({"data": data}) == Exit.OK, "it is a broker's, too"


def test_several_brokers_do_not_begin_anew_in_the_folder_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "_run_many", lambda *rest, **more: 0)
    options: fast.Options = {"data": str(tmp_path), "brokers": "3"}
    assert start.up(options) == Exit.OK
    (tmp_path / "meta").touch()
    assert start.up(options) == Exit.FAILURE
    assert "is that of a single broker. Leave out --brokers" in error_of(capsys)
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-1" / "meta").touch()
    assert start.up(options) == Exit.OK, "a cluster began there before"


def test_a_folder_that_is_in_use_comes_with_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = OsFiles(str(tmp_path))
    files.lock()
    assert start.serve({"port": "0", "data": str(tmp_path)}) == Exit.FAILURE
    files.unlock()
    assert "is in use by another process. Stop that broker first" in error_of(capsys)


def test_a_setting_without_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert start.serve({"settings": ["node.id"]}) == Exit.USAGE
    assert "--set name=value" in error_of(capsys)


def test_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert start.serve({"config": str(tmp_path / "none.yaml")}) == Exit.NOT_FOUND
    assert "none.yaml" in error_of(capsys)


def test_flags_are_stronger_than_environment_and_that_than_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text("num.partitions: 2\nnode.id: 2\nport: 2\n")
    monkeypatch.setenv("DMQ_NODE_ID", "3")
    monkeypatch.setenv("DMQ_PORT", "3")
    monkeypatch.setenv("DMQ_BOOTSTRAP_SERVERS", "somewhere:1")
    config = start._config({"port": "4"}, str(path))
    assert (config.num_partitions, config.node_id, config.port) == (2, 3, 4)


def test_the_short_way_and_the_long_way_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {"port": "4", "durability": "async", "num.partitions": "7", "log.dirs": "/d"}
    short = start._config(dict(flags))
    monkeypatch.setenv("DMQ_NODE_ID", "1")
    long = start._config(dict(flags))
    for name in ("port", "durability", "num_partitions", "log_dirs", "node_id"):
        assert getattr(short, name) == getattr(long, name)


def test_assertions_can_not_be_turned_off() -> None:
    for command in ("up", "serve"):
        done = subprocess.run(
            [sys.executable, "-O", "-m", "dmq", command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == Exit.FAILURE
        assert "python -O" in done.stderr


def test_the_banner_says_what_a_person_needs() -> None:
    text = banner.banner(READY, "async", 0.31, True, ("", ""))
    assert "ready in 0.31 s" in text
    assert "127.0.0.1:9092" in text
    assert "temporary" in text
    assert "may be lost" in text
    assert "temporary" not in banner.banner(READY, "sync", 0.31, False, ("", ""))


def test_the_typer_road_leads_to_the_same_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", "--brokers", "99"]) == Exit.USAGE
    assert "from 1 to 15" in capsys.readouterr().err


# --- a broker among others -----------------------------------------------------------------------


def served(monkeypatch: pytest.MonkeyPatch, *args: str) -> BrokerConfig:
    """The configuration with which `dmq serve` would run."""
    found: list[BrokerConfig] = []

    def run_with(config: BrokerConfig, options: object) -> int:
        found.append(config)
        return 0

    monkeypatch.setattr(start, "_run", run_with)
    assert fast.start(["serve", *args]) == 0
    assert run(["serve", *args]) == 0
    fast_road, typer_road = found
    assert fast_road == typer_road
    return fast_road


def test_the_first_broker_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    config = served(monkeypatch, "--bootstrap", "--data", "/d", "--port", "1", "--peer-port", "2")
    assert config.cluster_bootstrap
    assert (config.data_dir, config.port, config.peer_listener) == ("/d", 1, "127.0.0.1:2")


def test_a_broker_that_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    config = served(monkeypatch, "--join", "a:1,b:2", "--host", "h", "--rack", "r")
    assert config.cluster_join == ("a:1", "b:2")
    assert (config.host, config.broker_rack, config.peer_listener) == ("h", "r", "h:9093")


@pytest.mark.parametrize(
    ("host", "bare"), [("::", "::"), ("::1", "::1"), ("[::1]", "::1"), ("h", "h")]
)
@pytest.mark.parametrize("way_in", [["--bootstrap"], ["--bootstrap", "--peer-port", "9093"]])
def test_both_doors_of_a_host(
    monkeypatch: pytest.MonkeyPatch, host: str, bare: str, way_in: list[str]
) -> None:
    config = served(monkeypatch, *way_in, "--host", host)
    assert config.peer_address == (bare, 9093)
    assert [each.host for each in config.kafka_listeners] == [bare]


def test_an_address_to_copy() -> None:
    ready = dataclasses.replace(READY, endpoints={"PLAINTEXT": ("::1", 1)})
    assert ready.bootstrap_servers == "[::1]:1"


def test_one_of_a_fixed_set_listens_where_the_list_says(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = "1@a:9093,2@b:9103"
    config = served(monkeypatch, "--peers", peers, "--node-id", "2")
    assert config.cluster_peers == ("1@a:9093", "2@b:9103")
    assert (config.node_id, config.peer_listener) == (2, "b:9103")
    listener = "peer.listener=0.0.0.0:7"
    config = served(monkeypatch, "--peers", peers, "--node-id", "2", "--set", listener)
    assert config.peer_listener == "0.0.0.0:7"


def test_a_container_says_it_all_with_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMQ_CLUSTER_PEERS", "1@a:1,2@b:2")
    monkeypatch.setenv("DMQ_NODE_ID", "2")
    assert served(monkeypatch).peer_address == ("b", 2)


def test_a_broker_alone_has_no_door_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert served(monkeypatch).peer_listener == ""


def test_a_broker_has_one_way_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert fast.start(["serve", "--bootstrap", "--join", "a:1"]) == Exit.USAGE
    assert "--bootstrap and --join" in error_of(capsys)


def test_the_help_shows_three_brokers_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--help"]) == 0
    text = capsys.readouterr().out
    assert text.count("dmq serve --join") == 2
    assert text.count("dmq serve --peers") == 3
