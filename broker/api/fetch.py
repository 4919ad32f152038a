"""Fetch (key 1): read records, and wait for them if there are too few.

Behaviour: the response is sent at once if min_bytes are available, if max_wait_ms is 0, or if any
partition has an error; else the request waits. From version 3 on, the first partition that has data
returns at least one whole batch, whatever the limits. Before, the limit is strict, and a first
message too large for it is truncated, so that an old client raises its own error instead of asking
for ever.

Batches that the version can carry are returned as they are stored, without a copy. Versions 0-1
read format 0, 2-3 formats 0 and 1; newer formats are down-converted. Versions below 10 do not know
zstd: it is compressed again with gzip. If nothing of a read remains after conversion (control
batches), the read continues after it.

As in Kafka, a partition that is named more than once is read and returned once: with the parameters
of its last mention, at the position of its first.

Fetch sessions (KIP-227) are answered statelessly: session id 0, every partition in every response.

From version 12 on, a client that asks for append times, by a tag that is our extension, gets the
append time of each whole batch (decision 13). Their bytes do not count towards the limits: twelve
bytes for each different append time.

Version notes: 1 throttle time; 3 max_bytes; 4 isolation level, last stable offset; 5 log start
offset; 7 sessions; 9 leader epoch; 11 rack and preferred replica; 12 flexible, diverging epoch; 13
topic ids; 15 replica id moves to a tag; 16 node endpoints (left out: there is one node).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.network.per_partition import per_partition
from broker.partitions.offload import WouldConvert, offload
from broker.pools import ON_LOOP
from protocol.acl import Operation, ResourceType
from protocol.api.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
    SegmentAppendTimes,
)
from protocol.errors import (
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    UnknownTopicId,
    UnsupportedVersion,
)
from protocol.records import convert
from protocol.records.batch import Compression, scan
from storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from broker.network.context import Context
    from broker.node import Node
    from broker.pools import Permit
    from protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
    from protocol.errors import BrokerError, ErrorCode
    from protocol.records.batch import Batch
    from protocol.topic_partition import TopicPartition
    from storage.log.partition import Partition
    from storage.log.reading import Fetched

Buffer = bytes | bytearray | memoryview

_NOTHING: tuple[Sequence[Buffer], int, int] = ((), 0, 0)  # the result of _read if there is no data
_READ_COMMITTED = 1
_READ, _TOPIC = Operation.READ, ResourceType.TOPIC  # looked up once: it costs a call
_ZSTD_SINCE = 10
_TOPIC_IDS_SINCE = 13
_SOFT_LIMIT_SINCE = 3
_RAW_SINCE = 4

# The most uncompressed data that is converted on the loop; more, and all compressed data, is
# converted in a thread.
_LOOP_BATCHES = 64
_LOOP_BYTES = 16_384


class _Served(NamedTuple):
    """The result of one partition."""

    topic: str
    size_bytes: int
    down_converted: int  # records


class _Outcome(NamedTuple):
    """One attempt to read everything that a request asks for."""

    response: FetchResponse
    size_bytes: int
    at_once: bool  # a partition has an error, so the request does not wait
    partitions: list[Partition]
    upper_offsets: list[int]  # the offsets up to which the partitions were read
    served: list[_Served]
    errors: list[ErrorCode]


def handle(
    node: Node, request: FetchRequest, context: Context
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """Read what is available; wait if it is too little."""
    if request.session_id != 0:
        raise FetchSessionIdNotFound("fetch sessions are answered statelessly")
    if request.session_epoch > 0:
        raise InvalidFetchSessionEpoch("fetch sessions are answered statelessly")
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        _name_each_once(request, by_id=context.version >= _TOPIC_IDS_SINCE)
    try:
        outcome = _attempt(node, request, context, ON_LOOP)
    except WouldBlock:
        return _wait(node, request, context, None)
    if _is_enough(request, outcome):
        return _answer(node, outcome)
    return _wait(node, request, context, outcome)


def _name_each_once(request: FetchRequest, *, by_id: bool) -> None:
    """Keep one mention of each partition: the last one, at the position of the first."""
    topics = request.topics
    keys: list[Any] = [topic.topic_id if by_id else topic.topic for topic in topics]
    if len(set(keys)) == len(keys) and not any(map(_names_twice, topics)):
        return
    wanted: dict[tuple[Any, int], FetchPartition] = {}
    for key, topic in zip(keys, topics, strict=True):
        for partition in topic.partitions:
            wanted[key, partition.partition] = partition
    kept = []
    for key, topic in zip(keys, topics, strict=True):
        indexes = dict.fromkeys(each.partition for each in topic.partitions)
        found = [wanted.pop((key, i)) for i in indexes if (key, i) in wanted]
        if found or not topic.partitions:
            topic.partitions = found
            kept.append(topic)
    request.topics = kept


def _names_twice(topic: FetchTopic) -> bool:
    partitions = topic.partitions
    return len(partitions) > 1 and len({each.partition for each in partitions}) < len(partitions)


def _is_enough(request: FetchRequest, outcome: _Outcome) -> bool:
    """Tell whether the response can be sent now."""
    return (
        outcome.at_once
        or request.max_wait_ms <= 0
        or outcome.size_bytes >= request.min_bytes
        or not outcome.partitions
    )


def _answer(node: Node, outcome: _Outcome) -> FetchResponse:
    """Return the response, and count what it serves."""
    for served in outcome.served:
        node.metrics.bytes_out(served.topic, served.size_bytes)
        if served.down_converted:
            node.metrics.down_converted(served.topic, served.down_converted)
    for code in outcome.errors:
        node.metrics.fetch_failed(code)
    return outcome.response


async def _wait(
    node: Node, request: FetchRequest, context: Context, outcome: _Outcome | None
) -> FetchResponse:
    """Wait for more data, then read again; the last attempt is the response, whatever it finds."""
    deadline_s = node.clock.monotonic_s() + request.max_wait_ms / 1000
    if outcome is None:
        outcome = await _attempt_anywhere(node, request, context)
    while not _is_enough(request, outcome):
        if _has_grown(request, outcome):  # since the read, before the request waited
            outcome = await _attempt_anywhere(node, request, context)
            continue
        left_s = deadline_s - node.clock.monotonic_s()
        woken = left_s > 0 and await node.waiting.wait(
            outcome.partitions, request.min_bytes - outcome.size_bytes, left_s
        )
        outcome = await _attempt_anywhere(node, request, context)
        if not woken:
            break
    return _answer(node, outcome)


def _has_grown(request: FetchRequest, outcome: _Outcome) -> bool:
    """Tell whether there is more to read than there was."""
    return any(
        _upper_offset(partition, request) != upper_offset
        for partition, upper_offset in zip(outcome.partitions, outcome.upper_offsets, strict=True)
    )


async def _attempt_anywhere(node: Node, request: FetchRequest, context: Context) -> _Outcome:
    """Read on the loop; in a thread if much has to be converted, or read from disk."""
    attempt = partial(_attempt, node, request, context)
    return await offload(node, _names(node, request, context.version), attempt)


def _names(node: Node, request: FetchRequest, version: int) -> Iterator[TopicPartition]:
    """Yield the requested partitions that may be here."""
    for topic in request.topics:
        name = topic.topic
        if version >= _TOPIC_IDS_SINCE:
            known = node.metadata.image.topics_by_id.get(topic.topic_id)
            if known is None:
                continue
            name = known.name
        for wanted in topic.partitions:
            yield name, wanted.partition


def _attempt(node: Node, request: FetchRequest, context: Context, permit: Permit) -> _Outcome:
    """Read every partition once, within the request's limits.

    Raises WouldBlock on the loop alone, and Abandoned in a thread alone.
    """
    version, session = context.header.api_version, context.connection.session
    require = node.authorizer.require
    may_block = permit.may_block
    find = node.leader_partition
    left = node.connections.fetch_room()
    if version >= _SOFT_LIMIT_SINCE:
        left = min(left, request.max_bytes)
    outcome = _Outcome(FetchResponse(responses=[]), 0, False, [], [], [], [])
    by_id = version >= _TOPIC_IDS_SINCE
    is_broker = _is_replica(request) and node.authorizer.allows_on_cluster(
        session, Operation.CLUSTER_ACTION
    )
    size = 0

    def read(topic: FetchTopic, wanted: FetchPartition) -> PartitionData:
        nonlocal left, size
        if may_block:  # a permit of the loop is never withdrawn
            permit.check()
        name = node.topic_name(topic.topic_id) if by_id else topic.topic
        if not is_broker:
            require(session, _READ, _TOPIC, name)
        partition = find(name, wanted.partition, wanted.current_leader_epoch, may_block)
        upper_offset = _upper_offset(partition, request)
        outcome.partitions.append(partition)
        outcome.upper_offsets.append(upper_offset)
        records, got, converted = _NOTHING
        append_times = None
        if wanted.fetch_offset != upper_offset:  # the consumer has not caught up
            limit = min(wanted.partition_max_bytes, left)
            reading = _Reading(
                partition, wanted.fetch_offset, limit, upper_offset, version, size == 0, permit
            )
            if request.with_append_times:
                records, got, append_times = _read_with_append_times(reading)
            else:
                records, got, converted = _read(reading)
        result = _found(partition, wanted.partition, records, request)
        if append_times:
            result.append_times = append_times
        if got:
            outcome.served.append(_Served(partition.topic, got, converted))
        size += got
        left = max(0, left - got)
        return result

    def failed(wanted: FetchPartition, error: BrokerError) -> PartitionData:
        outcome.errors.append(error.code)
        return _failed(wanted.partition, node.code_for(error.code, version <= 5))

    for topic in request.topics:
        answer = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
        outcome.response.responses.append(answer)
        answer.partitions = per_partition(
            node,
            "fetch",
            topic.partitions,
            partial(read, topic),
            failed,
        )
    return outcome._replace(size_bytes=size, at_once=bool(outcome.errors))


def _is_replica(request: FetchRequest) -> bool:
    """Tell whether a broker asks, for a replica of its own."""
    state = request.replica_state
    return request.replica_id >= 0 or (state is not None and state.replica_id >= 0)


class _Reading(NamedTuple):
    """What to read of one partition, and for which request."""

    partition: Partition
    offset: int
    limit: int
    upper_offset: int
    version: int
    is_first: bool  # no partition of this request has returned data yet
    permit: Permit

    def fetch(self, offset: int, *, minimum_one: bool) -> Fetched:
        """Read the log from an offset."""
        return self.partition.read(
            offset,
            self.limit,
            upper_offset=self.upper_offset,
            minimum_one=minimum_one,
            may_block=self.permit.may_block,
        )

    def may_convert(self, batches: Sequence[Batch]) -> None:
        """Raise WouldConvert if converting these batches would block the loop for too long.

        The decompressed size of a compressed batch is not known in advance.
        """
        if not self.permit.may_block and (
            len(batches) > _LOOP_BATCHES
            or any(each.compression or each.size > _LOOP_BYTES for each in batches)
        ):
            raise WouldConvert


def _upper_offset(partition: Partition, request: FetchRequest) -> int:
    ends = partition.state.ends
    if request.isolation_level == _READ_COMMITTED:
        return ends.last_stable_offset
    return ends.high_watermark


def _read(reading: _Reading) -> tuple[Sequence[Buffer], int, int]:
    """Read one partition; return the records, their bytes, and how many were down-converted."""
    if reading.version < _RAW_SINCE:
        return _read_old(reading)
    fetched = reading.fetch(reading.offset, minimum_one=reading.is_first)
    if fetched.size < fetched.first_batch_size:
        return _NOTHING  # from version 3 on a batch is returned whole or not at all
    if reading.version < _ZSTD_SINCE and fetched.size:
        batches = _batches(fetched.buffers)
        if all(batch.compression is not Compression.ZSTD for batch in batches):
            return fetched.buffers, fetched.size, 0
        reading.may_convert(batches)
        data = convert.transcode_zstd(fetched.buffers, reading.permit.check)
        return (data,), len(data), 0
    return fetched.buffers, fetched.size, 0


def _read_with_append_times(
    reading: _Reading,
) -> tuple[Sequence[Buffer], int, list[SegmentAppendTimes] | None]:
    """Read for a version that needs no conversion; return the records, bytes and append times."""
    fetched, told = reading.partition.reader.read_with_append_times(
        reading.offset,
        reading.limit,
        upper_offset=reading.upper_offset,
        minimum_one=reading.is_first,
        may_block=reading.permit.may_block,
    )
    if fetched.size < fetched.first_batch_size:
        return (), 0, None
    append_times = [SegmentAppendTimes(base_offset=base, entries=data) for base, data in told]
    return fetched.buffers, fetched.size, append_times


def _read_old(reading: _Reading) -> tuple[Sequence[Buffer], int, int]:
    """Read for a version without format 2: convert where needed, and always make progress."""
    hard = reading.version < _SOFT_LIMIT_SINCE
    magic = 0 if reading.version < 2 else 1
    fetched = reading.fetch(reading.offset, minimum_one=hard or reading.is_first)
    if not fetched.size or (not hard and fetched.size < fetched.first_batch_size):
        return (), 0, 0
    records = 0
    buffers: Sequence[Buffer] = fetched.buffers
    batches = _batches(buffers)
    if any(batch.magic > magic for batch in batches):
        if not reading.partition.config.message_downconversion_enable:
            raise UnsupportedVersion("message.downconversion.enable=false on this topic")
        if hard and reading.limit <= 0:
            return _NOTHING  # all of it would be truncated
        reading.may_convert(batches)
        data, records = _converted(reading, fetched, magic)
        buffers = (data,)
    if hard:
        buffers = _cut(buffers, reading.limit)
    return buffers, sum(map(len, buffers)), records


def _converted(reading: _Reading, fetched: Fetched, magic: int) -> tuple[Buffer, int]:
    """Down-convert, reading on past batches of which nothing remains; return data and count."""
    at = reading.offset
    while True:
        converted = convert.down_convert(
            fetched.buffers,
            target_magic=magic,
            fetch_offset=at,
            check=reading.permit.check,
        )
        if converted.data or not at < converted.next_offset < reading.upper_offset:
            return converted.data, converted.records
        at = converted.next_offset
        fetched = reading.fetch(at, minimum_one=True)


def _batches(buffers: Sequence[Buffer]) -> list[Batch]:
    """Return the whole batches of what was read."""
    return [batch for buffer in buffers for batch in scan(buffer)]


def _cut(buffers: Sequence[Buffer], limit: int) -> Sequence[Buffer]:
    """Return the first `limit` bytes: a truncated message makes an old client raise its limit."""
    kept: list[Buffer] = []
    for buffer in buffers:
        if limit <= 0:
            break
        kept.append(buffer if len(buffer) <= limit else memoryview(buffer)[:limit])
        limit -= len(buffer)
    return kept


def _found(
    partition: Partition, index: int, records: Sequence[Buffer], request: FetchRequest
) -> PartitionData:
    """Return one partition's part of the response."""
    state = partition.state
    ends = state.ends
    return PartitionData(
        partition_index=index,
        high_watermark=ends.high_watermark,
        last_stable_offset=ends.last_stable_offset,
        log_start_offset=state.version.log_start_offset,
        aborted_transactions=[] if request.isolation_level == _READ_COMMITTED else None,
        records=list(records),
    )


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
    """Return the error at the top from version 7 on; before, for every partition."""
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
