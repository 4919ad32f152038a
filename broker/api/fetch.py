"""Fetch (key 1): read records, waiting for them if there are too few.

Behaviour: answers at once when min_bytes are there, when max_wait_ms is 0, or when any partition has an
error; else waits. From version 3 on the first partition that has data yields at least one whole batch,
whatever the limits; before, the limit is hard and a first message too large for it comes cut short, so
that an old client raises its own error instead of asking for ever.

What the version can carry is served as it stands in the log, uncopied. Versions 0-1 read format 0, 2-3
formats 0 and 1; newer formats are converted down. Versions below 10 do not know zstd: it is re-encoded.
If nothing of what was read survives conversion (control batches), reading goes on behind it.

Fetch sessions (KIP-227) are answered statelessly: session id 0, every partition in every answer.

Version notes: 1 throttle time; 3 max_bytes; 4 isolation level, last stable offset; 5 log start offset;
7 sessions; 9 leader epoch; 11 rack and preferred replica; 12 flexible, diverging epoch; 13 topic ids;
15 replica id moves to a tag; 16 node endpoints (left out: there is one node).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from broker.context import as_broker_error
from protocol.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.errors import (
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    UnknownTopicId,
    UnsupportedVersion,
)
from protocol.records import convert
from protocol.records.batch import Compression, scan

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from uuid import UUID

    from broker.context import Context
    from broker.node import Node
    from protocol.api.fetch import FetchPartition, FetchRequest
    from protocol.errors import BrokerError
    from storage.partition import Partition

Buffer = bytes | bytearray | memoryview

_READ_COMMITTED = 1
_ZSTD_SINCE = 10
_TOPIC_IDS_SINCE = 13
_SOFT_LIMIT_SINCE = 3
_RAW_SINCE = 4
_NO_ERRORS_BELOW = 0


class _Outcome(NamedTuple):
    """One attempt at reading everything a request asks for."""

    response: FetchResponse
    size_bytes: int
    at_once: bool  # an error, or data of a diverging kind: no waiting
    partitions: list[Partition]


def handle(
    node: Node, request: FetchRequest, context: Context
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """Read what is there; wait if it is too little."""
    if request.session_id != 0:
        raise FetchSessionIdNotFound("fetch sessions are answered statelessly")
    if request.session_epoch > 0:
        raise InvalidFetchSessionEpoch("fetch sessions are answered statelessly")
    outcome = _attempt(node, request, context.version)
    if (
        outcome.at_once
        or request.max_wait_ms <= 0
        or outcome.size_bytes >= request.min_bytes
        or not outcome.partitions
    ):
        return outcome.response
    return _wait(node, request, context.version, outcome)


async def _wait(
    node: Node, request: FetchRequest, version: int, outcome: _Outcome
) -> FetchResponse:
    """Wait for more, then read again; the last attempt counts whatever it finds."""
    deadline_s = node.clock.monotonic_s() + request.max_wait_ms / 1000
    while True:
        left_s = deadline_s - node.clock.monotonic_s()
        woken = left_s > 0 and await node.waiting.wait(
            outcome.partitions, request.min_bytes - outcome.size_bytes, left_s
        )
        outcome = _attempt(node, request, version)
        if not woken or outcome.at_once or outcome.size_bytes >= request.min_bytes:
            return outcome.response


def _attempt(node: Node, request: FetchRequest, version: int) -> _Outcome:
    """Read every partition once, within the request's limits."""
    left = node.fetch_room()
    if version >= _SOFT_LIMIT_SINCE:
        left = min(left, request.max_bytes)
    response = FetchResponse(responses=[])
    size = 0
    at_once = False
    partitions: list[Partition] = []
    for topic in request.topics:
        answer = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[])
        response.responses.append(answer)
        for wanted in topic.partitions:
            try:
                partition = _find(node, topic.topic, topic.topic_id, wanted, version)
                partitions.append(partition)
                result, got = _read(node, partition, wanted, request, version, left, size == 0)
                size += got
                left = max(0, left - got)
            except Exception as error:  # noqa: BLE001 - one partition's failure is its own
                known = as_broker_error(node, error, "fetch")
                node.metrics.fetch_failed(known.code)
                result = _failed(wanted.partition, node.code_for(known.code, version <= 5))
                at_once = True
            answer.partitions.append(result)
    return _Outcome(response, size, at_once, partitions)


def _find(node: Node, name: str, topic_id: UUID, wanted: FetchPartition, version: int) -> Partition:
    if version >= _TOPIC_IDS_SINCE:
        name = node.topic_name(topic_id)
    partition = node.partition(name, wanted.partition)
    node.check_leader_epoch(partition, wanted.current_leader_epoch)
    return partition


def _read(
    node: Node,
    partition: Partition,
    wanted: FetchPartition,
    request: FetchRequest,
    version: int,
    left: int,
    first: bool,
) -> tuple[PartitionData, int]:
    """Read one partition. Returns its part of the answer and the bytes it holds."""
    committed = request.isolation_level == _READ_COMMITTED
    upper = partition.last_stable_offset if committed else partition.high_watermark
    limit = min(wanted.partition_max_bytes, left)
    buffers: Sequence[Buffer]
    if version >= _RAW_SINCE:
        fetched = partition.read(wanted.fetch_offset, limit, upper_offset=upper, minimum_one=first)
        buffers, size = fetched.buffers, fetched.size
        if size and version < _ZSTD_SINCE and _has_zstd(buffers):
            buffers = [convert.transcode_zstd(buffers)]
            size = len(buffers[0])
    else:
        buffers = _read_old(node, partition, wanted.fetch_offset, limit, upper, version, first)
        size = sum(map(len, buffers))
    if size:
        node.metrics.bytes_out(partition.topic, size)
    return PartitionData(
        partition_index=wanted.partition,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted_transactions=[] if committed else None,
        records=list(buffers),
    ), size


def _read_old(
    node: Node,
    partition: Partition,
    offset: int,
    limit: int,
    upper: int,
    version: int,
    first: bool,
) -> Sequence[Buffer]:
    """Read for a version that knows no format 2: convert where needed, never stand still."""
    hard = version < _SOFT_LIMIT_SINCE
    magic = 0 if version < 2 else 1
    fetched = partition.read(offset, limit, upper_offset=upper, minimum_one=hard or first)
    if not fetched.size:
        return []
    if not _is_newer(fetched.buffers, magic):
        return _cut(fetched.buffers, limit) if hard else fetched.buffers
    if not partition.config.message_downconversion_enable:
        raise UnsupportedVersion("message.downconversion.enable=false on this topic")
    at = offset
    while True:
        converted = convert.down_convert(fetched.buffers, target_magic=magic, fetch_offset=at)
        if converted.data or converted.next_offset >= upper or converted.next_offset <= at:
            break
        at = converted.next_offset
        fetched = partition.read(at, limit, upper_offset=upper, minimum_one=True)
    node.metrics.down_converted(partition.topic, converted.records)
    return _cut([converted.data], limit) if hard else [converted.data]


def _is_newer(buffers: Sequence[Buffer], magic: int) -> bool:
    """Whether any batch has a format above `magic`."""
    return any(batch.magic > magic for buffer in buffers for batch in scan(buffer))


def _has_zstd(buffers: Sequence[Buffer]) -> bool:
    return any(
        batch.compression is Compression.ZSTD for buffer in buffers for batch in scan(buffer)
    )


def _cut(buffers: Sequence[Buffer], limit: int) -> Sequence[Buffer]:
    """The first `limit` bytes: a message cut short tells an old client that it asks for too little."""
    kept: list[Buffer] = []
    for buffer in buffers:
        if limit <= 0:
            break
        kept.append(buffer if len(buffer) <= limit else memoryview(buffer)[:limit])
        limit -= len(buffer)
    return kept


def _failed(index: int, code: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )


def refuse(request: FetchRequest, error: BrokerError) -> FetchResponse:
    """A top-level error from version 7 on; before, every partition gets it."""
    return FetchResponse(
        error_code=error.code,
        responses=[]
        if isinstance(error, FetchSessionIdNotFound | InvalidFetchSessionEpoch | UnknownTopicId)
        else [
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[_failed(wanted.partition, error.code) for wanted in topic.partitions],
            )
            for topic in request.topics
        ],
    )
