"""DescribeDelegationToken (key 41, versions 1-3): delegation tokens of owners.

3 who asked for them. Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class DescribeDelegationTokenOwner:
    principal_type: str = f("string")
    principal_name: str = f("string")


@message
class DescribeDelegationTokenRequest:
    owners: list[DescribeDelegationTokenOwner] | None = f([DescribeDelegationTokenOwner], null="0+")


@message
class DescribedDelegationTokenRenewer:
    principal_type: str = f("string")
    principal_name: str = f("string")


@message
class DescribedDelegationToken:
    principal_type: str = f("string")
    principal_name: str = f("string")
    token_requester_principal_type: str = f("string", "3+")
    token_requester_principal_name: str = f("string", "3+")
    issue_timestamp: int = f("int64")
    expiry_timestamp: int = f("int64")
    max_timestamp: int = f("int64")
    token_id: str = f("string")
    hmac: bytes = f("bytes")
    renewers: list[DescribedDelegationTokenRenewer] = f([DescribedDelegationTokenRenewer])


@message
class DescribeDelegationTokenResponse:
    error_code: int = f("int16")
    tokens: list[DescribedDelegationToken] = f([DescribedDelegationToken])
    throttle_time_ms: int = f("int32")
