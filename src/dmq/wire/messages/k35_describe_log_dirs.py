"""DescribeLogDirs (key 35, versions 1-5): what lies on a broker's disks.

3 an error of the whole. 4 sizes of the volumes. 5 which disks take no more. Flexible from 2.
"""

from dmq.wire.schema import f, message


@message
class DescribableLogDirTopic:
    topic: str = f("string")
    partitions: list[int] = f(["int32"])


@message
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = f([DescribableLogDirTopic], null="0+")


@message
class DescribeLogDirsPartition:
    partition_index: int = f("int32")
    partition_size: int = f("int64")
    offset_lag: int = f("int64")
    is_future_key: bool = f("bool")


@message
class DescribeLogDirsTopic:
    name: str = f("string")
    partitions: list[DescribeLogDirsPartition] = f([DescribeLogDirsPartition])


@message
class DescribeLogDirsResult:
    error_code: int = f("int16")
    log_dir: str = f("string")
    topics: list[DescribeLogDirsTopic] = f([DescribeLogDirsTopic])
    total_bytes: int = f("int64", "4+", default=-1)
    usable_bytes: int = f("int64", "4+", default=-1)
    is_cordoned: bool = f("bool", "5+")


@message
class DescribeLogDirsResponse:
    throttle_time_ms: int = f("int32")
    error_code: int = f("int16", "3+")
    results: list[DescribeLogDirsResult] = f([DescribeLogDirsResult])
