"""Records of the cluster machine.

    key                             value (JSON, "v" is its version)
    cluster                         {"v", "id"}
    registrations                   {"v", "next_node", "next_epoch"} and, if there are any, {"former"}
    broker/<node>                   {"v", "directory", "incarnation", "epoch", "rack", "endpoints",
                                     "features", "journal_seq"} and while it leaves {"leaving"}
    topic/<uuid>                    {"v", "name"}
    partition/<uuid>/<index>        {"v", "replicas", "founders"} and while it is being moved
                                    {"previous", "removing"}
    config/<type>/<resource name>   {"v", "values"}
    feature/<name>                  {"v", "level", "epoch"}
    producer-ids                    {"v", "next"}

Text, so that any Kafka consumer on the metadata topic shows something a person can read. A key is
replaced by its next record and removed by a tombstone, so the topic is compacted. A reader refuses
a version or kind that it does not know: guessing would let replicas differ. It reads all older ones:

    broker      0: never leaving
    partition   0: {"replicas", "directories"}: not moved yet, so these are the founders

Other kinds of keys (quotas, credentials) have their place here when they come.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from dmq.errors import DmqError, ErrorCode
from dmq.machines.machine import Record
from dmq.types import Voter

VERSIONS = {
    "cluster": 0,
    "registrations": 0,
    "broker": 1,
    "topic": 0,
    "partition": 1,
    "config": 0,
    "feature": 0,
    "producer-ids": 0,
}
"""The versions that we write; we read these and all before."""

_encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_decode_json = json.JSONDecoder().decode


class RecordError(DmqError):
    """A record of the metadata log that this version of dmq can't read."""

    code = ErrorCode.UNSUPPORTED_VERSION


class Endpoint(NamedTuple):
    """An address of a broker, by the name of its listener."""

    name: str
    host: str
    port: int
    protocol: str


class FeatureRange(NamedTuple):
    """The levels of a feature that a broker can run."""

    low: int
    high: int


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterRecord:
    """The cluster came to be."""

    cluster_id: str


@dataclasses.dataclass(frozen=True, slots=True)
class RegistrationsRecord:
    """The lowest number and the lowest epoch that no broker ever had. `former`: brokers that were
    taken out, with the data directories that they had; the oldest first."""

    next_node: int
    next_epoch: int
    former: tuple[Voter, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A broker registered. `is_leaving`: it gets nothing new, and will be unregistered."""

    node: int
    directory: UUID
    incarnation: UUID
    epoch: int
    rack: str | None
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, FeatureRange]
    journal_seq: int
    is_leaving: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic is there. `name` None: it was deleted."""

    topic_id: UUID
    name: str | None


EPOCH_LEAP = 1000
"""Those who are lost may have held elections that no survivor heard of; not so many."""


class Order(NamedTuple):
    """An operator's order: this replica goes on with a partition alone, from this epoch on."""

    leader: Voter
    epoch: int
    """EPOCH_LEAP above the last that was seen when the order was given."""

    @property
    def epoch_seen(self) -> int:
        return self.epoch - EPOCH_LEAP


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionRecord:
    """Where a partition is meant to live. `replicas` None: nowhere any more.

    See `PartitionState` for the fields.
    """

    topic_id: UUID
    index: int
    replicas: tuple[int, ...] | None
    founders: tuple[Voter, ...] = ()
    previous: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    order: "Order | None" = None


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigRecord:
    """All that a resource sets itself. Nothing: the record is a tombstone."""

    resource: int
    name: str
    values: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureRecord:
    """The level of a feature that the whole cluster runs at; 0 turns it off."""

    name: str
    level: int
    epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """The first producer id that no block has."""

    next: int


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerGoneRecord:
    """A broker was unregistered."""

    node: int


Fact: TypeAlias = (
    ClusterRecord
    | RegistrationsRecord
    | BrokerRecord
    | BrokerGoneRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | FeatureRecord
    | ProducerIdsRecord
)
"""What one record says."""


def encode(fact: Fact) -> Record:
    """A fact as a record."""
    return _ENCODERS[type(fact)](fact)


def decode(record: Record) -> Fact:
    """A record as a fact. Raises RecordError for what we can't read."""
    try:
        kind, _, rest = record.key.decode().partition("/")
        decoder = _DECODERS.get(kind)
        if decoder is None:
            raise RecordError(f"metadata record of unknown kind {kind!r}")
        if record.value is None:
            return decoder(rest, None)
        body = _decode_json(record.value.decode())
        version = body["v"]
        if type(version) is not int or not 0 <= version <= VERSIONS[kind]:
            raise RecordError(f"metadata record {kind!r} of unknown version {version}")
        return decoder(rest, body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(f"metadata record {record.key!r} can't be read: {error!r}") from error


def _value(kind: str, /, **body: Any) -> bytes:
    return _encode_json({"v": VERSIONS[kind], **body}).encode()


def _encode_cluster(fact: ClusterRecord) -> Record:
    return Record(b"cluster", _value("cluster", id=fact.cluster_id))


def _decode_cluster(rest: str, body: dict[str, Any] | None) -> Fact:
    if body is None:
        raise RecordError("the cluster record can't be removed")
    return ClusterRecord(body["id"])


def _encode_registrations(fact: RegistrationsRecord) -> Record:
    body: dict[str, Any] = {"next_node": fact.next_node, "next_epoch": fact.next_epoch}
    if fact.former:
        body["former"] = [[node, directory.hex] for node, directory in fact.former]
    return Record(b"registrations", _value("registrations", **body))


def _decode_registrations(rest: str, body: dict[str, Any] | None) -> Fact:
    if body is None:
        raise RecordError("the registrations record can't be removed")
    former = [Voter(node, UUID(directory)) for node, directory in body.get("former", ())]
    return RegistrationsRecord(body["next_node"], body["next_epoch"], tuple(former))


def _encode_broker(fact: BrokerRecord) -> Record:
    body: dict[str, Any] = {
        "directory": fact.directory.hex,
        "incarnation": fact.incarnation.hex,
        "epoch": fact.epoch,
        "rack": fact.rack,
        "endpoints": [list(endpoint) for endpoint in fact.endpoints],
        "features": {name: list(levels) for name, levels in fact.features.items()},
        "journal_seq": fact.journal_seq,
    }
    if fact.is_leaving:
        body["leaving"] = True
    return Record(b"broker/%d" % fact.node, _value("broker", **body))


def _encode_broker_gone(fact: BrokerGoneRecord) -> Record:
    return Record(b"broker/%d" % fact.node, None)


def _decode_broker(rest: str, body: dict[str, Any] | None) -> Fact:
    if body is None:
        return BrokerGoneRecord(int(rest))
    return BrokerRecord(
        node=int(rest),
        directory=UUID(body["directory"]),
        incarnation=UUID(body["incarnation"]),
        epoch=body["epoch"],
        rack=body["rack"],
        endpoints=tuple(Endpoint(*endpoint) for endpoint in body["endpoints"]),
        features={name: FeatureRange(*levels) for name, levels in body["features"].items()},
        journal_seq=body["journal_seq"],
        is_leaving=body.get("leaving", False),
    )


def _encode_topic(fact: TopicRecord) -> Record:
    value = None if fact.name is None else _value("topic", name=fact.name)
    return Record(f"topic/{fact.topic_id.hex}".encode(), value)


def _decode_topic(rest: str, body: dict[str, Any] | None) -> Fact:
    return TopicRecord(UUID(rest), None if body is None else body["name"])


def _encode_partition(fact: PartitionRecord) -> Record:
    value = None
    if fact.replicas is not None:
        body: dict[str, Any] = {
            "replicas": fact.replicas,
            "founders": [[node, directory.hex] for node, directory in fact.founders],
        }
        if fact.previous:
            body["previous"] = fact.previous
        if fact.removing:
            body["removing"] = fact.removing
        if fact.order is not None:
            (node, directory), epoch = fact.order
            body["order"] = [node, directory.hex, epoch]
        value = _value("partition", **body)
    return Record(f"partition/{fact.topic_id.hex}/{fact.index}".encode(), value)


def _decode_partition(rest: str, body: dict[str, Any] | None) -> Fact:
    topic, _, index = rest.partition("/")
    if body is None:
        return PartitionRecord(UUID(topic), int(index), None)
    replicas = tuple(body["replicas"])
    if body["v"] == 0:
        founders = list(zip(replicas, body["directories"], strict=True))
    else:
        founders = body["founders"]
    return PartitionRecord(
        UUID(topic),
        int(index),
        replicas,
        tuple([Voter(node, UUID(directory)) for node, directory in founders]),
        tuple(body.get("previous", ())),
        tuple(body.get("removing", ())),
        _order(body.get("order")),
    )


def _order(raw: list[Any] | None) -> Order | None:
    if raw is None:
        return None
    node, directory, epoch = raw
    return Order(Voter(node, UUID(directory)), epoch)


def _encode_config(fact: ConfigRecord) -> Record:
    value = _value("config", values=dict(fact.values)) if fact.values else None
    return Record(f"config/{fact.resource}/{fact.name}".encode(), value)


def _decode_config(rest: str, body: dict[str, Any] | None) -> Fact:
    resource, _, name = rest.partition("/")
    return ConfigRecord(int(resource), name, {} if body is None else body["values"])


def _encode_feature(fact: FeatureRecord) -> Record:
    return Record(
        f"feature/{fact.name}".encode(), _value("feature", level=fact.level, epoch=fact.epoch)
    )


def _decode_feature(rest: str, body: dict[str, Any] | None) -> Fact:
    if body is None:
        raise RecordError("a feature record is set to 0, not removed")
    return FeatureRecord(rest, body["level"], body["epoch"])


def _encode_producer_ids(fact: ProducerIdsRecord) -> Record:
    return Record(b"producer-ids", _value("producer-ids", next=fact.next))


def _decode_producer_ids(rest: str, body: dict[str, Any] | None) -> Fact:
    if body is None:
        raise RecordError("the producer id record can't be removed")
    return ProducerIdsRecord(body["next"])


_ENCODERS: dict[type, Callable[[Any], Record]] = {
    ClusterRecord: _encode_cluster,
    RegistrationsRecord: _encode_registrations,
    BrokerRecord: _encode_broker,
    BrokerGoneRecord: _encode_broker_gone,
    TopicRecord: _encode_topic,
    PartitionRecord: _encode_partition,
    ConfigRecord: _encode_config,
    FeatureRecord: _encode_feature,
    ProducerIdsRecord: _encode_producer_ids,
}

_DECODERS: dict[str, Callable[[str, dict[str, Any] | None], Fact]] = {
    "cluster": _decode_cluster,
    "registrations": _decode_registrations,
    "broker": _decode_broker,
    "topic": _decode_topic,
    "partition": _decode_partition,
    "config": _decode_config,
    "feature": _decode_feature,
    "producer-ids": _decode_producer_ids,
}
