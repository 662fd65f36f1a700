"""Groups answer as Kafka does: a transcript of a Kafka 4.3, held against our handlers and machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fakes.calls import FakeCall
from fakes.coordinators import GroupService
from unit.doors.kafka_api.group_scenario import play
from unit.doors.kafka_api.test_group_handlers import HANDLERS

from dmq.wire import registry

TRANSCRIPT = Path(__file__).with_name("groups_as_kafka.txt")


class HandlerConnection:
    """A connection whose other end are the handlers."""

    def __init__(self, service: GroupService) -> None:
        self._service = service
        self._call: Any = None

    def send(self, api_key: int, version: int, request: object) -> None:
        api = registry.api(api_key)
        data = b"".join(api.encode_request(version, request))
        self._call = FakeCall(api_key, version)
        self._call.client_id = "client"
        self._call.connection = SimpleNamespace(peer="127.0.0.1:5000")
        HANDLERS[api_key].handle(self._service, self._call, api.decode_request(version, data))

    def receive(self) -> Any:
        self._service.pass_time(0)
        (answer,) = self._call.replies
        return answer

    def is_waiting(self) -> bool:
        self._service.pass_time(0)
        return not self._call.replies


class Handlers:
    """Our side of the scenario."""

    def __init__(self) -> None:
        self.service = GroupService(group_initial_rebalance_delay_ms=0)
        self.service.create("t", 4)
        self.topic_id = self.service.cluster.topics["t"].topic_id

    def connect(self) -> HandlerConnection:
        return HandlerConnection(self.service)

    def wait(self, ms: int) -> None:
        self.service.pass_time(ms)


def test_groups_answer_as_kafka_does() -> None:
    assert play(Handlers()) == TRANSCRIPT.read_text().splitlines()
