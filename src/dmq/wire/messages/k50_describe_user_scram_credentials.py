"""DescribeUserScramCredentials (key 50, version 0): which SCRAM credentials users have."""

from dmq.wire.schema import f, message


@message
class UserName:
    name: str = f("string")


@message
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = f([UserName], null="0+")


@message
class CredentialInfo:
    mechanism: int = f("int8")
    iterations: int = f("int32")


@message
class DescribeUserScramCredentialsResult:
    user: str = f("string")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    credential_infos: list[CredentialInfo] = f([CredentialInfo])


@message
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    results: list[DescribeUserScramCredentialsResult] = f([DescribeUserScramCredentialsResult])
