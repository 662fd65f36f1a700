"""Data directories that a cluster knew once: of a broker that left, and of one that got another disk,
also while the process with the former one runs."""

import pytest
from compat.eventually import eventually
from confluent_kafka.admin import AdminClient

from dmq.testing import BrokerFailedError, Cluster

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]


def test_a_broker_that_was_taken_out_says_so_when_it_is_started_again() -> None:
    with Cluster(3, network="direct") as cluster:
        added = cluster.add()
        process = cluster.member(added)
        cluster.remove(added)
        eventually(lambda: not process.is_running, "its process ends")
        process.spawn({})
        try:
            with pytest.raises(BrokerFailedError, match="was taken out of this cluster"):
                process.wait_for_ready_line()
        finally:
            process.kill()


def test_a_broker_that_was_taken_out_leaves_its_number_to_the_next_one() -> None:
    with Cluster(3, network="direct") as cluster:
        added = cluster.add()
        former = cluster.member(added)
        cluster.remove(added)
        eventually(lambda: not former.is_running, "its process ends")
        assert cluster.add({"node.id": added}) == added
        former.spawn({})
        try:
            with pytest.raises(BrokerFailedError, match="was taken out of the cluster"):
                former.wait_for_ready_line()
        finally:
            former.kill()
        assert cluster.running == [1, 2, 3, added]
        cluster.wait_ready(in_sync=True)


def test_the_former_disk_of_a_broker_takes_part_again() -> None:
    """Somebody started the broker with an empty folder by mistake, and then with its own one."""
    with Cluster(3, network="direct") as cluster:
        folder = cluster.member(3).data_dir
        former = folder.with_name("former")
        cluster.kill(3)
        folder.rename(former)
        cluster.restart(3)
        cluster.wait_ready(in_sync=True)
        cluster.kill(3)
        folder.rename(folder.with_name("mistake"))
        former.rename(folder)
        cluster.restart(3)
        cluster.wait_ready(in_sync=True)


def test_of_two_processes_with_one_number_the_older_one_stops() -> None:
    """It has no vote on the metadata: whoever leads them sends to the other one now."""
    with Cluster(2, network="direct") as cluster:
        older = cluster.replace(2, wait=False)
        eventually(lambda: not older.is_running, "the older process ends")
        assert "another process is broker 2 now" in older.log()
        cluster.wait_ready(in_sync=True)
        assert cluster.member(2).data_dir != older.data_dir


def test_the_older_one_stops_too_if_it_leads_the_metadata_and_is_all_that_the_other_knows() -> None:
    """It hands them over first: who stops can't tell a newcomer that it is registered."""
    with Cluster(3, network="direct") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        leader = admin.list_topics(timeout=30).controller_id
        older, newer = cluster.member(leader), cluster._new_member(None)
        host, port = older.place.peer_advertised
        newer.spawn({"node.id": leader, "cluster.join": f"{host}:{port}"})
        try:
            newer.wait_for_ready_line()
            eventually(lambda: not older.is_running, "the older process ends")
            assert f"another process is broker {leader} now" in older.log()
        finally:
            newer.kill()


def test_a_cluster_of_one_keeps_its_broker() -> None:
    """Whoever else asks for its number is refused: there would be nobody to tell it anything."""
    with Cluster(1, network="direct") as cluster:
        older = cluster.replace(1, wait=False)
        newer = cluster.member(1)
        eventually(lambda: not newer.is_running, "the newcomer ends")
        assert "choose another --node-id, or leave it out" in newer.log()
        assert older.is_running
        told = AdminClient({"bootstrap.servers": older.bootstrap}).list_topics(timeout=30)
        assert list(told.brokers) == [1]


def test_another_machine_takes_the_place_of_one_that_is_lost() -> None:
    with Cluster(3, network="direct") as cluster:
        cluster.kill(3)
        lost = cluster.replace(3)
        assert not lost.is_running
        assert cluster.running == [1, 2, 3]
        cluster.wait_ready(in_sync=True)
