"""A fast codec for the Fetch of one partition by another broker, which asks so for each record.

`write` packs the whole body of the request without message objects, and `read` makes those that the
generated decoder makes. `encode_answer` and `read_answer` do what generated codecs do, for records of one
leader epoch with one append time. The bytes are those of `fetch.py` in version 18, with append times and
replication state; every other request and response is left to the codecs of `fetch.py`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from tidelog.protocol.api.fetch import (
    NO_CLOCK,
    EpochStart,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
    ReplicationState,
    SegmentAppendTimes,
)
from tidelog.protocol.wire import UVARINTS, ZERO_UUID, DecodeError, read_uuid, read_uvarint

if TYPE_CHECKING:
    from tidelog.protocol.wire import Buffer

VERSION: Final = 18

# max_wait_ms, min_bytes, max_bytes, isolation level, session id and epoch, count of topics, topic id,
# count of partitions, the partition, its leader epoch, the fetch offset, the last fetched epoch, the log
# start, partition_max_bytes, the tag of the high watermark, that, all up to the replica, its id and epoch,
# and the tags of our extensions.
_BODY = Struct(">iiibii1s16s1siiqiqi3sq6siq11s")
_ONE = b"\2"  # a count of one
_HIGH_WATERMARK = b"\1\1\x08"  # one tagged field, number 1, of eight bytes
# No tags of the topic, no forgotten topics, no rack, three tagged fields; number 1 has 13 bytes.
_TO_REPLICA = b"\0\1\1\3\1\x0d"
# No tags of the replica; append times and replication state are asked for.
_EXTENSIONS = b"\0" + b"\xe9\xe8\1\1\1" + b"\xea\xe8\1\1\1"
_MIN_BYTES = 1

# Throttle time, error code, session id, count of topics, topic id, count of partitions, the partition, its
# error code, high watermark, last stable offset and log start, no list of aborted transactions, and the
# preferred replica. The records follow.
_ANSWER_HEAD = Struct(">ihi1s16s1sihqqq1si")
# The tag of append times, their base offset, one entry, the tag of the replication state with one epoch, that
# epoch and its start, the last append time, the largest event time, the compacted and the back offset, the
# mark, no corrections and no adopted batches, the late horizons; no other tags, and the leader's clock.
_ANSWER_TAIL = Struct(">6sq1s12s6siq1sqqqqii2sqq7sq")
_APPEND_TIMES = b"\2" + b"\xe9\xe8\1" + b"\x17" + _ONE
_ENTRY_BYTES = 12
_ONE_ENTRY = bytes((_ENTRY_BYTES + 1,))
_STATE = b"\0" + b"\xea\xe8\1" + b"\x49" + _ONE
_NULL, _NOTHING = b"\0", b"\1\1"
_CLOCK = b"\0\0\1" + b"\xec\xe8\1" + b"\x08"

_new = object.__new__


def write(
    limits: tuple[int, int, int],
    session: tuple[int, int],
    replica: tuple[int, int],
    topic_id: bytes,
    index: int,
    leader_epoch: int,
    fetch_offset: int,
    last_fetched_epoch: int,
    log_start_offset: int,
    high_watermark: int,
) -> bytes:
    """Packs the body of the fetch of one partition.

    `limits` are max_wait_ms, and max_bytes of the response and of the partition. `session` is the id and
    the epoch of the fetch session, `replica` the id and the broker epoch of the follower, whose log ends
    at `fetch_offset`.
    """
    max_wait_ms, max_bytes, partition_max_bytes = limits
    return _BODY.pack(
        max_wait_ms,
        _MIN_BYTES,
        max_bytes,
        0,
        *session,
        _ONE,
        topic_id,
        _ONE,
        index,
        leader_epoch,
        fetch_offset,
        last_fetched_epoch,
        log_start_offset,
        partition_max_bytes,
        _HIGH_WATERMARK,
        high_watermark,
        _TO_REPLICA,
        *replica,
        _EXTENSIONS,
    )


def read(body: Buffer, position: int) -> FetchRequest | None:
    """Returns a request that `write` may have packed, and that ends the buffer; None for others."""
    if len(body) - position != _BODY.size:
        return None
    request, topic, partition = _new(FetchRequest), _new(FetchTopic), _new(FetchPartition)
    replica = _new(ReplicaState)
    (
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        topics,
        topic_id,
        partitions,
        partition.partition,
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.last_fetched_epoch,
        partition.log_start_offset,
        partition.partition_max_bytes,
        high_watermark,
        partition.high_watermark,
        to_replica,
        replica.replica_id,
        replica.replica_epoch,
        extensions,
    ) = _BODY.unpack_from(body, position)
    if (
        to_replica != _TO_REPLICA
        or extensions != _EXTENSIONS
        or high_watermark != _HIGH_WATERMARK
        or topics != _ONE
        or partitions != _ONE
    ):
        return None
    partition.replica_directory_id = ZERO_UUID
    topic.topic, topic.topic_id, topic.partitions = "", read_uuid(topic_id), [partition]
    request.cluster_id, request.replica_id, request.replica_state = None, -1, replica
    request.topics, request.forgotten_topics_data, request.rack_id = [topic], [], ""
    request.with_append_times = request.with_replication_state = True
    request.newest_magic = 2
    return request


def encode_answer(answer: FetchResponse) -> list[Buffer] | None:
    """Returns the buffers of a response with records of one partition; None for other shapes."""
    topics = answer.responses
    if len(topics) != 1 or answer.node_endpoints or len(topics[0].partitions) != 1:
        return None
    if answer.clock_ms == NO_CLOCK:
        return None
    (data,) = topics[0].partitions
    times, state, records = data.append_times, data.replication_state, data.records
    if (
        times is None
        or state is None
        or not isinstance(records, list)
        or not records
        or len(times) != 1
        or len(times[0].entries) != _ENTRY_BYTES
        or len(state.epochs) != 1
        or state.corrections
        or state.adopted
        or state.log_end_offset != -1
        or data.diverging_epoch is not None
        or data.current_leader is not None
        or data.snapshot_id is not None
        or data.aborted_transactions is not None
    ):
        return None
    head = _ANSWER_HEAD.pack(
        answer.throttle_time_ms,
        answer.error_code,
        answer.session_id,
        _ONE,
        topics[0].topic_id.bytes,
        _ONE,
        data.partition_index,
        data.error_code,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        _NULL,
        data.preferred_read_replica,
    )
    tail = _ANSWER_TAIL.pack(
        _APPEND_TIMES,
        times[0].base_offset,
        _ONE_ENTRY,
        times[0].entries,
        _STATE,
        state.epochs[0].epoch,
        state.epochs[0].start_offset,
        _NULL,
        state.last_append_time_ms,
        state.max_event_time_ms,
        state.compacted_offset,
        state.back_offset,
        state.mark_epoch,
        state.mark_number,
        _NOTHING,
        state.late_horizons_from_ms,
        state.late_horizons_to_ms,
        _CLOCK,
        answer.clock_ms,
    )
    size = len(records[0]) if len(records) == 1 else sum(map(len, records))
    return [head + UVARINTS[size + 1], *records, tail]


def read_answer(body: Buffer, position: int) -> FetchResponse | None:
    """Returns a response of the shape that `encode_answer` writes, which ends the buffer; else None."""
    begin = position + _ANSWER_HEAD.size
    tail_at = len(body) - _ANSWER_TAIL.size
    if tail_at <= begin:
        return None
    try:
        size, begin = read_uvarint(body, begin)
    except DecodeError:
        return None
    if size - 1 != tail_at - begin:
        return None
    answer, topic, data = _new(FetchResponse), _new(FetchableTopicResponse), _new(PartitionData)
    times, state, epoch = _new(SegmentAppendTimes), _new(ReplicationState), _new(EpochStart)
    (
        answer.throttle_time_ms,
        answer.error_code,
        answer.session_id,
        topics,
        topic_id,
        partitions,
        data.partition_index,
        data.error_code,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        aborted,
        data.preferred_read_replica,
    ) = _ANSWER_HEAD.unpack_from(body, position)
    (
        append_times_tag,
        times.base_offset,
        one_entry,
        times.entries,
        state_tag,
        epoch.epoch,
        epoch.start_offset,
        epoch_tags,
        state.last_append_time_ms,
        state.max_event_time_ms,
        state.compacted_offset,
        state.back_offset,
        state.mark_epoch,
        state.mark_number,
        nothing,
        state.late_horizons_from_ms,
        state.late_horizons_to_ms,
        clock_tag,
        answer.clock_ms,
    ) = _ANSWER_TAIL.unpack_from(body, tail_at)
    if (
        (topics, partitions, aborted, epoch_tags) != (_ONE, _ONE, _NULL, _NULL)
        or (append_times_tag, one_entry, state_tag) != (_APPEND_TIMES, _ONE_ENTRY, _STATE)
        or (nothing, clock_tag) != (_NOTHING, _CLOCK)
    ):
        return None
    state.epochs, state.corrections, state.adopted, state.log_end_offset = [epoch], [], [], -1
    data.diverging_epoch = data.current_leader = data.snapshot_id = None
    data.aborted_transactions = None
    data.records = memoryview(body)[begin:tail_at]
    data.append_times, data.replication_state = [times], state
    topic.topic, topic.topic_id, topic.partitions = "", read_uuid(topic_id), [data]
    answer.responses, answer.node_endpoints = [topic], []
    return answer
