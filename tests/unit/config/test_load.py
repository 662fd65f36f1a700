"""Flags, environment and file, in that order of strength."""

from pathlib import Path
from typing import Any

import pytest

from dmq.config.broker import BrokerConfig
from dmq.config.load import load_broker_config
from dmq.errors import ConfigError


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str, name: str = "broker.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def problems(**given: Any) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_broker_config(**given)
    return refused.value.problems


def test_nothing_given_is_the_defaults() -> None:
    assert load_broker_config() == BrokerConfig()


def test_the_stronger_wins_and_the_place_is_known(write: Any) -> None:
    config = load_broker_config(
        flags={"num.partitions": 5, "durability": None},
        environ={"DMQ_NUM_PARTITIONS": "6", "DMQ_NODE_ID": "7", "HOME": "/"},
        path=write("num.partitions: 7\nnode.id: 8\ncluster.name: ours\n"),
    )
    assert (config.num_partitions, config.node_id, config.cluster_name) == (5, 7, "ours")
    assert config.sources == {
        "num.partitions": "flag num.partitions",
        "node.id": "environment DMQ_NODE_ID",
        "cluster.name": "broker.yaml:3",
    }
    assert config.values == {"num.partitions": "5", "node.id": "7", "cluster.name": "ours"}


def test_yaml_flat_nested_and_lists(write: Any) -> None:
    config = load_broker_config(
        path=write(
            "num: {partitions: 3}\n"
            "log:\n"
            "  retention:\n"
            "    hours: 5\n"
            "  cleanup.policy: [compact, delete]\n"
            "broker.rack: ~\n"
            "auto.create.topics.enable: false\n"
        )
    )
    assert config.num_partitions == 3
    assert config.log_retention_hours == 5
    assert config.log_cleanup_policy == ("compact", "delete")
    assert config.broker_rack is None
    assert config.auto_create_topics_enable is False


def test_properties_of_kafka_are_taken_over(write: Any) -> None:
    config = load_broker_config(
        path=write(
            "# a comment\nprocess.roles=broker,controller\nbroker.id=4\nlog.dir=/tmp/x\n"
            "listeners=PLAINTEXT://:9092\n\nnum.io.threads=8\nbackground.threads = 3\n",
            "server.properties",
        )
    )
    assert (config.node_id, config.data_dir) == (4, "/tmp/x")
    assert len(config.warnings) == 2
    assert all("changes nothing here" in warning for warning in config.warnings)


def test_every_problem_is_told_with_its_place(write: Any) -> None:
    found = problems(
        flags={"num.partitions": "x"},
        environ={"DMQ_NODE_IDD": "7", "DMQ_DURABILITY": "never"},
        path=write(
            "log.retention.mss: 4\nssl.keystore.location: /x\nport: 99999\n"
            "journal: {file.bytes: {a: 1}}\n"
        ),
    )
    assert found == [
        "environment DMQ_NODE_IDD: Unknown setting node.idd; did you mean node.id?",
        "broker.yaml:1: Unknown setting log.retention.mss; did you mean log.retention.ms?",
        "broker.yaml:2: ssl.keystore.location is a setting of Kafka's that dmq does not have",
        "broker.yaml:4: Unknown setting journal.file.bytes.a; did you mean journal.file.bytes?",
        "flag num.partitions: Invalid value x for configuration num.partitions: "
        "Not a number of type INT",
        "environment DMQ_DURABILITY: Invalid value never for configuration durability: "
        "String must be one of: sync, async",
        "broker.yaml:3: Invalid value 99999 for configuration port: "
        "Value must be no more than 65535",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "no YAML"),
        ("- a\n- b\n", "must be a mapping"),
        ("log.dirs: [{a: 1}]\n", "list of plain values"),
        ("? [a, b]\n: 1\n", "plain word"),
        ("node.id: 1\nnode: {id: 2}\n", "set twice"),
        ("node.id: 1\nbroker.id: 2\n", "set twice"),
        ("a: &x\n  b: *x\n", "plain word"),
        ("node.id: \x01\n", "no YAML"),
    ],
)
def test_a_bad_file_is_told(write: Any, text: str, said: str) -> None:
    assert any(said in problem for problem in problems(path=write(text)))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    (problem,) = problems(path=tmp_path / "none.yaml")
    assert "can't be read" in problem


def test_an_empty_file_is_no_problem(write: Any) -> None:
    assert load_broker_config(path=write("# nothing\n")).values == {}


def test_a_bad_line_of_properties_is_told(write: Any) -> None:
    assert problems(path=write("node.id\n", "x.properties")) == [
        "x.properties:1: not of the form name=value"
    ]


def test_service_links_of_kubernetes_are_not_settings() -> None:
    config = load_broker_config(
        environ={
            "DMQ_SERVICE_HOST": "10.0.0.1",
            "DMQ_SERVICE_PORT": "9092",
            "DMQ_SERVICE_PORT_KAFKA": "9092",
            "DMQ_PORT": "tcp://10.0.0.1:9092",
            "DMQ_PORT_9092_TCP": "tcp://10.0.0.1:9092",
            "DMQ_PORT_9092_TCP_ADDR": "10.0.0.1",
            "DMQ_HEADLESS_SERVICE_HOST": "None",
        }
    )
    assert config.values == {}
    assert load_broker_config(environ={"DMQ_PORT": "9093"}).port == 9093


def test_variables_of_others_can_be_left_out() -> None:
    assert (
        load_broker_config(environ={"DMQ_CONFIG": "x"}, environ_ignored=("DMQ_CONFIG",)).values
        == {}
    )


def test_a_stronger_port_takes_the_place_of_listeners(write: Any) -> None:
    path = write("listeners: PLAINTEXT://10.0.0.1:9092\n")
    assert load_broker_config(flags={"port": 7}, path=path).kafka_listeners[0].port == 7
    assert load_broker_config(path=path).kafka_listeners[0].port == 9092


def test_stronger_listeners_take_the_place_of_host_and_port(write: Any) -> None:
    config = load_broker_config(
        flags={"listeners": "PLAINTEXT://10.0.0.1:1"}, path=write("port: 5\nhost: h\n")
    )
    assert [str(listener) for listener in config.kafka_listeners] == ["PLAINTEXT://10.0.0.1:1"]


def test_listeners_and_port_in_one_place_are_a_problem(write: Any) -> None:
    assert any(
        "must not be" in p for p in problems(path=write("port: 5\nlisteners: PLAINTEXT://:1\n"))
    )


def test_a_flag_is_named_once() -> None:
    flags = {"cluster.peers": "1@a:1,2@b:1", "node.id": "3"}
    assert problems(flags=flags) == [
        "flag cluster.peers, flag node.id: node.id 3 is not among them"
    ]
    said = problems(flags={"cluster.peers": "1@a:1"}, environ={"DMQ_NODE_ID": "3"})
    place = "flag cluster.peers, environment DMQ_NODE_ID: node.id"
    assert said == [f"{place}: node.id 3 is not among them"]
