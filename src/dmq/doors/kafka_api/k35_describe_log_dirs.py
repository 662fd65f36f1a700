"""DescribeLogDirs, versions 1 to 5: how many bytes lie in the data directory, by partition.

There is one directory. No topics asks for all of them; partitions that are not here are left out.
Sizes are of segments: the journal is the broker's and belongs to no partition.

    3  an error of the whole    4  size and free space of the volume    5  whether it takes no more
"""

import shutil
from pathlib import Path

from dmq.broker.service import Service
from dmq.doors.call import Call
from dmq.errors import ErrorCode
from dmq.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(service: Service, call: Call, request: DescribeLogDirsRequest) -> None:
    wanted: dict[str, list[int]] | None = None
    if request.topics is not None:
        wanted = {}
        for topic in request.topics:
            wanted.setdefault(topic.topic, []).extend(topic.partitions)
    topics = [
        DescribeLogDirsTopic(
            name,
            [DescribeLogDirsPartition(index, size, 0, False) for index, size in partitions],
        )
        for name, partitions in service.admin.log_sizes(wanted)
    ]
    directory = Path(service.config.data_dir).absolute()
    result = DescribeLogDirsResult(ErrorCode.NONE, str(directory), topics)
    try:
        volume = shutil.disk_usage(directory)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        result.total_bytes, result.usable_bytes = volume.total, volume.free
    call.reply(DescribeLogDirsResponse(results=[result]))
