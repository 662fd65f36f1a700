"""WriteTxnMarkers (key 27, versions 1-2): writes the end of transactions to their partitions,
broker to broker.

2 the transaction's version.
"""

from dmq.wire.schema import f, message


@message
class WritableTxnMarkerTopic:
    name: str = f("string")
    partition_indexes: list[int] = f(["int32"])


@message
class WritableTxnMarker:
    producer_id: int = f("int64")
    producer_epoch: int = f("int16")
    transaction_result: bool = f("bool")
    topics: list[WritableTxnMarkerTopic] = f([WritableTxnMarkerTopic])
    coordinator_epoch: int = f("int32")
    transaction_version: int = f("int8", "2+")


@message
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = f([WritableTxnMarker])


@message
class WritableTxnMarkerPartitionResult:
    partition_index: int = f("int32")
    error_code: int = f("int16")


@message
class WritableTxnMarkerTopicResult:
    name: str = f("string")
    partitions: list[WritableTxnMarkerPartitionResult] = f([WritableTxnMarkerPartitionResult])


@message
class WritableTxnMarkerResult:
    producer_id: int = f("int64")
    topics: list[WritableTxnMarkerTopicResult] = f([WritableTxnMarkerTopicResult])


@message
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = f([WritableTxnMarkerResult])
