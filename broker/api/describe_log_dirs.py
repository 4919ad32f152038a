"""DescribeLogDirs (key 35): the log directories and the disk usage of each log (KIP-113, KIP-827).

Behaviour: every directory of log.dirs, with the requested partitions (null: all) that it holds. As
in Kafka, partitions that are in no directory are left out. A log's size is the bytes of its `.log`
files. No log is opened for this, and the directories are listed in a thread. A directory that
cannot be listed is KAFKA_STORAGE_ERROR, without effect on the others.

Version notes: 1 is the same as 0; 2 flexible; 3 an error at the top; 4 the bytes of the volume.
"""

from __future__ import annotations

import logging
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from tidelog.protocol.api.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.protocol.errors import ErrorCode
from tidelog.storage.directory import disk_usage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.describe_log_dirs import DescribeLogDirsRequest
    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.directory.disk_usage import DiskUsage
    from tidelog.storage.directory.store import LogStore


log = logging.getLogger("tidelog.node")


async def handle(
    services: Services, request: DescribeLogDirsRequest, _context: Context
) -> DescribeLogDirsResponse:
    """Measures every directory, in a thread."""
    return await services.pools.reads.run(_measure, services.store, request)


def _measure(store: LogStore, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted = set(store.names())
    if request.topics is not None:
        wanted &= {(each.topic, index) for each in request.topics for index in each.partitions}
    opened = {(each.topic, each.index): each.size for each in store.opened()}
    return DescribeLogDirsResponse(
        results=[_result(path, opened, wanted) for path in store.log_dirs]
    )


def _result(
    path: Path, opened: Mapping[TopicPartition, int], wanted: Collection[TopicPartition]
) -> DescribeLogDirsResult:
    """Measures one directory."""
    name = str(path.absolute())
    try:
        usage = disk_usage.measure(path, opened, wanted)
    except OSError as error:
        log.error(
            "listing of log directory failed", extra={"directory": name, "reason": str(error)}
        )
        return DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=name, topics=[]
        )
    return DescribeLogDirsResult(
        log_dir=name,
        topics=_topics(usage),
        total_bytes=usage.total_bytes,
        usable_bytes=usage.usable_bytes,
    )


def _topics(usage: DiskUsage) -> list[DescribeLogDirsTopic]:
    by_topic = groupby(sorted(usage.sizes), key=itemgetter(0))
    return [
        DescribeLogDirsTopic(
            name=topic,
            partitions=[
                DescribeLogDirsPartition(partition_index=key[1], partition_size=usage.sizes[key])
                for key in keys
            ],
        )
        for topic, keys in by_topic
    ]


def refuse(_request: DescribeLogDirsRequest, error: BrokerError) -> DescribeLogDirsResponse:
    """Returns an error at the top (v3+), and as a directory without a name for older clients."""
    return DescribeLogDirsResponse(
        error_code=error.code,
        results=[DescribeLogDirsResult(error_code=error.code, topics=[])],
    )
