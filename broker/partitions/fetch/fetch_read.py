"""One read of all that a fetch asks for, each partition once, within the fetch's limits.

The limits are those of the request, of each partition, of the quota of its client, and of the answers that
slow readers leave in memory. From version 3 on, the first partition that has data returns at least one
whole batch, whatever the limits. Before, the limit is strict, and a first message too large for it is
truncated, so that an old client raises its own error instead of asking for ever.

Batches that the version can carry are returned as they are stored, without a copy; others are
converted (`broker/partitions/conversion.py`). A consumer of committed data reads up to the last stable
offset and gets the aborted transactions among what it reads (`broker/partitions/fetch/committed.py`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from tidelog.broker.network.per_partition import FEW, code_for, few_partitions, per_partition
from tidelog.broker.partitions.conversion import (
    AS_STORED_SINCE,
    NO_RECORDS,
    Reading,
    Records,
    carried_by,
    read_as_stored,
    read_for_version,
)
from tidelog.broker.partitions.fetch.committed import read_committed
from tidelog.broker.partitions.fetch.parts import failed
from tidelog.broker.partitions.leader_hints import leader_hint
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SegmentAppendTimes,
)
from tidelog.protocol.errors import (
    ErrorCode,
    InconsistentTopicId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.network.context import Context
    from tidelog.broker.partitions.leader_hints import Addresses
    from tidelog.broker.partitions.services import ConsumerReads, Services
    from tidelog.broker.pools import Permit
    from tidelog.protocol.api.fetch import (
        AbortedTransaction,
        FetchPartition,
        FetchRequest,
        FetchTopic,
    )
    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.log.partition import Partition

TOPIC_IDS_SINCE = 13
_READ_COMMITTED = 1
_READ, _TOPIC = Operation.READ, ResourceType.TOPIC  # looked up once: it costs a call
_RACKS_SINCE = 11
_LEADERS_SINCE = 16
_OTHER_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_SOFT_LIMIT_SINCE = 3
WAITING_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors of partitions that are not read, as in Kafka: the fetch waits for the others."""

# Places in a log's `Ends`: up to one of them a request reads.
_HIGH_WATERMARK, _LAST_STABLE_OFFSET = 1, 2


class FetchRead:
    """What was read, and whether it is enough."""

    __slots__ = (
        "_context",
        "_ends_early",
        "_is_part",
        "_is_sent_on",
        "_leaders",
        "_left_bytes",
        "_name",
        "_permit",
        "_reads",
        "_request",
        "_served",
        "_services",
        "_topic",
        "_topics",
        "_version",
        "at_end",
        "errors",
        "image",
        "partitions",
        "response",
        "size_bytes",
        "upper_offsets",
    )

    def __init__(
        self,
        services: Services,
        request: FetchRequest,
        context: Context,
        permit: Permit,
        topics: Sequence[FetchTopic],
        *,
        is_part: bool = False,
    ) -> None:
        """`is_part`: the fetch asks for others than `topics`, too, in which there is nothing new."""
        self._services, self._request, self._context, self._permit = (
            services,
            request,
            context,
            permit,
        )
        self._topics = topics
        self._is_part = is_part
        self.image = services.metadata.image  # read before any partition is
        self._version = version = context.header.api_version
        is_committed = request.isolation_level == _READ_COMMITTED
        self.at_end = _LAST_STABLE_OFFSET if is_committed else _HIGH_WATERMARK
        left_bytes = services.connections.fetch_room(in_thread=permit.may_block)
        if version >= _SOFT_LIMIT_SINCE and request.max_bytes < left_bytes:
            left_bytes = request.max_bytes
        if context.quota is not None:
            left_bytes = context.quota.most_fetch_bytes(left_bytes)
        self._left_bytes = left_bytes
        self._reads: ConsumerReads | None = None  # of a consumer that may read from followers
        if version >= _RACKS_SINCE:
            self._reads = services.replicas.reads_of(request.rack_id, context.session.listener)
        self._ends_early = False  # what was read, so that waiting brings no more
        self._is_sent_on = False  # to a replica from which it should read instead
        # Topic, bytes, down-converted records, and whether the bytes are those that are stored.
        self._served: list[tuple[str, int, int, bool]] = []
        self.errors: list[ErrorCode] = []
        self._leaders: Addresses = {}
        self.partitions: list[Partition] = []
        self.upper_offsets: list[int] = []  # the offsets up to which the partitions were read
        self.size_bytes = 0
        self.response = FetchResponse()

    def read_few(self) -> None:
        """Reads at once.

        Raises WouldBlock on the loop alone, and Abandoned in a thread alone.
        """
        serve, failed = self._serve, self._failed
        for topic in self._topics:
            wanted = self._begin(topic)
            self._add(topic, few_partitions(self._services, "fetch", wanted, serve, failed))

    async def read(self) -> None:
        """Reads any number of partitions; raises what `read_few` raises."""
        serve, failed = self._serve, self._failed
        for topic in self._topics:
            wanted = self._begin(topic)
            self._add(topic, await per_partition(self._services, "fetch", wanted, serve, failed))

    def _begin(self, topic: FetchTopic) -> Sequence[FetchPartition]:
        self._topic, self._name = topic, ""  # the name once the request may read the topic
        return topic.partitions

    def _add(self, topic: FetchTopic, partitions: list[PartitionData]) -> None:
        self.response.responses.append(
            FetchableTopicResponse(
                topic=topic.topic, topic_id=topic.topic_id, partitions=partitions
            )
        )

    def is_enough(self) -> bool:
        """Returns whether the response can be sent now, whatever its errors are."""
        return (
            self.size_bytes >= self._request.min_bytes
            or self._request.max_wait_ms <= 0
            or self._is_sent_on
            or self._ends_early
            or not (self.partitions or self._is_part)
        )

    def has_urgent_error(self) -> bool:
        """Returns whether a partition has an error that is answered at once."""
        return not WAITING_ERRORS.issuperset(self.errors)

    def has_grown(self) -> bool:
        """Returns whether there is more to read than there was."""
        at = self.at_end
        return any(
            partition.state.ends[at] != upper_offset
            for partition, upper_offset in zip(self.partitions, self.upper_offsets, strict=True)
        )

    def answer(self) -> FetchResponse:
        """Returns the response, and counts what it serves."""
        metrics = self._services.metrics
        newest_magic = carried_by(self._version)
        for topic, size_bytes, converted, as_stored in self._served:
            metrics.consumed(topic, size_bytes, newest_magic, as_stored=as_stored)
            if converted:
                metrics.down_converted(topic, converted)
        for code in self.errors:
            metrics.fetch_failed(code)
        if self._leaders:
            self.response.node_endpoints = [
                NodeEndpoint(node_id=each.broker, host=each.host, port=each.port, rack=each.rack)
                for each in self._leaders.values()
            ]
        return self.response

    def _authorized_name(self) -> str:
        """Returns the name of the topic being read. Raises UnknownTopicId and the like."""
        services, topic = self._services, self._topic
        if self._version < TOPIC_IDS_SINCE:
            name = topic.topic
        else:
            try:
                name = services.metadata.topic_name(topic.topic_id)
            except UnknownTopicId:
                self._check_former(topic)
                raise
        services.authorizer.require(self._context.connection.session, _READ, _TOPIC, name)
        self._name = name
        return name

    def _check_former(self, topic: FetchTopic) -> None:
        """Raises what concerns a topic that a session knows by a name, and whose id is gone.

        The topic was deleted, and another one may have its name: UnknownTopicOrPartition,
        InconsistentTopicId.
        """
        if not topic.topic:  # nobody has known it here
            return
        if topic.topic in self._services.metadata.image.topics:
            raise InconsistentTopicId(f"{topic.topic} was created again")
        raise UnknownTopicOrPartition(f"{topic.topic} was deleted")

    def _serve(self, wanted: FetchPartition) -> PartitionData:
        """Reads one partition."""
        permit = self._permit
        if permit.may_block:  # a permit of the loop is never withdrawn
            permit.check()
        reads = self._reads
        find = self._services.partitions.leader if reads is None else reads.partition
        partition = find(
            self._name or self._authorized_name(),
            wanted.partition,
            wanted.current_leader_epoch,
            permit.may_block,
        )
        state = partition.state
        is_committed = self.at_end == _LAST_STABLE_OFFSET
        if is_committed and state.producers is None:
            partition.reader.learn(may_block=permit.may_block)
        ends = state.ends
        upper_offset = ends[self.at_end]
        self.partitions.append(partition)
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
            self._ends_early |= found.ends_early
            ends = state.ends
        result = PartitionData(
            partition_index=wanted.partition,
            high_watermark=ends[_HIGH_WATERMARK],
            last_stable_offset=ends[_LAST_STABLE_OFFSET],
            log_start_offset=state.version.log_start_offset,
            aborted_transactions=aborted,
            preferred_read_replica=preferred,
            # Of what is streamed the encoder needs the length alone.
            records=cast("list[Buffer]", list(found.buffers)),
        )
        if found.append_times:
            result.append_times = found.append_times
        return result

    def _read(self, partition: Partition, wanted: FetchPartition, upper_offset: int) -> Records:
        """Reads one partition's records in the format of the request's version."""
        offset, limit = wanted.fetch_offset, min(wanted.partition_max_bytes, self._left_bytes)
        is_first, permit = not self.size_bytes, self._permit
        if self._version < AS_STORED_SINCE:
            return read_for_version(
                Reading(
                    partition,
                    offset,
                    limit,
                    wanted.partition_max_bytes,
                    upper_offset,
                    self._version,
                    is_first,
                    permit,
                )
            )
        if not self._request.with_append_times:
            return read_as_stored(
                partition,
                offset,
                limit,
                upper_offset,
                is_first=is_first,
                may_block=permit.may_block,
            )
        (buffers, size, first_batch_size), times = partition.reader.read_with_append_times(
            offset,
            limit,
            upper_offset=upper_offset,
            minimum_one=is_first,
            may_block=permit.may_block,
        )
        if size < first_batch_size:  # a batch is returned whole or not at all
            return NO_RECORDS
        append_times = [SegmentAppendTimes(base_offset=b, entries=e) for b, e in times]
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
        services, code = self._services, error.code
        self.errors.append(code)
        result = failed(wanted.partition, code_for(code, self._version <= 5))
        if self._version >= _LEADERS_SINCE and code in _OTHER_LEADER:
            topic = services.metadata.image.topics.get(self._name)
            hint = leader_hint(services, self._context, topic, wanted.partition, self._leaders)
            if hint is not None:
                result.current_leader = LeaderIdAndEpoch(
                    leader_id=hint.leader, leader_epoch=hint.leader_epoch
                )
        return result


def are_few(topics: Sequence[FetchTopic]) -> bool:
    """Returns whether so few partitions are named that others need no turn in between."""
    if len(topics) == 1:
        return len(topics[0].partitions) <= FEW
    return sum(len(topic.partitions) for topic in topics) <= FEW


def is_replica(request: FetchRequest) -> bool:
    """Returns whether a broker asks, for a replica of its own."""
    state = request.replica_state
    return request.replica_id >= 0 or (state is not None and state.replica_id >= 0)
