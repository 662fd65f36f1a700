"""UnregisterBroker: the command that goes in, and the errors that come out."""

from typing import Any

from fakes.calls import answer

from dmq.broker.answer import Answer
from dmq.broker.elections import Done, UnregisterBroker
from dmq.doors.kafka_api.k64_unregister_broker import handle
from dmq.errors import ErrorCode, KafkaError
from dmq.wire.messages.k64_unregister_broker import UnregisterBrokerRequest


class Service:
    def __init__(self, error: KafkaError | None = None) -> None:
        self.error = error
        self.commands: list[Any] = []

    def submit(self, command: Any) -> Answer[Done]:
        self.commands.append(command)
        if self.error is None:
            return Answer.of(Done())
        refused: Answer[Done] = Answer()
        refused.fail(self.error)
        return refused


def test_a_broker_is_forgotten() -> None:
    service = Service()
    response = answer(handle, service, 64, 0, UnregisterBrokerRequest(7))
    assert service.commands == [UnregisterBroker(7)]
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, "")


def test_a_refusal_has_its_reason() -> None:
    error = KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 7 is not registered")
    response = answer(handle, Service(error), 64, 0, UnregisterBrokerRequest(7))
    assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert response.error_message == "broker 7 is not registered"
