"""InitProducerId and FindCoordinator, as far as producers and simple consumers need them."""

import pytest
from compat.wire import NONE, Connection, address, only
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import InitProducerIdRequest

COORDINATOR_NOT_AVAILABLE = 15
GROUP = 0
INVALID_REQUEST = 42


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(version: int, bootstrap: str) -> None:
    found = set()
    with Connection(bootstrap) as connection:
        for _ in range(20):
            request = InitProducerIdRequest(
                transactional_id=None,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            )
            answer = connection.call(request, version)
            assert (answer.error_code, answer.producer_epoch) == (NONE, 0)
            assert answer.producer_id >= 0
            found.add(answer.producer_id)
    assert len(found) == 20


@pytest.mark.parametrize("version", range(6))
def test_an_empty_transactional_id_is_refused(version: int, bootstrap: str) -> None:
    request = InitProducerIdRequest(
        transactional_id="", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    with Connection(bootstrap) as connection:
        answer = connection.call(request, version)
    found = (answer.error_code, answer.producer_id, answer.producer_epoch)
    assert found == (INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_of_a_group_is_a_broker(version: int, bootstrap: str) -> None:
    with Connection(bootstrap) as connection:
        request = FindCoordinatorRequest(key="group", key_type=GROUP, coordinator_keys=["group"])
        answer = connection.call(request, version)
    found = answer if version < 4 else only(answer.coordinators)
    # Apache Kafka makes its offsets topic when it is first asked, and asks for patience.
    assert found.error_code in (NONE, COORDINATOR_NOT_AVAILABLE)
    if found.error_code == NONE:
        assert (found.host, found.port) == address(bootstrap)
