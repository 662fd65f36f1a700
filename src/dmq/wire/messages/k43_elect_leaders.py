"""ElectLeaders (key 43, versions 0-2): elects leaders for partitions.

1 unclean elections. Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class TopicPartitions:
    topic: str = f("string")
    partitions: list[int] = f(["int32"])


@message
class ElectLeadersRequest:
    election_type: int = f("int8", "1+")
    topic_partitions: list[TopicPartitions] | None = f([TopicPartitions], null="0+")
    timeout_ms: int = f("int32", default=60000)


@message
class PartitionResult:
    partition_id: int = f("int32")
    error_code: int = f("int16")
    error_message: str | None = f("string", null="0+")


@message
class ReplicaElectionResult:
    topic: str = f("string")
    partition_result: list[PartitionResult] = f([PartitionResult])


@message
class ElectLeadersResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16", "1+")
    replica_election_results: list[ReplicaElectionResult] = f([ReplicaElectionResult])
