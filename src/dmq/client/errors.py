"""What can go wrong for a client, whose move it is, and librdkafka's codes sorted into it.

    ClientError                     every failure; says what was tried, what happened, what to do
    ├── AccessError                 not allowed, or not who one says one is
    ├── BufferFullError             the producer's buffer stayed full
    ├── ClosedError                 used after close
    ├── ConnectionFailedError       no broker answers
    ├── GroupError                  no longer a member of the group as the group knows it
    ├── OffsetError                 there is no such offset to read from
    ├── RecordTooLargeError
    ├── SerializationError          a value that is no such bytes, or bytes that are no such value
    ├── TimedOutError               not within its time (also a TimeoutError)
    ├── TransactionError            the calls came in an order that a transaction does not have
    │   ├── TransactionAbortedError nothing of it is visible: run the block again
    │   └── FencedError             another producer has this transactional id: stop
    └── UnknownTopicError

`retriable`: the same call may succeed later. `fatal`: this client is of no more use. Settings that
do not hold are a `ConfigError`, with every problem at once. No other module reads librdkafka's
codes.
"""

from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from dmq.errors import DmqError, ErrorCode


class ClientError(DmqError):
    """A failure that the application may want to act on."""

    def __init__(
        self,
        message: str,
        *,
        name: str = "",
        code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR,
        retriable: bool = False,
        fatal: bool = False,
    ) -> None:
        super().__init__(message)
        self.name = name
        """librdkafka's name of the failure (its own ones begin with `_`), or nothing."""
        self.code = code
        """Kafka's code where the broker gave one, else UNKNOWN_SERVER_ERROR."""
        self.retriable = retriable
        self.fatal = fatal


class AccessError(ClientError):
    """The broker does not let this client do that, or does not know it."""


class BufferFullError(ClientError):
    """The producer's buffer stayed full for `max_block_ms`: records come faster than they go."""


class ClosedError(ClientError):
    """The client was used after `close`."""


class ConnectionFailedError(ClientError):
    """No broker answers at the addresses that are known."""


class GroupError(ClientError):
    """The group has moved on without this consumer; what it did not commit is somebody else's now."""


class OffsetError(ClientError):
    """There is nothing to read at that offset, and no policy says where to go instead."""


class RecordTooLargeError(ClientError):
    """The record is larger than the client or the topic allows."""


class SerializationError(ClientError):
    """A value could not be turned into bytes, or bytes not into a value."""


class TimedOutError(ClientError, TimeoutError):
    """It did not happen within its time. It may still happen."""


class TransactionError(ClientError):
    """A transaction was used in a way, or in an order, that transactions do not have."""


class TransactionAbortedError(TransactionError):
    """The transaction was aborted: nothing of it is visible. Run it again from the committed offsets."""


class FencedError(TransactionError):
    """A newer producer uses the same transactional id; this one must stop."""


class UnknownTopicError(ClientError):
    """The topic or the partition does not exist, and the broker did not create it."""


class Cause(NamedTuple):
    """What a code means here, and what to do about it."""

    kind: type[ClientError]
    advice: str


_NO_BROKER = Cause(
    ConnectionFailedError,
    "Is a broker running at `bootstrap_servers`, and can it be reached from here? (`dmq up` starts one.)",
)
_LATE = Cause(
    TimedOutError,
    "Try again, or allow more time; if it stays so, look whether the partition has a leader.",
)
_NOT_DELIVERED = Cause(
    TimedOutError,
    "The record was not acknowledged within `delivery_timeout_ms` (it may have been written). Is the "
    "broker up, and does the partition have a leader and enough replicas?",
)
_NO_TOPIC = Cause(
    UnknownTopicError,
    "Create it (`dmq topic create NAME`), or let the broker do so (auto.create.topics.enable).",
)
_NO_NAME = Cause(
    UnknownTopicError,
    "No topic can have that name: they are 1 to 249 ASCII letters, digits, '.', '_' and '-', and not "
    "'.' or '..'.",
)
_TOO_LARGE = Cause(
    RecordTooLargeError,
    "Send less per record, or raise `max_record_bytes` here and max.message.bytes of the topic.",
)
_NOT_ALLOWED = Cause(AccessError, "Ask for the right to it, or check which user this client is.")
_NOT_KNOWN = Cause(AccessError, "Check user, password and mechanism in `options` (sasl.*).")
_TLS = Cause(AccessError, "Check the certificates in `options` (ssl.*) and the port.")
_MOVED_ON = Cause(
    GroupError,
    "The partitions were given to others, who read on from the last commit: drop this work and poll "
    "again. If it happens often, poll more often or raise `max_poll_interval_ms`.",
)
_NO_OFFSET = Cause(
    OffsetError,
    "Seek to an offset that exists, or set `auto_offset_reset` to EARLIEST or LATEST.",
)
_FENCED = Cause(
    FencedError,
    "Only one producer at a time may use a transactional id: end this one, or give it its own id.",
)
_ABORTED = Cause(TransactionAbortedError, "Run the transaction again.")
_ORDER = Cause(
    TransactionError, "With a `transactional_id`, send inside `with producer.transaction():` only."
)
_PURGED = Cause(TimedOutError, "The producer was closed before the record was acknowledged.")
_NOT_ASSIGNED = Cause(
    ClientError,
    "This works on partitions that are assigned: poll until `assignment()` has them, or do it in "
    "`on_assign`.",
)

_CAUSES: dict[Cause, tuple[str, ...]] = {
    _NO_BROKER: ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "BROKER_NOT_AVAILABLE"),
    _LATE: ("_TIMED_OUT", "_TIMED_OUT_QUEUE", "REQUEST_TIMED_OUT", "_WAIT_COORD"),
    _NOT_DELIVERED: ("_MSG_TIMED_OUT",),
    _PURGED: ("_PURGE_QUEUE", "_PURGE_INFLIGHT"),
    _NO_TOPIC: (
        "UNKNOWN_TOPIC_OR_PART",
        "UNKNOWN_TOPIC_ID",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
    ),
    _NO_NAME: ("TOPIC_EXCEPTION",),
    _TOO_LARGE: ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_MSG_SIZE"),
    _NOT_ALLOWED: (
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ),
    _NOT_KNOWN: ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM"),
    _TLS: ("_SSL",),
    _MOVED_ON: (
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "REBALANCE_IN_PROGRESS",
        "FENCED_INSTANCE_ID",
        "FENCED_MEMBER_EPOCH",
        "STALE_MEMBER_EPOCH",
        "_ASSIGNMENT_LOST",
        "_MAX_POLL_EXCEEDED",
    ),
    _NO_OFFSET: ("OFFSET_OUT_OF_RANGE", "_NO_OFFSET", "_AUTO_OFFSET_RESET"),
    _FENCED: ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"),
    _ABORTED: ("TRANSACTION_ABORTABLE",),
    _ORDER: ("INVALID_TXN_STATE",),
}
_BY_NAME = {name: cause for cause, names in _CAUSES.items() for name in names}
_RETRIABLE = frozenset({_NO_BROKER, _LATE})
"""The causes after which the same call may do, whatever librdkafka says of the single code."""


def translate(error: KafkaError, doing: str, state: Cause = _ORDER) -> ClientError:
    """Our error for librdkafka's; `state` is what "erroneous state" means for the call."""
    name = error.name()
    cause = state if name == "_STATE" else _BY_NAME.get(name)
    if error.txn_requires_abort() and not error.fatal():
        cause = _ABORTED
    elif error.fatal() and (cause is None or name == "_FATAL"):
        cause = Cause(ClientError, "Close this client and make a new one.")
    cause = cause or Cause(ClientError, "")
    said = error.str().rstrip(".")
    return cause.kind(
        f"{doing}: {said} ({name}). {cause.advice}".rstrip(),
        name=name,
        code=_code_of(error),
        retriable=not error.fatal() and (error.retriable() or cause in _RETRIABLE),
        fatal=error.fatal(),
    )


def translate_raised(raised: KafkaException, doing: str, state: Cause = _ORDER) -> ClientError:
    """The same of an exception, which carries the error as its argument."""
    error = raised.args[0] if raised.args else None
    if isinstance(error, KafkaError):
        return translate(error, doing, state)
    return ClientError(f"{doing}: {raised}")


def not_assigned() -> Cause:
    """What "erroneous state" means to calls about single partitions."""
    return _NOT_ASSIGNED


def _code_of(error: KafkaError) -> ErrorCode:
    try:
        return ErrorCode(error.code())
    except ValueError:  # One of librdkafka's own, below -1.
        return ErrorCode.UNKNOWN_SERVER_ERROR
