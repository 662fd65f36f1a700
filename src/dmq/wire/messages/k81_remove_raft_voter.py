"""RemoveRaftVoter (key 81, version 0): removes a voter from the metadata quorum (KIP-853)."""

from uuid import UUID

from dmq.wire.schema import f, message


@message
class RemoveRaftVoterRequest:
    cluster_id: str | None = f("string", null="0+")
    voter_id: int = f("int32")
    voter_directory_id: UUID = f("uuid")


@message
class RemoveRaftVoterResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
