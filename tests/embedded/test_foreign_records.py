"""A record that no coordinator can read, in a coordinator's log: it leads all the same."""

from pathlib import Path
from typing import Any

import pytest
from compat import batches
from embedded.eventually import until
from embedded.harness import Client, broker_on, run
from kafka.protocol.metadata import FindCoordinatorRequest

from dmq.broker.coordinators import partition_of
from dmq.broker.runtime import Runtime
from dmq.types import NIL_UUID

NAME = "someone"
PARTITIONS = 50
GROUP, TRANSACTION = 0, 1
COORDINATOR_NOT_AVAILABLE = 15


@pytest.mark.parametrize("key", [b"", b"k", b"\0\0k"])
@pytest.mark.parametrize(
    ("topic", "kind"), [("__consumer_offsets", GROUP), ("__transaction_state", TRANSACTION)]
)
def test_a_foreign_record_is_skipped(
    tmp_path: Path, topic: str, kind: int, key: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with broker_on(tmp_path) as runtime:
            await find_coordinator(runtime, kind)
            partition = runtime.service.find(topic, NIL_UUID, partition_of(NAME, PARTITIONS))
            batch = memoryview(bytearray(batches.build([b"v"], key=key)))
            append = partition.append(batch, runtime.service.now())
            done: list[Any] = []
            append.on_done = done.append
            append.deadline = runtime.service.steady_now() + 10_000
            await until(lambda: done, "it is in the log")
            assert done == [0]
        async with broker_on(tmp_path) as runtime:
            await find_coordinator(runtime, kind)

    run(test)
    assert "the record at offset 0 is skipped" in caplog.text


async def find_coordinator(runtime: Runtime, kind: int) -> None:
    client = await Client.to(runtime)
    code = COORDINATOR_NOT_AVAILABLE
    while code == COORDINATOR_NOT_AVAILABLE:  # On a busy machine it may not be made in time.
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[NAME])
        (found,) = (await client.call(request, 4)).coordinators
        code = found.error_code
    assert code == 0
    client.close()
