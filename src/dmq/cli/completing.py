"""What the shell offers after TAB beyond commands and options: topics, settings.

Owns the questions behind it. A shell that waits is worse than one that offers nothing: whatever goes
wrong, and whatever takes more than a moment, offers nothing. Never prints.
"""

import typer

from dmq.cli.exits import CommandError

_PATIENCE_S = 1.0


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics of the cluster that begin so, but for those that the line has already."""
    from confluent_kafka import KafkaException

    from dmq.cli.command import session_of

    # Nothing runs while a line is completed: options before the command's name are with the root.
    places = (ctx.find_root().params, ctx.params)
    given = {name: value for place in places for name, value in place.items() if value}
    try:
        session = session_of(given)
        session.reach(_PATIENCE_S)
        topics = session.admin().list_topics(timeout=_PATIENCE_S).topics
    except (CommandError, KafkaException):
        return []
    present = ctx.params.get("names") or ctx.params.get("topics") or []
    return sorted(
        name
        for name in topics
        if name.startswith(incomplete)
        and name not in present
        and (incomplete.startswith("_") or not name.startswith("__"))
    )


def setting_names(incomplete: str) -> list[str]:
    """Settings of brokers, topics and groups that begin so."""
    from dmq.config.broker import BROKER
    from dmq.config.group import GROUP
    from dmq.config.topic import TOPIC

    return sorted(name for name in {*BROKER, *TOPIC, *GROUP} if name.startswith(incomplete))
