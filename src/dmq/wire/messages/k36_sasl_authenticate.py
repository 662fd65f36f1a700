"""SaslAuthenticate (key 36)."""

from dmq.wire.schema import f, message


@message
class SaslAuthenticateRequest:
    auth_bytes: bytes = f("bytes")


@message
class SaslAuthenticateResponse:
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")
    auth_bytes: bytes = f("bytes")
    session_lifetime_ms: int = f("int64", "1+")
