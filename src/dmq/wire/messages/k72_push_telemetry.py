"""PushTelemetry (key 72, version 0): metrics from a client (KIP-714)."""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class PushTelemetryRequest:
    client_instance_id: UUID = f("uuid")
    subscription_id: int = f("int32")
    terminating: bool = f("bool")
    compression_type: int = f("int8")
    metrics: bytes = f("bytes")


@message
class PushTelemetryResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
