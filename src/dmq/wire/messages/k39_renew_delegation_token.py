"""RenewDelegationToken (key 39, versions 1-2): lets a delegation token live on.

Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class RenewDelegationTokenRequest:
    hmac: bytes = f("bytes")
    renew_period_ms: int = f("int64")


@message
class RenewDelegationTokenResponse:
    error_code: int = f("int16")
    expiry_timestamp_ms: int = f("int64")
    throttle_time_ms: int = f("int32")
