"""FindCoordinator (key 10, versions 0-6): the broker that coordinates a group or a transaction.

1 kinds of key: 0 group, 1 transaction. 4 several keys. 6 kind 2, share groups. Flexible from 3.
"""

from dmq.wire.schema import f, message


@message
class FindCoordinatorRequest:
    key: str = f("string", "0-3")
    key_type: int = f("int8", "1+")
    coordinator_keys: list[str] = f(["string"], "4+")


@message
class Coordinator:
    key: str = f("string")
    node_id: int = f("int32")
    host: str = f("string")
    port: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")


@message
class FindCoordinatorResponse:
    throttle_time_ms: int = f("int32", "1+")
    error_code: int = f("int16", "0-3")
    error_message: str | None = f("string", "1-3", null="0+")
    node_id: int = f("int32", "0-3")
    host: str = f("string", "0-3")
    port: int = f("int32", "0-3")
    coordinators: list[Coordinator] = f([Coordinator], "4+")
