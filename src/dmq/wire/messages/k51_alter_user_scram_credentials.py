"""AlterUserScramCredentials (key 51, version 0): sets and removes SCRAM credentials."""

from dmq.wire.schema import f, message


@message
class ScramCredentialDeletion:
    name: str = f("string")
    mechanism: int = f("int8")


@message
class ScramCredentialUpsertion:
    name: str = f("string")
    mechanism: int = f("int8")
    iterations: int = f("int32")
    salt: bytes = f("bytes")
    salted_password: bytes = f("bytes")


@message
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = f([ScramCredentialDeletion])
    upsertions: list[ScramCredentialUpsertion] = f([ScramCredentialUpsertion])


@message
class AlterUserScramCredentialsResult:
    user: str = f("string")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")


@message
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = f("int32")
    results: list[AlterUserScramCredentialsResult] = f([AlterUserScramCredentialsResult])
