"""CreateDelegationToken (key 38, versions 1-3): makes a delegation token.

3 for another owner. Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class CreatableRenewers:
    principal_type: str = f("string")
    principal_name: str = f("string")


@message
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = f("string", "3+", null="0+")
    owner_principal_name: str | None = f("string", "3+", null="0+")
    renewers: list[CreatableRenewers] = f([CreatableRenewers])
    max_lifetime_ms: int = f("int64")


@message
class CreateDelegationTokenResponse:
    error_code: int = f("int16")
    principal_type: str = f("string")
    principal_name: str = f("string")
    token_requester_principal_type: str = f("string", "3+")
    token_requester_principal_name: str = f("string", "3+")
    issue_timestamp_ms: int = f("int64")
    expiry_timestamp_ms: int = f("int64")
    max_timestamp_ms: int = f("int64")
    token_id: str = f("string")
    hmac: bytes = f("bytes")
    throttle_time_ms: int = f("int32")
