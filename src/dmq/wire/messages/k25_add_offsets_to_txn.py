"""AddOffsetsToTxn (key 25, versions 0-4): adds a group's offsets to a transaction.

4 error codes only (KIP-890). Flexible from 3.
"""

from dmq.wire.schema import f, message


@message
class AddOffsetsToTxnRequest:
    transactional_id: str = f("string")
    producer_id: int = f("int64")
    producer_epoch: int = f("int16")
    group_id: str = f("string")


@message
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
