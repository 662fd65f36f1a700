"""AlterReplicaLogDirs (key 34, versions 1-2): moves replicas between the disks of a broker.

Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class AlterReplicaLogDirTopic:
    name: str = f("string")
    partitions: list[int] = f(["int32"])


@message
class AlterReplicaLogDir:
    path: str = f("string")
    topics: list[AlterReplicaLogDirTopic] = f([AlterReplicaLogDirTopic])


@message
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = f([AlterReplicaLogDir])


@message
class AlterReplicaLogDirPartitionResult:
    partition_index: int = f("int32")
    error_code: int = f("int16")


@message
class AlterReplicaLogDirTopicResult:
    topic_name: str = f("string")
    partitions: list[AlterReplicaLogDirPartitionResult] = f([AlterReplicaLogDirPartitionResult])


@message
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = f("int32")
    results: list[AlterReplicaLogDirTopicResult] = f([AlterReplicaLogDirTopicResult])
