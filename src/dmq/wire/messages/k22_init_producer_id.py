"""InitProducerId (key 22, versions 0-5): a producer's id and epoch.

3 the epoch is bumped for who has one. 4, 5 error codes only (KIP-588, KIP-890). Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class InitProducerIdRequest:
    transactional_id: str | None = f("string", null="0+")
    transaction_timeout_ms: int = f("int32")
    producer_id: int = f("int64", "3+", default=-1)
    producer_epoch: int = f("int16", "3+", default=-1)


@message
class InitProducerIdResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16")
    producer_id: int = f("int64", default=-1)
    producer_epoch: int = f("int16")
