"""Settings of connections and requests: what a client may hold, and what happens at the bound.

Fields only; `broker.py` puts the groups of settings together.
"""

import dataclasses

from dmq.config.checks import AtLeast, Between
from dmq.config.definitions import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    INT_MAX,
    LONG,
    LOW,
    MEDIUM,
    STRING,
    setting,
)

MIB = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Bounds on the Kafka door."""

    socket_request_max_bytes: int = setting(
        INT,
        100 * MIB,
        "The largest request. A longer one closes its connection, before a byte of it is kept.",
        check=AtLeast(1),
        importance=HIGH,
        unit="bytes",
    )
    socket_send_buffer_bytes: int = setting(
        INT,
        -1,
        "SO_SNDBUF of client connections; -1 leaves it to the system, which grows it as needed.",
        check=AtLeast(-1),
        importance=LOW,
        unit="bytes",
    )
    socket_receive_buffer_bytes: int = setting(
        INT,
        -1,
        "SO_RCVBUF of client connections; -1 leaves it to the system, which grows it as needed.",
        check=AtLeast(-1),
        importance=LOW,
        unit="bytes",
    )
    socket_listen_backlog_size: int = setting(
        INT,
        1024,
        "How many connections may wait to be accepted.",
        check=AtLeast(1),
        importance=LOW,
    )
    connections_max_idle_ms: int = setting(
        LONG,
        600_000,
        "A connection without a request for this long is closed.",
        check=AtLeast(1),
        unit="ms",
    )
    max_connections: int = setting(
        INT,
        10_000,
        "How many client connections the broker holds; one more is closed as it arrives.",
        check=AtLeast(0),
        scope=CLUSTER_WIDE,
    )
    max_connections_per_ip: int = setting(
        INT,
        INT_MAX,
        "How many connections one address may hold; one more is closed as it arrives.",
        check=AtLeast(0),
        scope=CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: str = setting(
        STRING,
        "",
        "Other numbers for single addresses, as address:count pairs.",
        importance=LOW,
        scope=CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = setting(
        INT,
        INT_MAX,
        "How many connections are accepted in a second; the rest wait in the backlog.",
        check=AtLeast(1),
        importance=LOW,
        scope=CLUSTER_WIDE,
    )
    queued_max_request_bytes: int = setting(
        LONG,
        256 * MIB,
        "How many bytes of requests the broker holds unanswered in all; at the bound it stops "
        "reading sockets until some are answered. -1: no bound.",
        check=AtLeast(-1),
        importance=HIGH,
        unit="bytes",
    )
    connection_queued_max_bytes: int = setting(
        LONG,
        16 * MIB,
        "How many bytes of requests one connection may have unanswered; at the bound its socket "
        "is not read. A single larger request is still taken.",
        check=AtLeast(1),
        unit="bytes",
    )
    connection_queued_max_requests: int = setting(
        INT,
        256,
        "How many requests one connection may have unanswered; at the bound its socket is not "
        "read.",
        check=AtLeast(1),
    )
    waiters_max: int = setting(
        INT,
        100_000,
        "How many fetches and acknowledgements may be parked; at the bound a fetch is answered at "
        "once with what there is, and sockets with produce requests are not read.",
        check=AtLeast(1),
    )
    queued_max_requests: int = setting(
        INT,
        500,
        "Kafka's length of the queue between its network and worker threads. There is no such "
        "queue.",
        check=AtLeast(1),
        importance=LOW,
        inert=True,
    )
    fetch_max_bytes: int = setting(
        INT,
        55 * MIB,
        "The largest fetch answer, whatever the client asks for.",
        check=AtLeast(1024),
        importance=MEDIUM,
        unit="bytes",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        INT,
        1000,
        "How many fetch sessions are kept; beyond it the least used one makes room, and a client "
        "without a session sends whole requests.",
        check=AtLeast(0),
    )
    max_request_partition_size_limit: int = setting(
        INT,
        2000,
        "How many partitions one DescribeTopicPartitions answer has at most.",
        check=AtLeast(1),
    )
    request_timeout_ms: int = setting(
        INT,
        30_000,
        "How long a broker waits for another broker's answer.",
        check=AtLeast(0),
        importance=LOW,
        unit="ms",
    )
    telemetry_max_bytes: int = setting(
        INT,
        MIB,
        "The largest push of client metrics.",
        check=AtLeast(1),
        importance=LOW,
        unit="bytes",
    )
    num_network_threads: int = setting(
        INT,
        1,
        "Kafka's number of threads for sockets. One event loop serves them here.",
        check=Between(1, INT_MAX),
        importance=LOW,
        scope=CLUSTER_WIDE,
        inert=True,
    )
    num_io_threads: int = setting(
        INT,
        1,
        "Kafka's number of threads for requests. One event loop serves them here.",
        check=Between(1, INT_MAX),
        importance=LOW,
        scope=CLUSTER_WIDE,
        inert=True,
    )
