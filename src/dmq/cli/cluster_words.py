"""What commands about clusters share: names of partitions, a yes that is needed, outcomes in words."""

import sys
from typing import Any

from dmq.cli.cluster_facts import Cluster
from dmq.cli.cluster_wire import Outcome, Where, error_name
from dmq.cli.exits import CommandError, not_found, usage
from dmq.cli.output import count_of
from dmq.cli.session import LOOK_AT_STATUS, NO_METADATA_LEADER, Session
from dmq.errors import ErrorCode

COMPLAINTS_MAX = 5
"""Partitions that failed are told one by one up to here; the rest are counted."""


def partition_of(text: str) -> Where:
    """`orders:3` → topic and number."""
    topic, colon, number = text.rpartition(":")
    if not colon or not topic or not number.isdecimal():
        raise usage(f"{text!r} names no partition", "Write TOPIC:PARTITION, as in orders:3.")
    return topic, int(number)


def broker_of(text: str) -> int:
    """A broker's number."""
    if not text.isdecimal():
        raise usage(f"{text!r} is no broker", "Write its number, as `dmq cluster status` shows it.")
    return int(text)


def no_partition(cluster: Cluster, where: Where) -> CommandError:
    """A partition that does not exist."""
    topic, index = where
    count = sum(each.topic == topic for each in cluster.partitions)
    if not count:
        return not_found(f"There is no topic {topic!r}", "See `dmq topic list`.")
    return not_found(f"Topic {topic!r} has no partition {index}: it has 0 to {count - 1}")


def confirm(question: str, otherwise: str) -> None:
    """Ask a person. Raises CommandError for anything but yes."""
    if not sys.stdin.isatty():
        raise usage("This needs a yes, and there is nobody to ask", "Add --yes.")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError(otherwise)


def complain(session: Session, failed: list[Outcome]) -> None:
    """A sentence for each of the first partitions that failed; one for all if there is nobody to take
    an order."""
    orphans = [each for each in failed if each.code == ErrorCode.NOT_CONTROLLER]
    if orphans:
        those = count_of(len(orphans), "partition")
        session.output.error(f"{those}: {NO_METADATA_LEADER}", LOOK_AT_STATUS)
    others = [each for each in failed if each not in orphans]
    for each in others[:COMPLAINTS_MAX]:
        session.output.error(f"{each.topic}:{each.partition}: {each.message or each.name}")
    if len(others) > COMPLAINTS_MAX:
        session.output.error(f"… and {len(others) - COMPLAINTS_MAX:,} more")


def outcomes_json(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """The stable schema of outcomes."""
    return [
        {
            "topic": each.topic,
            "partition": each.partition,
            "error": error_name(each.code) if each.code else None,
            "message": each.message or None,
        }
        for each in outcomes
    ]
