"""The topics of the coordinators: how many partitions and replicas, and which settings they begin with.

As Kafka's, so that its tools find what they expect. They are made when first needed. What is in them is
the coordinators' only: a client's record there is one that no coordinator can read.
"""

from dmq.config.broker import BrokerConfig
from dmq.errors import ErrorCode, KafkaError

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))

Shape = tuple[int, int, tuple[tuple[int, tuple[int, ...]], ...], tuple[tuple[str, str | None], ...]]
"""Partitions, replicas, no assignments, settings."""


def internal_shape(name: str, config: BrokerConfig) -> Shape:
    """What an internal topic is made with."""
    if name == OFFSETS_TOPIC:
        partitions = config.offsets_topic_num_partitions
        factor = config.offsets_topic_replication_factor
        segment_bytes = config.offsets_topic_segment_bytes
    else:
        assert name == TRANSACTIONS_TOPIC, name
        partitions = config.transaction_state_log_num_partitions
        factor = config.transaction_state_log_replication_factor
        segment_bytes = config.transaction_state_log_segment_bytes
    settings = (
        ("cleanup.policy", "compact"),
        ("compression.type", "producer"),
        ("segment.bytes", str(segment_bytes)),
    )
    return partitions, factor, (), settings


def check_is_clients(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION for a topic whose records are not the clients' to change."""
    if name in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"only the broker itself writes to {name}"
        )
