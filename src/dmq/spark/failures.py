"""What a Spark user is told: one exception, whose message says what to do.

Spark shows the message of an exception that a data source raises; the type does not cross the
processes. So everything that a user can cause or mend is a `SparkSourceError` with a whole sentence.
"""

from typing import Any

from dmq.errors import DmqError, ErrorCode, KafkaError


class SparkSourceError(DmqError):
    """A failure that the user of the data source can mend; the message says how."""


class NoBrokerError(SparkSourceError):
    """None of the brokers that are known answers: they may come back, so this is tried again."""


def check(error_code: int, what: str = "") -> None:
    """Raise KafkaError for an error code of a response, nothing for 0."""
    if error_code:
        try:
            code = ErrorCode(error_code)
        except ValueError:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            what = f"{what} (error code {error_code})".strip()
        raise KafkaError(code, f"{code.name}: {what}" if what else "")


def only_partition(fetched: Any, what: str) -> Any:
    """The partition of a Fetch that asked for one. Raises KafkaError.

    A broker with quotas answers a client that is above its own without any partition (KIP-219).
    """
    check(fetched.error_code, what)
    if not fetched.responses:
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{what}: slowed down by a quota")
    found = fetched.responses[0].partitions[0]
    check(found.error_code, what)
    return found
