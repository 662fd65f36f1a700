"""AddRaftVoter (key 80, versions 0-1): adds a voter to the metadata quorum (KIP-853).

1 whether to wait for the commit.
"""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class Listener:
    name: str = f("string")
    host: str = f("string")
    port: int = f("uint16")


@message
class AddRaftVoterRequest:
    cluster_id: str | None = f("string", null="0+")
    timeout_ms: int = f("int32")
    voter_id: int = f("int32")
    voter_directory_id: UUID = f("uuid")
    listeners: list[Listener] = f([Listener])
    ack_when_committed: bool = f("bool", "1+", default=True)


@message
class AddRaftVoterResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
