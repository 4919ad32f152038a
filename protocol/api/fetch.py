"""Fetch (key 1): records from partitions, starting at offsets.

v1 throttle time; v2 format 1; v3 a limit for the whole response (KIP-74); v4 isolation level, last
stable offset, aborted transactions (KIP-98); v5 log start offset; v7 fetch sessions (KIP-227); v9
leader epoch (KIP-320); v10 zstd (KIP-110); v11 racks (KIP-392); v12 flexible, diverging epoch; v13
topics by id (KIP-516); v14 tiered storage error; v15 replica state as a tag (KIP-903); v16 leaders'
endpoints (KIP-951); v17 directory id (KIP-853); v18 the follower's high watermark (KIP-1166). Our
extensions, from v12 on: a client that asks gets the append times of the batches (decision 13), and
a follower that asks gets what its leader knows of the log (decision 31), and no batches of a newer
message format than it stores (decision 37).
"""

from __future__ import annotations

from typing import Final

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import (
    Api,
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    RecordParts,
    String,
    Uuid,
    since,
)

# The tags of our extensions, the letters "ti" to "tl". Kafka numbers its tags 0, 1, 2, ... without a
# gap, and ignores others.
APPEND_TIMES_TAG: Final = 0x7469
REPLICATION_STATE_TAG: Final = 0x746A
NEWEST_MAGIC_TAG: Final = 0x746B
CLOCK_TAG: Final = 0x746C
NO_CLOCK: Final = -(2**63)


class ReplicaState(Message):
    """The id and the broker epoch of the follower that asks; -1 is a consumer."""

    replica_id: Int32 = since(15, default=-1)
    replica_epoch: Int64 = since(15, default=-1)


class FetchPartition(Message):
    """One partition, the offset to read from, and the most bytes."""

    partition: Int32 = since(0)
    current_leader_epoch: Int32 = since(9, default=-1, ignorable=True)
    fetch_offset: Int64 = since(0)
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    partition_max_bytes: Int32 = since(0)
    replica_directory_id: Uuid = since(17, tag=0, ignorable=True)
    high_watermark: Int64 = since(18, default=2**63 - 1, tag=1, ignorable=True)


class FetchTopic(Message):
    """The partitions to read of one topic."""

    topic: String = since(0, until=12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partitions: list[FetchPartition] = since(0)


class ForgottenTopic(Message):
    """Partitions that the fetch session removes."""

    topic: String = since(7, until=12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partitions: list[Int32] = since(7)


class FetchRequest(Message):
    """Read from these partitions; wait up to max_wait_ms for min_bytes.

    `newest_magic` is the newest message format that a follower stores; it gets records of newer ones
    in this format, as far as nothing but times is lost.
    """

    cluster_id: String | None = since(12, default=None, tag=0, ignorable=True)
    replica_id: Int32 = since(0, until=14, default=-1)
    replica_state: ReplicaState | None = since(15, tag=1)
    max_wait_ms: Int32 = since(0)
    min_bytes: Int32 = since(0)
    max_bytes: Int32 = since(3, default=0x7FFFFFFF, ignorable=True)
    isolation_level: Int8 = since(4, ignorable=True)
    session_id: Int32 = since(7, ignorable=True)
    session_epoch: Int32 = since(7, default=-1, ignorable=True)
    topics: list[FetchTopic] = since(0)
    forgotten_topics_data: list[ForgottenTopic] = since(7)
    rack_id: String = since(11, ignorable=True)
    with_append_times: Bool = since(12, tag=APPEND_TIMES_TAG, ignorable=True)
    with_replication_state: Bool = since(12, tag=REPLICATION_STATE_TAG, ignorable=True)
    newest_magic: Int8 = since(12, default=2, tag=NEWEST_MAGIC_TAG, ignorable=True)


class EpochEndOffset(Message):
    """Where the follower must truncate its log: the last common epoch and its end."""

    epoch: Int32 = since(12, default=-1)
    end_offset: Int64 = since(12, default=-1)


class LeaderIdAndEpoch(Message):
    """The partition's leader, as far as this broker knows."""

    leader_id: Int32 = since(12, default=-1)
    leader_epoch: Int32 = since(12, default=-1)


class SnapshotId(Message):
    """The snapshot to fetch instead (metadata log only)."""

    end_offset: Int64 = since(0, default=-1)
    epoch: Int32 = since(0, default=-1)


class AbortedTransaction(Message):
    """A transaction that was aborted: its producer and its first offset."""

    producer_id: Int64 = since(4)
    first_offset: Int64 = since(4)


class SegmentAppendTimes(Message):
    """The append times of batches: entries of a segment's `.appendtimes`, as they are in the file.

    An entry has 12 bytes: an append time (int64 ms; Long.MIN: unknown), and the first offset to
    which it applies (int32, relative to `base_offset`). It applies up to the next entry; the last
    entry applies up to the next segment. The append times of offsets before the first entry are not
    known.
    """

    base_offset: Int64 = since(12)
    entries: Bytes = since(12)


class EpochStart(Message):
    """A leader epoch, and the offset at which its batches begin."""

    epoch: Int32 = since(12)
    start_offset: Int64 = since(12)


class AppendTimeCorrection(Message):
    """What append times count as that a wrong clock gave, as in `partition.times`.

    It concerns the batches from `start_offset` on, before `end_offset`, with append times from
    `since_ms` to `until_ms`. They count as `shift_ms` later, but at most as `to_ms`.
    """

    start_offset: Int64 = since(12)
    end_offset: Int64 = since(12)
    since_ms: Int64 = since(12)
    until_ms: Int64 = since(12)
    shift_ms: Int64 = since(12)
    to_ms: Int64 = since(12)


class AdoptedBatches(Message):
    """When batches with unknown append times, before `end_offset`, were adopted by the leader."""

    end_offset: Int64 = since(12)
    time_ms: Int64 = since(12)


class ReplicationState(Message):
    """What a leader knows of its log, for its followers; times in ms.

    `epochs` are those of the returned batches, because formats 0 and 1 have none. The last append
    time is Long.MIN if it is unknown, the largest event time below the high watermark -1 if there
    is none. `compacted_offset` is where the leader's compaction has come to (-1: it never ran).
    `back_offset` is where append times last went back (0: they never did). The mark (epoch and
    number) says which correction is the last: only a newer one lowers what a follower knows. Delete
    horizons from the one time on are too early and count as the other plus delete.retention.ms
    (Long.MIN: there are none). `log_end_offset` is where ends what followers may fetch (-1: not
    said); a follower whose offset is out of range needs it.
    """

    epochs: list[EpochStart] = since(12)
    last_append_time_ms: Int64 = since(12, default=-(2**63))
    max_event_time_ms: Int64 = since(12, default=-1)
    compacted_offset: Int64 = since(12, default=-1)
    back_offset: Int64 = since(12)
    mark_epoch: Int32 = since(12)
    mark_number: Int32 = since(12)
    corrections: list[AppendTimeCorrection] = since(12)
    adopted: list[AdoptedBatches] = since(12)
    late_horizons_from_ms: Int64 = since(12, default=-(2**63))
    late_horizons_to_ms: Int64 = since(12, default=-(2**63))
    log_end_offset: Int64 = since(12, default=-1, tag=0, ignorable=True)


class PartitionData(Message):
    """The records of one partition.

    Append times are of whole batches; they and the replication state are null unless asked for.
    """

    partition_index: Int32 = since(0)
    error_code: Int16 = since(0)
    high_watermark: Int64 = since(0)
    last_stable_offset: Int64 = since(4, default=-1, ignorable=True)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = since(12, tag=0)
    current_leader: LeaderIdAndEpoch | None = since(12, tag=1)
    snapshot_id: SnapshotId | None = since(12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = since(4, ignorable=True)
    preferred_read_replica: Int32 = since(11, default=-1)
    records: RecordParts | None = since(0)
    append_times: list[SegmentAppendTimes] | None = since(
        12, default=None, tag=APPEND_TIMES_TAG, ignorable=True
    )
    replication_state: ReplicationState | None = since(
        12, tag=REPLICATION_STATE_TAG, ignorable=True
    )


class FetchableTopicResponse(Message):
    """The results for one topic."""

    topic: String = since(0, until=12, ignorable=True)
    topic_id: Uuid = since(13, ignorable=True)
    partitions: list[PartitionData] = since(0)


class NodeEndpoint(Message):
    """The address of a leader that the response names."""

    node_id: Int32 = since(16)
    host: String = since(16)
    port: Int32 = since(16)
    rack: String | None = since(16, default=None)


class FetchResponse(Message):
    """The records; the first batch may begin before the requested offset.

    A follower is also sent what the leader's clock shows, in ms (Long.MIN: it is not).
    """

    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = since(7, ignorable=True)
    session_id: Int32 = since(7)
    responses: list[FetchableTopicResponse] = since(0)
    node_endpoints: list[NodeEndpoint] = since(16, tag=0)
    clock_ms: Int64 = since(12, default=NO_CLOCK, tag=CLOCK_TAG, ignorable=True)


API = Api(
    key=1,
    name="Fetch",
    request=FetchRequest,
    response=FetchResponse,
    min_version=0,
    max_version=18,
    first_flexible=12,
    served=(0, 18),
    needs=(
        Need(Operation.READ, ResourceType.TOPIC),
        Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, by_handler=True),
    ),
    request_bytes=4 << 20,
)
