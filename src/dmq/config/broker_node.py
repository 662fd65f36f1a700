"""Settings of the broker itself: who it is, where it lives, where it listens, what it logs.

Fields only; `broker.py` puts the groups of settings together.
"""

import dataclasses

from dmq.config.checks import AtLeast, Between, Exactly, NotEmpty, OneOf
from dmq.config.definitions import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    STRING,
    setting,
)

PROTOCOLS = ("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT")
PROTOCOL_MAP = ",".join(f"{protocol}:{protocol}" for protocol in PROTOCOLS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """Identity, place and voice."""

    node_id: int = setting(
        INT,
        1,
        "The broker's number in its cluster. It stays with the data directory. Also: `broker.id`.",
        check=AtLeast(0),
        importance=HIGH,
    )
    cluster_name: str = setting(
        STRING,
        "dmq",
        "A name for people: banners, console, metrics. Clients see the cluster id instead.",
        check=NotEmpty(),
        importance=LOW,
    )
    broker_rack: str | None = setting(
        STRING,
        None,
        "Where the broker stands. Replicas of a partition are spread over racks, and consumers "
        "with the same `client.rack` read from it.",
    )
    log_dirs: tuple[str, ...] = setting(
        LIST,
        ("dmq-data",),
        "The data directory: journal, logs and identity. Exactly one. Also: `log.dir`, `data.dir`.",
        check=NotEmpty(),
        importance=HIGH,
    )
    host: str = setting(
        STRING,
        "127.0.0.1",
        "The address that the Kafka door binds, if `listeners` is not set. 0.0.0.0 is every IPv4 "
        "address of the machine.",
        importance=HIGH,
    )
    port: int = setting(
        INT,
        9092,
        "The port of the Kafka door, if `listeners` is not set. 0 lets the system choose.",
        check=Between(0, 65535),
        importance=HIGH,
    )
    listeners: tuple[str, ...] = setting(
        LIST,
        (),
        "The Kafka door's addresses, each NAME://host:port. Without it, PLAINTEXT://`host`:`port`.",
        importance=HIGH,
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        LIST,
        None,
        "The addresses that clients are told, one for each listener by name. Without it they are "
        "told the listeners; needed when these bind 0.0.0.0 or lie behind a translation of "
        "addresses.",
        importance=HIGH,
    )
    listener_security_protocol_map: str = setting(
        STRING,
        PROTOCOL_MAP,
        "Which security protocol a listener's name stands for, as NAME:PROTOCOL pairs.",
        importance=LOW,
    )
    inter_broker_listener_name: str | None = setting(
        STRING,
        None,
        "Kafka's listener for brokers among themselves. Brokers have a door of their own here.",
        importance=LOW,
        inert=True,
    )
    logging_level: str = setting(
        STRING,
        "info",
        "How much the broker says about itself.",
        check=OneOf("debug", "info", "warning", "error", ignore_case=True),
        scope=CLUSTER_WIDE,
    )
    logging_format: str = setting(
        STRING,
        "text",
        "How it says it: `text` for people, `json` for collectors.",
        check=OneOf("text", "json", ignore_case=True),
        importance=LOW,
    )
    broker_session_timeout_ms: int = setting(
        INT,
        9000,
        "How long Kafka's controller waits for a broker's heartbeat. Links between brokers have "
        "fixed, shorter times here.",
        check=AtLeast(1),
        importance=LOW,
        unit="ms",
        inert=True,
    )
    broker_heartbeat_interval_ms: int = setting(
        INT,
        2000,
        "Kafka's time between a broker's heartbeats to the controller.",
        check=AtLeast(1),
        importance=LOW,
        unit="ms",
        inert=True,
    )
    replica_lag_time_max_ms: int = setting(
        LONG,
        30_000,
        "How long a replica may be behind its leader before clients no longer see it in sync.",
        check=AtLeast(1),
        importance=MEDIUM,
        unit="ms",
    )
    replica_selector_class: str = setting(
        STRING,
        "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "Who serves a consumer that says where it is: a replica in its rack (Kafka's name for that, "
        "the only one known here), or always the leader (empty).",
        check=OneOf("", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
        importance=MEDIUM,
    )
    authorizer_class_name: str = setting(
        STRING,
        "",
        "Kafka's plug-in that decides who may do what. Empty: everybody may do everything.",
        check=Exactly("", "Plug-ins of Kafka can't run here"),
        importance=LOW,
        inert=True,
    )
