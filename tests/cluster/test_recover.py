"""A partition whose majority is gone: an operator's order lets the last replica go on."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from compat.eventually import eventually
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dmq.records import scan
from dmq.testing import Cluster

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

TOPIC = "saved"
UNKNOWN = -2
READER = {"group.id": "reader", "enable.auto.commit": False}
"""The group's own partition may be lost as well: nothing is committed, so that no end waits for it."""


def produce(bootstrap: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value)
    assert producer.flush(60) == 0


def read(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, **READER})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []

    def more() -> bool:
        found.extend(m.value() for m in consumer.consume(500, 0.2) if not m.error())
        return len(found) >= count

    eventually(more, f"{count} records are read", 60)
    consumer.close()
    return found


def try_to_recover(
    cluster: Cluster, what: str = f"{TOPIC}:0", bootstrap: str | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dmq", "partition", "recover", what]
    return subprocess.run(
        [*command, "--yes", "--json", "-b", bootstrap or cluster.bootstrap],
        capture_output=True,
        text=True,
        check=False,
    )


def recover(cluster: Cluster) -> dict[str, object]:
    done = try_to_recover(cluster)
    assert done.returncode == 0, done
    return dict(json.loads(done.stdout))


def test_the_last_replica_goes_on_and_the_others_follow_when_they_return() -> None:
    """Five brokers, so that the metadata keep their majority when two of a partition's three die."""
    with Cluster(5, network="direct") as cluster:
        cluster.wait_ready()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        eventually(lambda: len(admin.list_topics(timeout=10).brokers) == 5, "all are up", 60)
        (made,) = admin.create_topics([NewTopic(TOPIC, 1, 3)]).values()
        made.result()

        def seen() -> tuple[int, list[int], list[int]]:
            try:
                partition = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0]
            except KafkaException:  # It asked one that was killed.
                return UNKNOWN, [], []
            return partition.leader, partition.replicas, partition.isrs

        eventually(lambda: len(seen()[2]) == 3, "all replicas are in sync", 60)
        before = [b"%d" % n for n in range(100)]
        produce(cluster.bootstrap, before)
        leader, replicas, _ = seen()
        lost = [node for node in replicas if node != leader]
        for node in lost:
            cluster.kill(node)
        eventually(lambda: seen()[0] == -1, "nobody leads", 60)
        assert recover(cluster)["leader"] == leader
        after = [b"after %d" % n for n in range(10)]
        produce(cluster.bootstrap, after)
        assert read(cluster.bootstrap, 110) == before + after
        for node in lost:
            cluster.restart(node)
        eventually(lambda: sorted(seen()[2]) == sorted(replicas), "all follow again", 60)


def test_a_partition_whose_only_disk_was_lost_begins_anew() -> None:
    with Cluster(3, network="direct") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        (made,) = admin.create_topics([NewTopic(TOPIC, 1, 1)]).values()
        made.result()
        produce(cluster.bootstrap, [b"lost"])
        leader = cluster.leader(TOPIC, 0)
        for after in (b"after", b"after that"):
            cluster.kill(leader)
            cluster.restart(leader, wiped=True)
            assert recover(cluster)["leader"] == leader
            produce(cluster.bootstrap, [after])
            assert read(cluster.bootstrap, 1) == [after]


def test_an_empty_disk_does_not_go_on_while_another_may_have_the_records() -> None:
    with Cluster(4, network="direct") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        (made,) = admin.create_topics([NewTopic(TOPIC, 1, 2)]).values()
        made.result()
        produce(cluster.bootstrap, [b"kept"])
        view = cluster.partition_view(TOPIC, 0)
        assert view is not None
        wiped, other = view.replicas
        cluster.kill(wiped)
        cluster.restart(wiped, wiped=True)
        cluster.kill(other)
        done = try_to_recover(cluster)
        assert done.returncode == 1
        assert "No replica that has a log of it can be reached" in done.stderr
        cluster.restart(other)
        assert recover(cluster)["leader"] == other
        assert read(cluster.bootstrap, 1) == [b"kept"]


SEGMENT = {"segment.bytes": "1048576"}


def segments(data_dir: Path) -> list[Path]:
    """The files of the topic, oldest first."""
    found = [path for path in data_dir.glob("logs/*/*.log") if b"value 0 " in path.read_bytes()]
    assert len(found) == 1
    return sorted(found[0].parent.glob("*.log"))


def test_a_damaged_log_that_is_the_last_one_goes_on_with_all_that_is_good_in_it() -> None:
    with Cluster(1, network="direct") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        (made,) = admin.create_topics([NewTopic(TOPIC, 1, 1, config=SEGMENT)]).values()
        made.result()
        before = [b"value %d " % n + b"." * 300_000 for n in range(12)]
        for value in before:  # Each in a batch of its own.
            produce(cluster.bootstrap, [value])

        def crash() -> list[Path]:
            """All of it is flushed, so that the journal does not have it any more."""
            cluster.stop(1)
            cluster.restart(1)
            cluster.kill(1)
            return segments(cluster.member(1).data_dir)

        first, second, *_ = crash()
        with first.open("r+b") as file:
            file.truncate(400_000)
        base = int(second.stem)
        cluster.restart(1)
        assert f"1 to {base - 1}." in str(recover(cluster)["message"])
        produce(cluster.bootstrap, [b"after"])
        kept = [v for n, v in enumerate(before) if not 1 <= n < base]
        assert read(cluster.bootstrap, len(kept) + 1) == [*kept, b"after"]

        _, second, *_ = crash()
        at = [place for place, _ in scan(second.read_bytes())][1]
        with second.open("r+b") as file:
            file.seek(at + 8)  # Its length: nobody can say where the next one begins.
            file.write(b"rotten")
        cluster.restart(1)
        look_at(cluster, base + 1)
        done = try_to_recover(cluster, "--all")
        assert done.returncode == 0, done
        (election,) = json.loads(done.stdout)["elections"]
        assert f"{base + 1} to {base + 1}." in election["message"]
        kept.remove(before[base + 1])
        cluster.kill(1)
        cluster.restart(1)
        produce(cluster.bootstrap, [b"later"])
        assert read(cluster.bootstrap, len(kept) + 2) == [*kept, b"after", b"later"]


def is_leaderless(cluster: Cluster) -> bool:
    found = cluster.partition_view(TOPIC, 0)
    return found is not None and found.leader == -1


def look_at(cluster: Cluster, offset: int) -> None:
    """Read bad bytes, until they are found and nobody leads any more."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **READER})
    consumer.assign([TopicPartition(TOPIC, 0, offset)])

    def is_found() -> bool:
        consumer.consume(1, 0.2)
        return is_leaderless(cluster)

    eventually(is_found, "the rot is found", 60)
    consumer.close()


def test_a_leader_that_only_the_asked_broker_does_not_see_is_not_replaced() -> None:
    with Cluster(3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        (made,) = admin.create_topics([NewTopic(TOPIC, 1, 3)]).values()
        made.result()
        cluster.wait_ready(in_sync=True)
        leader = cluster.leader(TOPIC, 0)
        blind, other = [node for node in cluster.brokers if node != leader]
        cluster.cut(leader, blind)
        cluster.cut(blind, leader)

        def is_told() -> bool:
            """Once it has noticed that it does not see the leader."""
            done = try_to_recover(cluster, bootstrap=cluster.member(blind).bootstrap)
            assert done.returncode == 0, done
            said = json.loads(done.stdout)
            assert said["recovered"] is False
            return said["message"] == f"Broker {leader} leads it, as broker {other} says."

        eventually(is_told, "the other one was asked", 60)
        assert cluster.leader(TOPIC, 0) == leader


def directory_id(data_dir: Path) -> str:
    found = re.search(r"directory\.id=(\S+)", (data_dir / "meta").read_text())
    assert found is not None
    return found[1]


def test_the_last_of_three_brokers_goes_on_when_the_disks_of_the_others_are_lost() -> None:
    """Most voters of the metadata are lost too: nobody is left who could take an order."""
    with Cluster(3, network="direct") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        (made,) = admin.create_topics([NewTopic(TOPIC, 1, 3)]).values()
        made.result()
        before = [b"%d" % n for n in range(20)]
        produce(cluster.bootstrap, before)
        cluster.wait_ready(in_sync=True)
        survivor, *lost = cluster.brokers
        ids = ",".join(directory_id(cluster.member(node).data_dir) for node in lost)
        for node in lost:
            cluster.kill(node)
        eventually(lambda: is_leaderless(cluster), "nobody leads", 60)
        done = try_to_recover(cluster)
        assert done.returncode == 1, done
        assert "--accept-lost" in done.stderr
        cluster.kill(survivor)
        cluster.restart(survivor, options=["--accept-lost", ids])
        assert recover(cluster)["leader"] == survivor
        produce(cluster.bootstrap, [b"after"])
        assert read(cluster.bootstrap, 21) == [*before, b"after"]
        for node in lost:
            cluster.restart(node, wiped=True)
        cluster.wait_ready(in_sync=True)
        cluster.kill(survivor)  # What it saved is on the new disks, and they vote.
        produce(cluster.bootstrap, [b"later"])
        assert read(cluster.bootstrap, 22) == [*before, b"after", b"later"]
