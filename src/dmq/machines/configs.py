"""Altering configs of topics, brokers, groups and client metrics: what is allowed, and the records.

Reads the cluster's state, changes nothing; what a value may be is `dmq.config.rules`'. Loggers are
not state of the cluster: the broker that has them changes them. Called by `cluster.py`.
"""

from collections import Counter

from dmq.config.definitions import ResourceType
from dmq.config.rules import ConfigRules
from dmq.errors import ErrorCode, KafkaError
from dmq.machines.commands import AlterConfigs, AlterOp, ConfigAltered, ConfigChange
from dmq.machines.machine import Outcome, Record
from dmq.machines.records import ConfigRecord, encode
from dmq.machines.state import ClusterState
from dmq.machines.topics import check_topic_name


def alter_configs(
    state: ClusterState, rules: ConfigRules, command: AlterConfigs
) -> Outcome[list[ConfigAltered]]:
    """Every resource by itself; one that fails leaves the others alone."""
    asked = Counter((change.resource, change.name) for change in command.changes)
    results: dict[tuple[int, str], ConfigAltered] = {}
    records: list[Record] = []
    for change in command.changes:
        key = (change.resource, change.name)
        if key in results:
            continue
        error = None
        try:
            if asked[key] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "The resource is named twice in one request."
                )
            records += alter_resource(state, rules, change, replace=command.replace)
        except KafkaError as refused:
            error = refused
        results[key] = ConfigAltered(change.resource, change.name, error)
    return Outcome(list(results.values()), [] if command.validate_only else records)


def alter_resource(
    state: ClusterState, rules: ConfigRules, change: ConfigChange, *, replace: bool
) -> list[Record]:
    """The records of one change. Raises KafkaError."""
    resource = check_resource(state, change.resource, change.name)
    names = [name for name, _, _ in change.changes]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A config is named twice for one resource.")
    before = dict(state.config(resource, change.name))
    values = {} if replace else dict(before)
    changed = []
    for name, op, value in change.changes:
        new = changed_value(rules, resource, values.get(name), (name, op, value))
        if new is None:
            values.pop(name, None)
        else:
            values[name] = new
            changed.append(name)
    stored = rules.check(resource, values, changed=tuple(changed))
    return [encode(ConfigRecord(resource, change.name, stored))] if stored != before else []


def changed_value(
    rules: ConfigRules,
    resource: ResourceType,
    now: str | None,
    change: tuple[str, int, str | None],
) -> str | None:
    """What a config's own value becomes; None: it has none. Raises KafkaError."""
    name, op, value = change
    if op == AlterOp.DELETE:
        return None
    if op not in list(AlterOp):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {op} on {name}")
    if value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The value of {name} must not be null.")
    if op == AlterOp.SET:
        return value
    if not rules.is_list(resource, name):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{AlterOp(op).name} needs a list, and {name} is none.",
        )
    words = split_list(rules.inherited(resource, name) if now is None else now)
    if op == AlterOp.APPEND:
        words += [word for word in split_list(value) if word not in words]
    else:
        gone = split_list(value)
        words = [word for word in words if word not in gone]
    return ",".join(words)


def split_list(text: str) -> list[str]:
    """The words of a LIST."""
    return [word.strip() for word in text.split(",")] if text.strip() else []


def check_resource(state: ClusterState, resource: int, name: str) -> ResourceType:
    """That the resource can be configured. Raises KafkaError."""
    if resource == ResourceType.TOPIC:
        _check_topic(state, name)
    elif resource == ResourceType.BROKER:
        _check_broker(state, name)
    elif resource == ResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A group needs a name.")
    elif resource == ResourceType.CLIENT_METRICS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A subscription needs a name.")
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource}")
    return ResourceType(resource)


def _check_topic(state: ClusterState, name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic needs a name.")
    check_topic_name(name)
    if name not in state.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")


def _check_broker(state: ClusterState, name: str) -> None:
    if not name:
        return  # The default of all brokers.
    if not (name.isascii() and name.isdigit()):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"A broker is named by its number, not {name!r}."
        )
    if int(name) not in state.brokers:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker has the id {name}.")
