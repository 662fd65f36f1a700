"""BrokerConfig: values, whole-config checks, listeners."""

import pytest

from dmq.config.broker import BROKER, BrokerConfig, parse_ip_overrides
from dmq.config.listeners import Listener, parse_listener, parse_protocol_map
from dmq.errors import ConfigError


def problems(**fields: object) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.of(**fields)
    return refused.value.problems


def test_values_by_name_and_by_field() -> None:
    config = BrokerConfig.of(
        {"num.partitions": 3, "log.dirs": ["/data"]}, node_id=7, durability="async"
    )
    assert (config.num_partitions, config.node_id, config.durability) == (3, 7, "async")
    assert config.data_dir == "/data"
    assert config.values == {
        "num.partitions": "3",
        "log.dirs": "/data",
        "node.id": "7",
        "durability": "async",
    }


def test_none_means_not_set() -> None:
    assert BrokerConfig.of(broker_rack=None).values == {}


def test_all_problems_are_told_at_once() -> None:
    found = problems(num_partitions=0, foo=1, log_dirs="a,b", journal_max_bytes=20_000)
    assert len(found) == 4
    assert any("Unknown setting foo" in problem for problem in found)


def test_every_setting_has_a_field_with_its_default() -> None:
    config = BrokerConfig()
    for name, definition in BROKER.items():
        assert definition.field == name.replace(".", "_")
        assert getattr(config, definition.field) == definition.default


@pytest.mark.parametrize(
    ("fields", "retention_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": 2}, 7_200_000),
        ({"log.retention.hours": 2, "log.retention.minutes": 3}, 180_000),
        ({"log.retention.minutes": 3, "log.retention.ms": 4}, 4),
        ({"log.retention.ms": -1}, -1),
        ({"log.retention.hours": -1}, -1),
        ({"log.retention.minutes": -1, "log.retention.hours": 5}, -1),
    ],
)
def test_retention_comes_from_the_finest_unit_that_is_set(
    fields: dict[str, int], retention_ms: int
) -> None:
    assert BrokerConfig.of(fields).retention_ms == retention_ms


def test_roll_comes_from_the_finest_unit_that_is_set() -> None:
    config = BrokerConfig.of({"log.roll.hours": 2, "log.roll.jitter.hours": 1})
    assert (config.roll_ms, config.roll_jitter_ms) == (7_200_000, 3_600_000)
    config = BrokerConfig.of({"log.roll.hours": 2, "log.roll.ms": 5, "log.roll.jitter.ms": 0})
    assert (config.roll_ms, config.roll_jitter_ms) == (5, 0)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"log.retention.ms": 0}, "greater than 0"),
        ({"journal.file.bytes": 1 << 20, "journal.max.bytes": 1 << 20}, "four files"),
        ({"queued.max.request.bytes": 5}, "socket.request.max.bytes"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "address:count"),
        ({"group.consumer.session.timeout.ms": 70_000}, "must lie between"),
        ({"group.min.session.timeout.ms": 2_000_000}, "must lie between"),
        (
            {"log.cleaner.min.compaction.lag.ms": 5, "log.cleaner.max.compaction.lag.ms": 4},
            "greater",
        ),
        ({"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "own name"),
        ({"listeners": "SSL://:1"}, "not served yet"),
        ({"listeners": "FOO://:1"}, "no security protocol"),
        ({"listeners": "PLAINTEXT:1"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:99999"}, "65535"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "no address"),
        ({"advertised.listeners": "SSL://h:1"}, "no listener"),
        ({"listener.security.protocol.map": "A:B"}, "NAME:PROTOCOL"),
        ({"authorizer.class.name": "x.Y"}, "can't run here"),
        ({"remote.log.storage.system.enable": "true"}, "Tiered storage"),
    ],
)
def test_what_does_not_fit_together_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.of(fields)
    assert said in str(refused.value)


def test_listeners_from_host_and_port() -> None:
    config = BrokerConfig.of(host="::1", port=1234)
    assert config.kafka_listeners == (Listener("PLAINTEXT", "PLAINTEXT", "::1", 1234),)
    assert str(config.kafka_listeners[0]) == "PLAINTEXT://[::1]:1234"


def test_named_listeners_and_what_clients_are_told() -> None:
    config = BrokerConfig.of(
        {
            "listeners": "INSIDE://0.0.0.0:9092,OUTSIDE://10.0.0.1:0",
            "advertised.listeners": "OUTSIDE://kafka.example.com:443",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        }
    )
    inside, outside = config.kafka_listeners
    assert config.advertised(inside, 9092, "box") == ("box", 9092)
    assert config.advertised(outside, 40000, "box") == ("kafka.example.com", 443)


def test_an_address_is_advertised_as_it_is_bound() -> None:
    config = BrokerConfig.of(listeners="PLAINTEXT://10.0.0.1:0")
    assert config.advertised(config.kafka_listeners[0], 40000, "box") == ("10.0.0.1", 40000)


def test_ipv6_listener() -> None:
    listener = parse_listener("PLAINTEXT://[fe80::1]:9", parse_protocol_map("PLAINTEXT:PLAINTEXT"))
    assert (listener.host, listener.port) == ("fe80::1", 9)


def test_connection_overrides() -> None:
    assert parse_ip_overrides("10.0.0.1:5, ::1:7") == {"10.0.0.1": 5, "::1": 7}


def test_dynamic_values_are_laid_over_each_other() -> None:
    config = BrokerConfig.of({"message.max.bytes": 10, "num.partitions": 2})
    changed = config.with_dynamic({"message.max.bytes": "20"}, {"message.max.bytes": "30"})
    assert (changed.message_max_bytes, changed.num_partitions) == (30, 2)
    assert config.message_max_bytes == 10
    assert config.with_dynamic({}, {}) is config


def test_addresses_of_the_peer_door() -> None:
    config = BrokerConfig.of(peer_listener="[::1]:0", cluster_join="a:9093,[fe80::1]:9193")
    assert config.peer_address == ("::1", 0)
    assert config.peer_told(4242, "host") == ("::1", 4242)
    assert config.join_addresses == (("a", 9093), ("fe80::1", 9193))
    everywhere = BrokerConfig.of(peer_listener="0.0.0.0:9093")
    assert everywhere.peer_told(9093, "host") == ("host", 9093)
    told = BrokerConfig.of(peer_listener=":9093", peer_advertised="broker-1:19093")
    assert told.peer_told(9093, "host") == ("broker-1", 19093)
    assert BrokerConfig().peer_address is None


def test_a_fixed_set_of_peers_is_read_in_order() -> None:
    config = BrokerConfig.of(
        cluster_peers="3@c:9093, 1@a:9093,2@b:9093", node_id=2, peer_listener=":9093"
    )
    assert config.peers_by_id == {1: ("a", 9093), 2: ("b", 9093), 3: ("c", 9093)}
    assert [*config.peers_by_id] == [1, 2, 3]
    assert BrokerConfig().peers_by_id == {}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"cluster_join": "a:1"}, "peer.listener: must be set for a broker that joins others"),
        ({"cluster_join": "a", "peer_listener": ":0"}, "'a' is not of the form host:port"),
        ({"cluster_join": ":1", "peer_listener": ":0"}, "':1' is no address"),
        ({"cluster_join": "a:0", "peer_listener": ":0"}, "'a:0' is no address"),
        ({"peer_listener": "a:70000"}, "port of 'a:70000' is greater"),
        ({"peer_listener": "9093"}, "'9093' is not of the form host:port"),
        ({"peer_listener": ":1", "peer_advertised": "0.0.0.0:1"}, "is no address that another"),
        ({"cluster_peers": "1@a:1,1@b:1", "peer_listener": ":1"}, "broker 1 appears twice"),
        ({"cluster_peers": "1@a:1,2@a:1", "peer_listener": ":1"}, "its own address"),
        ({"cluster_peers": "a:1", "peer_listener": ":1"}, "not of the form id@host:port"),
        ({"cluster_peers": "2@a:1", "peer_listener": ":1"}, "node.id 1 is not among them"),
        (
            {"cluster_bootstrap": True, "cluster_join": "a:1", "peer_listener": ":1"},
            "only one of cluster.bootstrap, cluster.join and cluster.peers",
        ),
        ({"cluster_peers": "2@a:1"}, "node.id 1 is not among them"),
        ({"port": 7, "peer_listener": "127.0.0.1:7"}, "clients are served at port 7 (PLAINTEXT)"),
        ({"listeners": "PLAINTEXT://a:7", "peer_listener": ":7"}, "clients are served at port 7"),
        ({"peer_reconnect_backoff_ms": 600}, "greater than peer.reconnect.backoff.max.ms"),
        ({"peer_silence_max_ms": 10}, "at least 1000"),
    ],
)
def test_settings_of_a_cluster_that_do_not_hold(fields: dict[str, object], problem: str) -> None:
    found = problems(**fields)
    assert len(found) == 1
    assert problem in found[0]


def test_doors_at_hosts_of_their_own_may_have_one_port() -> None:
    config = BrokerConfig.of(listeners="PLAINTEXT://a:7", peer_listener="b:7")
    assert config.peer_address == ("b", 7)
    assert BrokerConfig.of(port=0, peer_listener=":0").peer_address == ("", 0)
