"""What a user is told when something is wrong: a sentence that says what to do."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark.feeding import available, batch, create, numbered, produce, rows, stream, topic_name

from dmq.spark.failures import SparkSourceError
from dmq.spark.options import SourceOptions
from dmq.spark.security import Security
from dmq.spark.sink_options import SinkOptions
from dmq.testing import Broker

NOBODY = "127.0.0.1:1"


def options(**given: Any) -> SourceOptions:
    """As Spark hands them over."""
    base = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    named = {k.replace("_", ".") if "_" in k else k: v for k, v in given.items()}
    return SourceOptions.of({k: v for k, v in (base | named).items() if v is not None})


JAVAS = (
    "batch.size", "connections.max.idle.ms", "enable.idempotence", "fetch.max.bytes",
    "fetch.max.wait.ms", "fetch.min.bytes", "linger.ms", "max.partition.fetch.bytes",
    "max.poll.interval.ms", "max.poll.records", "metadata.max.age.ms", "receive.buffer.bytes",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries", "retry.backoff.ms",
    "sasl.login.class", "security.providers", "send.buffer.bytes", "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms", "ssl.cipher.suites", "ssl.protocol",
)  # fmt: skip
"""Options of Java's clients that a job may have from before."""


@pytest.mark.parametrize("name", JAVAS)
def test_options_of_javas_clients_are_not_taken_for_slips(name: str) -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", f"kafka.{name}": "1"}
    assert SourceOptions.of(given | {"subscribe": "orders"})
    assert SinkOptions.of(given | {"topic": "orders"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"bootstrap.servers": "x:1"}, "did you mean 'kafka.bootstrap.servers'"),
        ({"kafka.bootstrap.server": "x:1"}, "did you mean 'kafka.bootstrap.servers'"),
        ({"kafka.auto.offset.reset": "earliest"}, "set startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "set groupId"),
        ({"subscribe": None}, "set exactly one of subscribe, subscribePattern, assign"),
        ({"assign": '{"a":[0]}'}, "subscribe and assign is set"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": None, "subscribePattern": "a("}, "is no pattern"),
        ({"subscribe": None, "assign": "a,b"}, '{"orders":\\[0,1\\]}'),
        ({"startingOffsets": "first"}, "earliest, latest or JSON"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "'0': -3"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"minPartitions": "0"}, "a whole number above 0"),
        ({"maxTriggerDelay": "soon"}, "30s, 15m or 2h"),
        ({"maxBytesPerTrigger": "much"}, "64m"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "no batch could ever start"),
        ({"kafka.bootstrap.servers": "localhost"}, "is no host:port"),
        ({"kafka.bootstrap.servers": None}, "no brokers are named"),
        ({"kafka.isolation.level": "none"}, "read_committed or read_uncommitted"),
        ({"kafka.security.protocol": "TLS"}, "choose one of PLAINTEXT"),
        ({"kafka.security.protocol": "SASL_SSL"}, "choose one of PLAIN"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"},
            "kafka.sasl.username",
        ),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "a.jks"}, "PEM file"),
    ],
)
def test_a_wrong_option_is_told_with_what_to_write(given: dict[str, Any], told: str) -> None:
    with pytest.raises(SparkSourceError, match=told):
        options(**given)


def test_options_of_java_consumers_that_mean_nothing_here_are_accepted() -> None:
    made = options(**{
        "kafka.max.poll.records": "500", "kafka.fetch.max.bytes": "1", "groupIdPrefix": "x",
        "kafkaConsumer.pollTimeoutMs": "1000", "kafka.session.timeout.ms": "9000",
        "MAXBYTESPERTRIGGER": "2m", "maxTriggerDelay": "90s", "kafka.group.id": "g",
    })  # fmt: skip
    assert made.max_bytes_per_trigger == 2 << 20
    assert made.max_trigger_delay_ms == 90_000
    assert made.group_id == "g"


def test_a_password_is_never_printed() -> None:
    made = options(**{
        "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": 'x.ScramLoginModule required username="me" password="se\\"cret";',
    })  # fmt: skip
    assert made.settings.security.username == "me"
    assert made.settings.security.password == 'se"cret'
    assert "cret" not in repr(made)


def test_a_scram_login_is_that_of_the_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of RFC 7677."""
    monkeypatch.setattr("secrets.token_urlsafe", lambda _size: "rOprNGfwEbeRWgbNEkqO")
    security = Security(mechanism="SCRAM-SHA-256", username="user", password="pencil")
    exchange = security.exchange()
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = exchange.send(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_server_that_does_not_know_the_password_is_refused() -> None:
    security = Security(mechanism="SCRAM-SHA-512", username="user", password="pencil")
    exchange = security.exchange()
    nonce = next(exchange).decode().rpartition("r=")[2]
    exchange.send(f"r={nonce}more,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    with pytest.raises(SparkSourceError, match="does not know the password"):
        exchange.send(b"v=AAAA")


# --- as Spark shows them


def test_an_unknown_topic_is_told_with_how_to_make_it(spark: SparkSession, broker: Broker) -> None:
    with pytest.raises(Exception, match=r"topic 'nowhere' does not exist. Create it \(dmq topic"):
        batch(spark, broker.bootstrap_servers, subscribe="nowhere").count()


def test_a_wrong_option_is_told_when_the_frame_is_made(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="did you mean 'subscribe'"):
        batch(spark, NOBODY, subscibe="orders")


def test_a_schema_can_not_be_chosen(spark: SparkSession, broker: Broker) -> None:
    reader = spark.read.format("dmq").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    with pytest.raises(Exception, match=r"leave .schema\(…\) out"):
        reader.schema("id INT").option("subscribe", "orders").load().count()


def test_a_broker_that_is_down_at_the_start_is_told_with_its_address(
    spark: SparkSession,
) -> None:
    with pytest.raises(Exception, match=r"no broker answers \(127.0.0.1:1: .*Is one running"):
        batch(spark, NOBODY, subscribe="orders").count()


def test_an_end_in_a_stream_is_told_with_the_trigger_to_use(
    spark: SparkSession, broker: Broker, checkpoint: str
) -> None:
    df = stream(spark, broker.bootstrap_servers, subscribe="orders", endingOffsets="latest")
    with pytest.raises(Exception, match="availableNow=True") as caught:
        available(df, checkpoint, "never")
    assert "UnboundLocalError" not in str(caught.value), "of Spark's worker, which hides ours"


def test_offsets_must_name_every_partition(spark: SparkSession, broker: Broker) -> None:
    topic = create(broker.bootstrap_servers, topic_name("named"), 2)
    starting = {topic: {"0": 0, "7": 1}}
    with pytest.raises(Exception, match=rf"{topic}-1 is missing; {topic}-7 is not read"):
        batch(spark, broker.bootstrap_servers, subscribe=topic, startingOffsets=starting).count()


def test_offsets_that_retention_took_are_an_error_or_skipped_as_told(
    spark: SparkSession, broker: Broker
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = create(broker.bootstrap_servers, topic_name("lost"))
    produce(broker.bootstrap_servers, topic, numbered(100))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    where = TopicPartition(topic, 0, 40)
    admin.delete_records([where])[TopicPartition(topic, 0)].result(20)
    lost = {"subscribe": topic, "startingOffsets": {topic: {"0": 10}}}
    with pytest.raises(Exception, match=r"the log starts at 40 now.*failOnDataLoss=false"):
        batch(spark, broker.bootstrap_servers, **lost).count()
    found = rows(batch(spark, broker.bootstrap_servers, failOnDataLoss="false", **lost))
    assert [row[4] for row in found] == list(range(40, 100))


def test_offsets_behind_the_end_are_an_error_or_left_out_as_told(
    spark: SparkSession, broker: Broker
) -> None:
    topic = create(broker.bootstrap_servers, topic_name("short"))
    produce(broker.bootstrap_servers, topic, numbered(5))
    beyond = {"subscribe": topic, "endingOffsets": {topic: {"0": 9}}}
    with pytest.raises(Exception, match="offsets from 5 to 9 are not there: the log ends at 5"):
        batch(spark, broker.bootstrap_servers, **beyond).count()
    assert batch(spark, broker.bootstrap_servers, failOnDataLoss="false", **beyond).count() == 5
