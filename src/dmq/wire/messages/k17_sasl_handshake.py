"""SaslHandshake (key 17, versions 0-1): chooses a SASL mechanism.

0 is followed by bare tokens, 1 by SaslAuthenticate.
"""

from dmq.wire.schema import f, message


@message
class SaslHandshakeRequest:
    mechanism: str = f("string")


@message
class SaslHandshakeResponse:
    error_code: int = f("int16")
    mechanisms: list[str] = f(["string"])
