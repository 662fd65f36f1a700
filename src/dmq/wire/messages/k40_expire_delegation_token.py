"""ExpireDelegationToken (key 40, versions 1-2): ends a delegation token.

Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class ExpireDelegationTokenRequest:
    hmac: bytes = f("bytes")
    expiry_time_period_ms: int = f("int64")


@message
class ExpireDelegationTokenResponse:
    error_code: int = f("int16")
    expiry_timestamp_ms: int = f("int64")
    throttle_time_ms: int = f("int32")
