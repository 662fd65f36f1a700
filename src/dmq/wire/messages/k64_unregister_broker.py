"""UnregisterBroker (key 64, version 0): forgets a broker that will not come back."""

from dmq.wire.schema import f, message


@message
class UnregisterBrokerRequest:
    broker_id: int = f("int32")


@message
class UnregisterBrokerResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
