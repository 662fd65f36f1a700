"""Errors of a cluster in sentences."""

from confluent_kafka import KafkaError

from dmq.cli.kafka_errors import hint_of, sentence


def test_who_finds_no_leader_of_the_metadata_says_so() -> None:
    error = KafkaError(KafkaError.NOT_CONTROLLER, "NOT_CONTROLLER")
    assert sentence(error) == "The cluster's metadata have no leader, so nothing can be changed"
    assert "`dmq cluster status`" in hint_of(error)
