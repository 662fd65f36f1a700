"""Heartbeat (key 12, versions 0-4): a classic group's member is alive.

3 static members. Flexible from 4.
"""

from dmq.wire.schema import f, message


@message
class HeartbeatRequest:
    group_id: str = f("string")
    generation_id: int = f("int32")
    member_id: str = f("string")
    group_instance_id: str | None = f("string", "3+", null="0+", default=None)


@message
class HeartbeatResponse:
    throttle_time_ms: int = f("int32", "1+")
    error_code: int = f("int16")
