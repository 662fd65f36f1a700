"""The topic for dead letters: made before a landing begins, with room for what it may have to take.

A dead letter is the record that it was and a few headers more, so the largest record that its topic
takes needs a little more room there: one that the topic refused would stop the landing.
"""

from typing import TYPE_CHECKING

from dmq.cli.exits import not_found
from dmq.cli.session import REQUEST_TIMEOUT_S, Session

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

HEADERS_BYTES_MAX = 64 * 1024
"""Room for the headers: a reason, and the place."""
_SIZE = "max.message.bytes"


def prepare(session: Session, topic: str, dead: str) -> None:
    """The topic is there, and the one for its dead letters is from now on."""
    from confluent_kafka import KafkaError, KafkaException

    from dmq.cli.kafka_errors import error_of, failure

    admin = session.admin()
    try:
        topics = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
        if topic not in topics:
            raise not_found(f"There is no topic {topic!r}", "See `dmq topic list`.")
        size = _size(admin, topic)
        if dead in topics:
            _check_room(session, admin, dead, size)
            return
        _make(admin, dead, len(topics[topic].partitions), size)
        session.output.note(f"Made topic {dead} for records that don't parse")
    except KafkaException as error:
        if error_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise failure(session, f"Looking for {topic!r}", error) from error


def _make(admin: "AdminClient", dead: str, partitions: int, size: int | None) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    from dmq.cli.kafka_errors import error_of

    sizes = [size + HEADERS_BYTES_MAX, size] if size else [None]
    for each in sizes:
        config = {} if each is None else {_SIZE: str(each)}
        new = NewTopic(dead, partitions, -1, config=config)
        try:
            admin.create_topics([new], request_timeout=REQUEST_TIMEOUT_S)[dead].result()
            return
        except KafkaException as error:
            # Clusters that belong to somebody else may have a highest size.
            refused = (KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION)
            if error_of(error).code() not in refused or each == sizes[-1]:
                raise


def _check_room(session: Session, admin: "AdminClient", dead: str, size: int | None) -> None:
    """A topic that was there is its owner's: its settings stay, and are told of."""
    room = _size(admin, dead)
    if size is not None and room is not None and room < size + HEADERS_BYTES_MAX:
        session.output.note(
            f"Topic {dead} takes no records above {room:,} bytes: a larger one that does not parse"
            f" would stop the landing. `dmq topic alter {dead} -c {_SIZE}={size + HEADERS_BYTES_MAX}`"
            " makes room."
        )


def _size(admin: "AdminClient", topic: str) -> int | None:
    """The largest batch that a topic takes; None if this user may not know."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

    asked = ConfigResource(ResourceType.TOPIC, topic)
    try:
        answers = admin.describe_configs([asked], request_timeout=REQUEST_TIMEOUT_S)
        found = answers[asked].result().get(_SIZE)
    except KafkaException:
        return None
    return None if found is None else int(found.value)
