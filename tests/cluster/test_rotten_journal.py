"""A promised record of a broker's journal rots: refused with what can be done, and each of that helps."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from compat.eventually import eventually
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dmq.testing import BrokerFailedError, Cluster

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

SYNC = {"durability": "sync"}
TOPIC = "kept"
VICTIM = b"victim"
BEFORE = [b"first", VICTIM, b"last"]
ALONE = {"peer.listener": "", "peer.advertised": ""}


def rot(data_dir: Path) -> None:
    """Flip a byte in the journal's record of a batch that was acknowledged, while no broker runs."""
    (journal,) = data_dir.glob("journal/0*")
    written = bytearray(journal.read_bytes())
    written[written.index(VICTIM)] ^= 0xFF
    journal.write_bytes(written)


def directory_id(data_dir: Path) -> str:
    found = re.search(r"directory\.id=(\S+)", (data_dir / "meta").read_text())
    assert found is not None
    return found[1]


def create(bootstrap: str, name: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (made,) = admin.create_topics([NewTopic(name, 1, replicas)]).values()
    made.result()


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:  # Each in a record of the journal of its own.
        producer.produce(topic, value)
        assert producer.flush(60) == 0


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []

    def more() -> bool:
        found.extend(m.value() for m in consumer.consume(500, 0.2) if not m.error())
        return len(found) >= count

    eventually(more, f"{count} records are read", 60)
    consumer.close()
    return found


def cli(bootstrap: str, *words: str) -> dict[str, object]:
    command = [sys.executable, "-m", "dmq", *words, "--json", "-b", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return dict(json.loads(done.stdout))


def test_an_empty_folder_helps() -> None:
    with Cluster(3, SYNC, network="direct") as cluster:
        create(cluster.bootstrap, TOPIC, 3)
        produce(cluster.bootstrap, TOPIC, BEFORE)
        cluster.wait_ready(in_sync=True)
        cluster.kill(3)
        rot(cluster.member(3).data_dir)
        with pytest.raises(BrokerFailedError, match="with an empty directory and its number"):
            cluster.restart(3)
        cluster.restart(3, wiped=True)
        cluster.wait_ready(in_sync=True)


def test_a_broker_of_a_cluster_comes_back_under_a_new_name_and_nothing_is_lost() -> None:
    with Cluster(3, SYNC, network="direct") as cluster:
        create(cluster.bootstrap, TOPIC, 3)
        create(cluster.bootstrap, "single", 1)
        produce(cluster.bootstrap, TOPIC, BEFORE)
        produce(cluster.bootstrap, "single", BEFORE)
        cluster.wait_ready(in_sync=True)
        victim = cluster.leader("single")
        folder = cluster.member(victim).data_dir
        before = directory_id(folder)
        cluster.kill(victim)
        produce(cluster.bootstrap, TOPIC, [b"meanwhile"])
        rot(folder)
        other = "00000000-0000-4000-8000-000000000000"
        for options in ([], ["--accept-rotten", other]):
            with pytest.raises(BrokerFailedError, match=f"dmq serve --accept-rotten {before}"):
                cluster.restart(victim, options=options)
        assert directory_id(folder) == before
        cluster.restart(victim, options=["--accept-rotten", before])
        renamed = directory_id(folder)
        assert renamed != before
        assert list(folder.glob("lost+found/journal-*")), "the old journal is kept"
        saved = cli(cluster.bootstrap, "partition", "recover", "single:0", "--yes")
        assert saved["leader"] == victim
        cluster.wait_ready(in_sync=True)
        assert read(cluster.bootstrap, "single", 3) == BEFORE
        for options in (["--accept-rotten", before], []):  # The same words do nothing now.
            cluster.kill(victim)
            cluster.restart(victim, options=options)
            cluster.wait_ready(in_sync=True)
            assert directory_id(folder) == renamed
        cli(cluster.bootstrap, "cluster", "transfer-leader", f"{TOPIC}:0", str(victim))
        assert read(cluster.bootstrap, TOPIC, 4) == [*BEFORE, b"meanwhile"]


def test_a_broker_whose_journal_is_gone_has_forgotten_its_name() -> None:
    """All else of its folder is there: it must not vote as the one that promised."""
    with Cluster(3, SYNC, network="direct") as cluster:
        create(cluster.bootstrap, TOPIC, 3)
        produce(cluster.bootstrap, TOPIC, BEFORE)
        cluster.wait_ready(in_sync=True)
        folder = cluster.member(3).data_dir
        before = directory_id(folder)
        cluster.kill(3)
        for file in (folder / "journal").iterdir():
            file.unlink()
        with pytest.raises(BrokerFailedError, match="not one record of it is there"):
            cluster.restart(3)
        cluster.restart(3, options=["--accept-rotten", before])
        assert directory_id(folder) != before
        cluster.wait_ready(in_sync=True)
        assert read(cluster.bootstrap, TOPIC, 3) == BEFORE


def test_a_broker_that_is_alone_goes_on_with_what_it_has() -> None:
    with Cluster(1, SYNC, network="direct") as cluster:
        member = cluster.member(1)
        cluster.stop(1)
        member.spawn(ALONE)
        member.wait_for_ready_line()
        create(cluster.bootstrap, TOPIC, 1)
        produce(cluster.bootstrap, TOPIC, BEFORE)
        before = directory_id(member.data_dir)
        member.kill()
        rot(member.data_dir)
        member.spawn(ALONE)
        with pytest.raises(BrokerFailedError, match="if it is alone, may lack"):
            member.wait_for_ready_line()
        member.spawn(ALONE, ["--accept-rotten", before])
        member.wait_for_ready_line()
        assert directory_id(member.data_dir) != before
        cli(cluster.bootstrap, "partition", "recover", "--all", "--yes")
        assert read(cluster.bootstrap, TOPIC, 3) == BEFORE, "they were in the segment all the time"
        member.kill()
        member.spawn(ALONE)
        member.wait_for_ready_line()
        produce(cluster.bootstrap, TOPIC, [b"after"])
        assert read(cluster.bootstrap, TOPIC, 4) == [*BEFORE, b"after"]


def test_the_only_voter_of_the_metadata_is_told_how_to_go_on() -> None:
    """Of two brokers one votes on the metadata, and it can't know that the other one does not."""
    with Cluster(2, SYNC, network="direct") as cluster:
        create(cluster.bootstrap, TOPIC, 2)
        produce(cluster.bootstrap, TOPIC, BEFORE)
        member = cluster.member(1)
        before = directory_id(member.data_dir)
        cluster.kill(1)
        rot(member.data_dir)
        accept = ["--accept-rotten", before]
        with pytest.raises(BrokerFailedError, match="once without a door for others"):
            cluster.restart(1, options=accept)
        assert directory_id(member.data_dir) != before
        member.spawn(ALONE)
        with pytest.raises(BrokerFailedError, match=f"--accept-rotten {before}"):
            member.wait_for_ready_line()
        member.spawn(ALONE, accept)
        member.wait_for_ready_line()
        member.terminate()
        member.wait_for_end(30)
        cluster.restart(1)
        cli(cluster.bootstrap, "partition", "recover", f"{TOPIC}:0", "--yes")
        cluster.wait_ready(in_sync=True)
        assert read(cluster.bootstrap, TOPIC, 3) == BEFORE
        create(cluster.bootstrap, "another", 2)
        cluster.wait_ready(in_sync=True)
