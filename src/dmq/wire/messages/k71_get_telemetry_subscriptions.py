"""GetTelemetrySubscriptions (key 71, version 0): which metrics the broker wants from a client
(KIP-714).
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class GetTelemetrySubscriptionsRequest:
    client_instance_id: UUID = f("uuid")


@message
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    client_instance_id: UUID = f("uuid")
    subscription_id: int = f("int32")
    accepted_compression_types: list[int] = f(["int8"])
    push_interval_ms: int = f("int32")
    telemetry_max_bytes: int = f("int32")
    delta_temporality: bool = f("bool")
    requested_metrics: list[str] = f(["string"])
