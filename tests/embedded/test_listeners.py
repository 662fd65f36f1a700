"""Brokers need not have all of a cluster's listeners: a client is sent to nobody whom it can't reach."""

import asyncio
from pathlib import Path

import pytest
from embedded.harness import Client, broker_on, run, until
from kafka.protocol.metadata import MetadataRequest

from dmq.broker.runtime import Runtime

LISTENER_NOT_FOUND, LEADER_NOT_AVAILABLE = 72, 5
NAMES = {"listener_security_protocol_map": "IN:PLAINTEXT,OUT:PLAINTEXT", "port": 0}
DOOR = "127.0.0.1:0"


async def client_of(runtime: Runtime, listener: str) -> Client:
    return Client(*await asyncio.open_connection(*runtime.service.endpoints[listener]))


def led(runtime: Runtime) -> set[int]:
    view = runtime.service.topic("t")
    return set() if view is None else {part.leader for part in view.partitions}


async def leaders(client: Client, version: int) -> set[tuple[int, int]]:
    """(error, leader) of the partitions."""
    wanted = MetadataRequest.MetadataRequestTopic(name="t")
    request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
    (topic,) = (await client.call(request, version)).topics
    return {(part.error_code, part.leader_id) for part in topic.partitions}


@pytest.mark.parametrize(("version", "code"), [(5, LEADER_NOT_AVAILABLE), (9, LISTENER_NOT_FOUND)])
def test_a_leader_is_named_to_those_who_can_reach_it(
    tmp_path: Path, version: int, code: int
) -> None:
    async def test() -> None:
        both = "IN://127.0.0.1:0,OUT://127.0.0.1:0"
        first = {"listeners": both, "cluster_bootstrap": True, "num_partitions": 4}
        async with broker_on(tmp_path / "a", peer_listener=DOOR, **NAMES, **first) as one:
            join = f"127.0.0.1:{one._peer_port}"
            second = {"listeners": "IN://127.0.0.1:0", "cluster_join": join}
            async with broker_on(tmp_path / "b", peer_listener=DOOR, **NAMES, **second) as two:
                nodes = [each.service.identity.node_id for each in (one, two)]
                inside, outside = await client_of(one, "IN"), await client_of(one, "OUT")
                await until(lambda: set(one.service.live_nodes()) == set(nodes), "both are up")
                await inside.create("t")
                await until(lambda: led(one) == set(nodes), "both lead")
                assert await leaders(inside, version) == {(0, node) for node in nodes}
                assert await leaders(outside, version) == {(0, nodes[0]), (code, -1)}
                for client in (inside, outside):
                    client.writer.close()

    run(test)
