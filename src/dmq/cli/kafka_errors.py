"""librdkafka's errors as sentences and exit codes.

Owns the one table from Kafka error codes to what a person should do next. Imported only by commands
that talk to a cluster.
"""

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from dmq.cli.exits import CommandError, Exit
from dmq.cli.session import LOOK_AT_STATUS, NO_METADATA_LEADER, Session

T = TypeVar("T")

_NOT_REACHABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.REQUEST_TIMED_OUT,
}
_NOT_FOUND = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_HINTS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "See `dmq topic list`, or create it with `dmq topic create`.",
    KafkaError._UNKNOWN_TOPIC: "See `dmq topic list`, or create it with `dmq topic create`.",
    KafkaError._UNKNOWN_PARTITION: "See `dmq topic describe` for the partitions it has.",
    KafkaError.TOPIC_ALREADY_EXISTS: "Add --if-not-exists to accept that.",
    KafkaError.INVALID_REPLICATION_FACTOR: "Ask for at most as many replicas as there are brokers.",
    KafkaError.INVALID_CONFIG: "See `dmq config list` for settings and their values.",
    KafkaError.NOT_CONTROLLER: LOOK_AT_STATUS,
    KafkaError._MSG_TIMED_OUT: "No broker took it in time: none was reached, or a partition has too few "
    "replicas in sync (min.insync.replicas). See `dmq doctor` and `dmq cluster status`.",
    KafkaError.MSG_SIZE_TOO_LARGE: "`dmq topic alter TOPIC -c max.message.bytes=…` allows more.",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Log in with --client-config, or ask for access.",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Log in with --client-config, or ask for access.",
    KafkaError._UNSUPPORTED_FEATURE: "This cluster does not serve it; see `dmq doctor --remote`.",
    KafkaError._AUTHENTICATION: "Check the SASL settings in --client-config.",
    KafkaError._SSL: "Check the TLS settings in --client-config.",
}


def error_of(error: KafkaException | KafkaError) -> KafkaError:
    """The KafkaError inside an exception of librdkafka."""
    inner = error.args[0] if isinstance(error, KafkaException) else error
    assert isinstance(inner, KafkaError)
    return inner


def exit_code(error: KafkaError) -> Exit:
    """What this error means to a script."""
    if error.code() in _NOT_REACHABLE:
        return Exit.NOT_REACHABLE
    return Exit.NOT_FOUND if error.code() in _NOT_FOUND else Exit.FAILURE


def sentence(error: KafkaError) -> str:
    """Kafka's reason, without librdkafka's markers."""
    if error.code() == KafkaError.NOT_CONTROLLER:
        return NO_METADATA_LEADER
    text = error.str() or error.name()
    return text.removeprefix("Local: ").removeprefix("Broker: ")


def failure(session: Session, doing: str, error: KafkaException | KafkaError) -> CommandError:
    """The end of a command that was doing something."""
    inner = error_of(error)
    code = exit_code(inner)
    hint = _HINTS.get(inner.code(), "")
    why = sentence(inner)
    if code is Exit.NOT_REACHABLE:
        last = session.last_words()
        why += f" ({last})" if last else ""
        hint = hint or f"Check the broker at {session.bootstrap} with `dmq doctor`."
    return CommandError(f"{doing} failed: {why}", hint=hint, code=code)


def hint_of(error: KafkaError) -> str:
    """What to do about it, or nothing."""
    return _HINTS.get(error.code(), "")


def asked(session: Session, doing: str, call: Callable[[], T]) -> T:
    """Make one call to the cluster; its error ends the command in a sentence."""
    try:
        return call()
    except KafkaException as error:
        raise failure(session, doing, error) from error
