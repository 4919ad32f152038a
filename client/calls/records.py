"""Calls that read, append and delete records, and look up offsets. Refusals raise RequestError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client import apis
from tidelog.client.errors import RequestError, raise_for_code
from tidelog.client.flow import Call, Leader, Node
from tidelog.protocol.api import delete_records, fetch, list_offsets, produce
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.protocol.wire import Buffer

LATEST: Final = -1
EARLIEST: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
NO_REPLICA: Final = -1
PRODUCE_WAIT_MS: Final = 30_000  # how long a broker may wait for replicas


class FoundOffset(NamedTuple):
    """The offset found for a time; both are -1 if there is none."""

    offset: int
    timestamp_ms: int


class Fetched(NamedTuple):
    """The result of one fetch: complete batches; the first may begin before the requested offset.

    `records` may end in a partial batch. `aborted` are (producer id, first offset) of aborted
    transactions. `append_times` are (base offset, entries of `.appendtimes`) of each segment; it is
    empty unless a tidelog broker was asked for them. `preferred_replica` is the broker that the
    leader names for a client's rack; it then sends no records itself.
    """

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    append_times: tuple[tuple[int, bytes], ...]
    preferred_replica: int = NO_REPLICA


class Produced(NamedTuple):
    """The offset of appended records; `append_time_ms` is -1 unless the broker set their times."""

    base_offset: int
    append_time_ms: int
    log_start_offset: int


def list_offsets_of(
    topic: str, times_ms: Mapping[int, int], *, isolation: int = READ_UNCOMMITTED
) -> Call[dict[int, FoundOffset]]:
    """The first offset at or after a time, of partitions that have the same leader.

    `EARLIEST` and `LATEST` are the ends.
    """
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            list_offsets.ListOffsetsTopic(
                name=topic,
                partitions=[
                    list_offsets.ListOffsetsPartition(partition_index=number, timestamp=time_ms)
                    for number, time_ms in times_ms.items()
                ],
            )
        ],
    )

    def read(answer: Any) -> dict[int, FoundOffset]:
        found = {}
        for one in answer.topics[0].partitions:
            raise_for_code(one.error_code, f"offsets of {topic}-{one.partition_index}")
            found[one.partition_index] = FoundOffset(one.offset, one.timestamp)
        return found

    return Call(apis.LIST_OFFSETS, request, Leader(topic, min(times_ms)), read)


def list_offset(
    topic: str, partition: int, time_ms: int, *, isolation: int = READ_UNCOMMITTED
) -> Call[FoundOffset]:
    """The first offset at or after a time; `EARLIEST` and `LATEST` are the ends."""
    of_all = list_offsets_of(topic, {partition: time_ms}, isolation=isolation)
    return Call(
        of_all.key, of_all.message, of_all.target, lambda answer: of_all.read(answer)[partition]
    )


def fetch_records(
    topic: str,
    partition: int,
    offset: int,
    *,
    max_bytes: int = 16 << 20,
    min_bytes: int = 1,
    max_wait_ms: int = 500,
    isolation: int = READ_UNCOMMITTED,
    with_append_times: bool = False,
    rack: str = "",
) -> Call[Fetched]:
    """Reads batches from the one that contains `offset` on; no records if none came in time.

    For a `rack` the leader may name a replica to read from instead (KIP-392).
    """
    asked = fetch.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    request = fetch.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[fetch.FetchTopic(topic=topic, partitions=[asked])],
        rack_id=rack,
        with_append_times=with_append_times,
    )

    def read(answer: Any) -> Fetched:
        raise_for_code(answer.error_code, f"reading {topic}-{partition}")
        if not answer.responses:  # a quota is exceeded
            raise_for_code(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"reading {topic}-{partition}")
        one = answer.responses[0].partitions[0]
        raise_for_code(one.error_code, f"reading {topic}-{partition} at offset {offset}")
        return _fetched(one)

    return Call(apis.FETCH, request, Leader(topic, partition), read, wait_s=max_wait_ms / 1000)


def fetch_partitions(
    node_id: int,
    positions: Mapping[TopicPartition, int],
    *,
    max_bytes: int = 16 << 20,
    partition_max_bytes: int = 1 << 20,
    max_wait_ms: int = 500,
    isolation: int = READ_UNCOMMITTED,
    with_append_times: bool = False,
) -> Call[dict[TopicPartition, Fetched | RequestError]]:
    """Reads batches of several partitions with the same leader, each from its own offset on.

    The answer of a partition that is refused is a RequestError.
    """
    by_topic: dict[str, list[fetch.FetchPartition]] = {}
    for (topic, partition), offset in positions.items():
        by_topic.setdefault(topic, []).append(
            fetch.FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes
            )
        )
    request = fetch.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[
            fetch.FetchTopic(topic=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
        with_append_times=with_append_times,
    )

    def read(answer: Any) -> dict[TopicPartition, Fetched | RequestError]:
        raise_for_code(answer.error_code, f"reading from broker {node_id}")
        return {
            (topic.topic, one.partition_index): RequestError(
                one.error_code, f"reading {topic.topic}-{one.partition_index}"
            )
            if one.error_code
            else _fetched(one)
            for topic in answer.responses
            for one in topic.partitions
        }

    return Call(apis.FETCH, request, Node(node_id), read, wait_s=max_wait_ms / 1000)


def _fetched(one: Any) -> Fetched:
    return Fetched(
        memoryview(one.records or b""),
        one.high_watermark,
        one.last_stable_offset,
        one.log_start_offset,
        tuple((each.producer_id, each.first_offset) for each in one.aborted_transactions or ()),
        tuple((each.base_offset, each.entries) for each in one.append_times or ()),
        one.preferred_read_replica,
    )


def append(topic: str, partition: int, batches: Buffer, *, acks: int = -1) -> Call[Produced]:
    """Appends ready batches, without a retry if they may be in the log.

    With acks=0 there is no answer.
    """
    where = f"{topic}-{partition}"
    return Call(
        apis.PRODUCE,
        produce_request(topic, partition, batches, acks=acks),
        Leader(topic, partition),
        lambda answer: (
            Produced(-1, NO_TIMESTAMP, -1) if answer is None else read_produced(answer, where)
        ),
        wait_s=PRODUCE_WAIT_MS / 1000,
        is_repeatable=False,
        has_answer=acks != 0,
    )


def produce_request(
    topic: str,
    partition: int,
    batches: Buffer,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
) -> produce.ProduceRequest:
    """Returns a request that appends ready batches to one partition."""
    return produce.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=PRODUCE_WAIT_MS,
        topic_data=[
            produce.TopicProduceData(
                name=topic,
                partition_data=[produce.PartitionProduceData(index=partition, records=batches)],
            )
        ],
    )


def read_produced(answer: Any, where: str) -> Produced:
    """Returns a broker's answer for one partition's append. Raises RequestError."""
    one = answer.responses[0].partition_responses[0]
    if one.error_code:
        reasons = [each.batch_index_error_message for each in one.record_errors or ()]
        message = "; ".join(filter(None, [one.error_message, *reasons[:3]]))
        raise RequestError(one.error_code, f"writing to {where}", message or None)
    return Produced(one.base_offset, one.log_append_time_ms, one.log_start_offset)


def delete_before(topic: str, partition: int, offset: int) -> Call[int]:
    """Deletes the records before an offset; the answer is the new log start."""
    asked = delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = delete_records.DeleteRecordsRequest(
        topics=[delete_records.DeleteRecordsTopic(name=topic, partitions=[asked])],
        timeout_ms=PRODUCE_WAIT_MS,
    )

    def read(answer: Any) -> int:
        one = answer.topics[0].partitions[0]
        raise_for_code(one.error_code, f"deleting records of {topic}-{partition}")
        return int(one.low_watermark)

    return Call(
        apis.DELETE_RECORDS,
        request,
        Leader(topic, partition),
        read,
        wait_s=PRODUCE_WAIT_MS / 1000,
    )
