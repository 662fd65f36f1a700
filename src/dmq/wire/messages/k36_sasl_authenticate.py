"""SaslAuthenticate (key 36, versions 0-2): one step of a SASL exchange.

1 how long the session may live. Flexible from 2.
"""

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
