"""Fetch (key 1): read records, and wait for them if there are too few.

Behaviour: the response is sent at once if min_bytes are available, if max_wait_ms is 0, or if any
partition has an error; else the request waits. From version 3 on, the first partition that has data
returns at least one whole batch, whatever the limits. Before, the limit is strict, and a first
message too large for it is truncated, so that an old client raises its own error instead of asking
for ever.

Batches that the version can carry are returned as they are stored, without a copy; others are
converted (`broker/partitions/conversion.py`).

As in Kafka, a partition that is named more than once is read and returned once: with the parameters
of its last mention, at the position of its first.

A consumer of committed data reads up to the last stable offset and gets the aborted transactions
among what it reads (`broker/partitions/committed.py`), from version 4 on. Fetch sessions (KIP-227)
are answered statelessly: session id 0, every partition in every response. Only those of other brokers
are kept (`broker/replicas/serving/fetch_sessions.py`).

From version 12 on, a client that asks for append times, by a tag that is our extension, gets the
append time of each whole batch (decision 13). Their bytes do not count towards the limits: twelve
bytes for each different append time. A follower that asks by another tag gets what its leader knows
of the log (decision 31), and records above the high watermark, as far as the leader has stored
them. It needs the right to act for the cluster; one without it is answered as a consumer.

Version notes: 1 throttle time; 3 max_bytes; 4 isolation level, last stable offset; 5 log start
offset; 7 sessions; 9 leader epoch; 11 rack and preferred replica, and followers serve consumers
(`broker/replicas/consumers.py`); 12 flexible, diverging epoch; 13 topic ids; 15 replica id moves to a
tag; 16 the leader and its address where the client knows another one (KIP-951).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from broker.network.per_partition import per_partition
from broker.partitions.committed import read_committed
from broker.partitions.conversion import (
    AS_STORED_SINCE,
    NO_RECORDS,
    Reading,
    Records,
    carried_by,
    read_for_version,
)
from broker.partitions.fetch_parts import failed, wanted_names
from broker.partitions.leader_hints import leader_hint
from broker.partitions.named_once import name_each_once
from broker.partitions.offload import offload
from broker.pools import ON_LOOP
from protocol.acl import Operation, ResourceType
from protocol.api.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SegmentAppendTimes,
)
from protocol.errors import (
    ErrorCode,
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    UnknownTopicId,
)
from storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from broker.network.context import Context, Later
    from broker.node import Node
    from broker.partitions.leader_hints import Addresses
    from broker.pools import Permit
    from broker.replicas.consumers import ConsumerReads
    from protocol.api.fetch import AbortedTransaction, FetchPartition, FetchRequest
    from protocol.errors import BrokerError
    from storage.log.partition import Partition


_READ_COMMITTED = 1
_READ, _TOPIC = Operation.READ, ResourceType.TOPIC  # looked up once: it costs a call
_TOPIC_IDS_SINCE = 13
_RACKS_SINCE = 11
_LEADERS_SINCE = 16
_OTHER_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_SOFT_LIMIT_SINCE = 3

# Places in a log's `Ends`: up to one of them a request reads.
_HIGH_WATERMARK, _LAST_STABLE_OFFSET = 1, 2


def handle(
    node: Node, request: FetchRequest, context: Context
) -> FetchResponse | Coroutine[Any, Any, FetchResponse] | Later:
    """Reads what is available; waits if it is too little."""
    if node.replicas is not None and request.replica_state and _is_replica(request):
        answer = node.replicas.fetch(request, context)
        if answer is not None:
            return answer
    if request.session_id != 0:
        raise FetchSessionIdNotFound("fetch sessions are answered statelessly")
    if request.session_epoch > 0:
        raise InvalidFetchSessionEpoch("fetch sessions are answered statelessly")
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        name_each_once(request, by_id=context.version >= _TOPIC_IDS_SINCE)
    try:
        attempt = _Attempt(node, request, context, ON_LOOP)
    except WouldBlock:
        return _wait(node, request, context, None)
    if attempt.is_enough():
        return attempt.answer()
    return _wait(node, request, context, attempt)


async def _wait(
    node: Node, request: FetchRequest, context: Context, attempt: _Attempt | None
) -> FetchResponse:
    """Waits for more data, then reads again.

    The last attempt is the response, whatever it finds.
    """
    deadline_s = node.clock.monotonic_s() + request.max_wait_ms / 1000
    if attempt is None:
        attempt = await _attempt_anywhere(node, request, context)
    while not attempt.is_enough():
        if attempt.has_grown():  # since the read, before the request waited
            attempt = await _attempt_anywhere(node, request, context)
            continue
        left_s = deadline_s - node.clock.monotonic_s()
        woken = left_s > 0 and await node.waiting.wait(
            attempt.partitions,
            request.min_bytes - attempt.size_bytes,
            left_s,
            attempt.upper_offsets if request.isolation_level == _READ_COMMITTED else None,
        )
        attempt = await _attempt_anywhere(node, request, context)
        if not woken:
            break
    return attempt.answer()


async def _attempt_anywhere(node: Node, request: FetchRequest, context: Context) -> _Attempt:
    """Reads on the loop; in a thread if much is to be converted or the disk has to be read."""
    attempt = partial(_Attempt, node, request, context)
    names = wanted_names(node, request, by_id=context.version >= _TOPIC_IDS_SINCE)
    return await offload(node, names, attempt)


class _Attempt:
    """One attempt to read everything that a request asks for, each partition once."""

    __slots__ = (
        "_at_end",
        "_context",
        "_errors",
        "_is_follower",
        "_is_sent_on",
        "_leaders",
        "_left_bytes",
        "_name",
        "_node",
        "_permit",
        "_reads",
        "_request",
        "_response",
        "_served",
        "_topic",
        "_version",
        "partitions",
        "size_bytes",
        "upper_offsets",
    )

    def __init__(self, node: Node, request: FetchRequest, context: Context, permit: Permit) -> None:
        """Reads within the request's limits.

        Raises WouldBlock on the loop alone, and Abandoned in a thread alone.
        """
        self._node, self._request, self._context, self._permit = node, request, context, permit
        self._version = version = context.header.api_version
        is_committed = request.isolation_level == _READ_COMMITTED
        self._at_end = _LAST_STABLE_OFFSET if is_committed else _HIGH_WATERMARK
        left_bytes = node.connections.fetch_room()
        if version >= _SOFT_LIMIT_SINCE and request.max_bytes < left_bytes:
            left_bytes = request.max_bytes
        self._left_bytes = left_bytes
        self._is_follower = request.with_replication_state and self._may_replicate()
        self._reads: ConsumerReads | None = None  # of a consumer that may read from followers
        if node.replicas is not None and version >= _RACKS_SINCE and not _is_replica(request):
            listener = context.connection.listener.name
            self._reads = node.replicas.reads_of(request.rack_id, listener)
        self._is_sent_on = False  # to a replica from which it should read instead
        # Topic, bytes, down-converted records, and whether the bytes are those that are stored.
        self._served: list[tuple[str, int, int, bool]] = []
        self._errors: list[ErrorCode] = []
        self._leaders: Addresses = {}
        self.partitions: list[Partition] = []
        self.upper_offsets: list[int] = []  # the offsets up to which the partitions were read
        self.size_bytes = 0
        responses = []
        for topic in request.topics:
            self._topic, self._name = topic, ""  # the name once the request may read the topic
            partitions = per_partition(node, "fetch", topic.partitions, self._serve, self._failed)
            responses.append(
                FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
                )
            )
        self._response = FetchResponse(responses=responses)

    def is_enough(self) -> bool:
        """Returns whether the response can be sent now; at once if a partition has an error."""
        return (
            self.size_bytes >= self._request.min_bytes
            or self._request.max_wait_ms <= 0
            or bool(self._errors)
            or self._is_sent_on
            or not self.partitions
        )

    def has_grown(self) -> bool:
        """Returns whether there is more to read than there was."""
        at, is_follower = self._at_end, self._is_follower
        return any(
            (partition.stored_offset if is_follower else partition.state.ends[at]) != upper_offset
            for partition, upper_offset in zip(self.partitions, self.upper_offsets, strict=True)
        )

    def answer(self) -> FetchResponse:
        """Returns the response, and counts what it serves."""
        metrics = self._node.metrics
        newest_magic = carried_by(self._version)
        for topic, size_bytes, converted, as_stored in self._served:
            if self._is_follower:
                metrics.bytes_out(topic, size_bytes)
            else:
                metrics.consumed(topic, size_bytes, newest_magic, as_stored=as_stored)
            if converted:
                metrics.down_converted(topic, converted)
        for code in self._errors:
            metrics.fetch_failed(code)
        if self._leaders:
            self._response.node_endpoints = [
                NodeEndpoint(node_id=each.broker, host=each.host, port=each.port, rack=each.rack)
                for each in self._leaders.values()
            ]
        return self._response

    def _authorized_name(self) -> str:
        """Returns the name of the topic being read. Raises TopicAuthorizationFailed."""
        node, topic = self._node, self._topic
        name = topic.topic if self._version < _TOPIC_IDS_SINCE else node.topic_name(topic.topic_id)
        if not self._may_replicate():
            node.authorizer.require(self._context.connection.session, _READ, _TOPIC, name)
        self._name = name
        return name

    def _may_replicate(self) -> bool:
        """Returns whether a broker asks, for a replica of its own, and may do so."""
        return _is_replica(self._request) and self._node.authorizer.allows_on_cluster(
            self._context.connection.session, Operation.CLUSTER_ACTION
        )

    def _serve(self, wanted: FetchPartition) -> PartitionData:
        """Reads one partition."""
        permit = self._permit
        if permit.may_block:  # a permit of the loop is never withdrawn
            permit.check()
        reads = self._reads
        find = self._node.leader_partition if reads is None else reads.partition
        partition = find(
            self._name or self._authorized_name(),
            wanted.partition,
            wanted.current_leader_epoch,
            permit.may_block,
        )
        self.partitions.append(partition)
        if self._is_follower:
            return self._serve_follower(partition, wanted)
        state = partition.state
        is_committed = self._at_end == _LAST_STABLE_OFFSET
        if is_committed and state.producers is None:
            partition.reader.learn(may_block=permit.may_block)
        ends = state.ends
        upper_offset = ends[self._at_end]
        self.upper_offsets.append(upper_offset)
        found = NO_RECORDS
        aborted: list[AbortedTransaction] | None = [] if is_committed else None
        preferred = -1 if reads is None else reads.preferred(partition, wanted.fetch_offset)
        if preferred >= 0:
            self._is_sent_on = True
        elif wanted.fetch_offset != upper_offset:  # the consumer has not caught up
            read = partial(self._read, partition, wanted, upper_offset)
            if is_committed:
                bounds = wanted.fetch_offset, upper_offset
                found, aborted = read_committed(partition, bounds, read, permit.may_block)
            else:
                found = read()
            self._count(partition, found)
            ends = state.ends
        result = PartitionData(
            partition_index=wanted.partition,
            high_watermark=ends[_HIGH_WATERMARK],
            last_stable_offset=ends[_LAST_STABLE_OFFSET],
            log_start_offset=state.version.log_start_offset,
            aborted_transactions=aborted,
            preferred_read_replica=preferred,
            records=list(found.buffers),
        )
        if found.append_times:
            result.append_times = found.append_times
        return result

    def _serve_follower(self, partition: Partition, wanted: FetchPartition) -> PartitionData:
        """Reads one partition for a follower, with what its leader knows of the log."""
        from broker.partitions import replication_state  # a broker that is alone has no followers

        self.upper_offsets.append(partition.stored_offset)
        result, size, converted = replication_state.read_for_follower(
            partition,
            wanted,
            min(wanted.partition_max_bytes, self._left_bytes),
            minimum_one=not self.size_bytes,
            may_block=self._permit.may_block,
            newest_magic=self._request.newest_magic,
            check=self._permit.check,
        )
        if not self._request.with_append_times:
            result.append_times = None
        self._count(partition, Records((), size, converted, not converted))
        return result

    def _read(self, partition: Partition, wanted: FetchPartition, upper_offset: int) -> Records:
        """Reads one partition's records in the format of the request's version."""
        offset, limit = wanted.fetch_offset, min(wanted.partition_max_bytes, self._left_bytes)
        is_first, permit = not self.size_bytes, self._permit
        if self._version < AS_STORED_SINCE:
            return read_for_version(
                Reading(partition, offset, limit, upper_offset, self._version, is_first, permit)
            )
        append_times = None
        if self._request.with_append_times:
            (buffers, size, first_batch_size), times = partition.reader.read_with_append_times(
                offset,
                limit,
                upper_offset=upper_offset,
                minimum_one=is_first,
                may_block=permit.may_block,
            )
            append_times = [SegmentAppendTimes(base_offset=b, entries=e) for b, e in times]
        else:
            buffers, size, first_batch_size = partition.read(
                offset,
                limit,
                upper_offset=upper_offset,
                minimum_one=is_first,
                may_block=permit.may_block,
            )
        if size < first_batch_size:  # a batch is returned whole or not at all
            return NO_RECORDS
        return Records(buffers, size, 0, True, append_times)

    def _count(self, partition: Partition, found: Records) -> None:
        """Counts what was read."""
        size = found.size
        if size:
            self._served.append((partition.topic, size, found.converted, found.is_as_stored))
            self.size_bytes += size
            self._left_bytes = max(0, self._left_bytes - size)

    def _failed(self, wanted: FetchPartition, error: BrokerError) -> PartitionData:
        """Returns a partition's error, with the leader for a client that knows another one."""
        node, code = self._node, error.code
        self._errors.append(code)
        result = failed(wanted.partition, node.code_for(code, self._version <= 5))
        if self._version >= _LEADERS_SINCE and code in _OTHER_LEADER:
            topic = node.metadata.image.topics.get(self._name)
            hint = leader_hint(node, self._context, topic, wanted.partition, self._leaders)
            if hint is not None:
                result.current_leader = LeaderIdAndEpoch(
                    leader_id=hint.leader, leader_epoch=hint.leader_epoch
                )
        return result


def _is_replica(request: FetchRequest) -> bool:
    """Returns whether a broker asks, for a replica of its own."""
    state = request.replica_state
    return request.replica_id >= 0 or (state is not None and state.replica_id >= 0)


def refuse(request: FetchRequest, error: BrokerError) -> FetchResponse:
    """Returns the error at the top from version 7 on; before, for every partition."""
    return FetchResponse(
        error_code=error.code,
        responses=[]
        if isinstance(error, FetchSessionIdNotFound | InvalidFetchSessionEpoch | UnknownTopicId)
        else [
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[failed(wanted.partition, error.code) for wanted in topic.partitions],
            )
            for topic in request.topics
        ],
    )
