"""EndTxn (key 26, versions 0-5): commits or aborts a transaction.

5 the next epoch in the answer (KIP-890). Flexible from 3.
"""

from dmq.wire.schema import f, message


@message
class EndTxnRequest:
    transactional_id: str = f("string")
    producer_id: int = f("int64")
    producer_epoch: int = f("int16")
    committed: bool = f("bool")


@message
class EndTxnResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    producer_id: int = f("int64", "5+", default=-1)
    producer_epoch: int = f("int16", "5+", default=-1)
