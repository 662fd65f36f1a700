"""SaslHandshake (key 17)."""

from dmq.wire.schema import f, message


@message
class SaslHandshakeRequest:
    mechanism: str = f("string")


@message
class SaslHandshakeResponse:
    error_code: int = f("int16")
    mechanisms: list[str] = f(["string"])
