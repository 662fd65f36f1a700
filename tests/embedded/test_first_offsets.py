"""The first offsets of a new cluster, committed in a transaction: nobody has asked for a group before."""

from pathlib import Path
from typing import Any

from embedded.eventually import watch
from embedded.harness import Client, broker_on, run
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddOffsetsToTxnRequest, InitProducerIdRequest

TRANSACTION = 1
NOT_YET = (14, 15, 16)
"""The coordinator loads, is not there yet, or is another."""


async def served(client: Client, version: int, kind: type, **fields: Any) -> Any:
    """The answer, asked for until there is one."""
    answer = await client.call(kind(**fields), version)
    while answer.error_code in NOT_YET:
        await watch(0.01)
        answer = await client.call(kind(**fields), version)
    assert answer.error_code == 0
    return answer


def test_the_topic_of_the_offsets_is_made(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            client = await Client.to(runtime)
            await served(client, 3, FindCoordinatorRequest, key="x", key_type=TRANSACTION)
            fresh = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
            me = {"transactional_id": "x"}
            given = await served(client, 4, InitProducerIdRequest, **me, **fresh)
            had = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
            await served(client, 3, AddOffsetsToTxnRequest, group_id="group", **me, **had)
            client.close()

    run(test)
