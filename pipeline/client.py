"""A thin synchronous Kafka client over the protocol's own codecs: what jobs ask of a cluster.

Every method asks, waits, and returns plain values; record sets stay bytes. What passes by itself (a leader
that moved, a broker that restarts, a coordinator that loads) is tried again with growing pauses until
`timeout_s` has gone by; anything else is raised at once. What a broker refuses is `RequestError`, with the
code of `protocol.errors`; a cluster nobody can reach is `ClusterUnreachable`. It works against any broker
from Kafka 0.11 on. One client belongs to one thread and one process: make it where it is used.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipeline import connection as wire
from pipeline.cluster import (
    GROUP,
    REQUEST_TIMEOUT_S,
    TRANSACTION,
    ClientError,
    Cluster,
    ClusterUnreachable,
    PartitionInfo,
    RequestError,
    TopicInfo,
    UnsupportedByBroker,
    address_of,
    refuse,
)
from protocol.api import (
    create_topics,
    describe_configs,
    describe_producers,
    fetch,
    init_producer_id,
    list_offsets,
    offset_commit,
    offset_fetch,
    produce,
)
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.records.layout import Buffer

__all__ = [
    "EARLIEST",
    "LATEST",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "Client",
    "ClientError",
    "ClusterUnreachable",
    "Fetched",
    "FoundOffset",
    "GroupOffset",
    "PartitionInfo",
    "Produced",
    "RequestError",
    "TopicInfo",
    "TopicSetting",
    "UnsupportedByBroker",
    "address_of",
    "produce_request",
    "produced",
    "refuse",
]

LATEST: Final = -1
EARLIEST: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_TOPIC: Final = 2  # a resource of DescribeConfigs
_OWN: Final = 1  # a setting's source: the topic itself


class FoundOffset(NamedTuple):
    """The offset found for a time; both are -1 where there is none."""

    offset: int
    timestamp_ms: int


class Fetched(NamedTuple):
    """What one fetch read: whole batches, the first perhaps beginning before the offset asked for.

    `records` may end in a partial batch. `aborted` are (producer id, first offset) of aborted transactions.
    `append_times` are (base offset, entries of `.appendtimes`) of each segment; none where none were told.
    """

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    append_times: tuple[tuple[int, bytes], ...]


class Produced(NamedTuple):
    """Where records went; `append_time_ms` is -1 unless the topic stamps its records."""

    base_offset: int
    append_time_ms: int
    log_start_offset: int


class GroupOffset(NamedTuple):
    """The offset of the next record a group will read, and what its client noted with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class TopicSetting(NamedTuple):
    """One setting of a topic; `is_own` says that the topic sets it, not the broker."""

    value: str | None
    is_own: bool


class Client(Cluster):
    """What jobs ask of the cluster that `brokers` (`host:port,host:port`) belong to."""

    # --- what the cluster has --------------------------------------------------------------------

    def topic_settings(self, topic: str) -> dict[str, TopicSetting]:
        """Every setting of a topic and its value in force."""
        request = describe_configs.DescribeConfigsRequest(
            resources=[
                describe_configs.DescribeConfigsResource(
                    resource_type=_TOPIC, resource_name=topic, configuration_keys=None
                )
            ]
        )

        def once() -> dict[str, TopicSetting]:
            answer = self.any().ask(request, wire.DESCRIBE_CONFIGS)
            (result,) = answer.results
            refuse(result.error_code, f"settings of topic {topic}", result.error_message)
            return {
                one.name: TopicSetting(one.value, one.config_source == _OWN)
                for one in result.configs
            }

        return self.until_done(once)

    def create_topic(
        self,
        name: str,
        partition_count: int,
        settings: Mapping[str, str] | None = None,
        *,
        replication_factor: int = -1,
    ) -> None:
        """Create a topic and wait until its partitions have leaders.

        Raises RequestError, TOPIC_ALREADY_EXISTS among others.
        """
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partition_count,
            replication_factor=replication_factor,
            configs=[
                create_topics.CreatableTopicConfig(name=key, value=value)
                for key, value in (settings or {}).items()
            ],
        )
        wait_ms = int(REQUEST_TIMEOUT_S * 1000)
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=wait_ms)

        def once() -> None:
            answer = self.controller().ask(request, wire.CREATE_TOPICS, wait_s=REQUEST_TIMEOUT_S)
            (result,) = answer.topics
            refuse(result.error_code, f"creating topic {name}", result.error_message)

        self.until_done(once)
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:  # a broker answers before it has been told itself
            try:
                self.list_offsets(name, dict.fromkeys(range(partition_count), LATEST))
            except RequestError:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    # --- offsets ---------------------------------------------------------------------------------

    def list_offsets(
        self, topic: str, times_ms: Mapping[int, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[int, FoundOffset]:
        """For each partition the first offset at or after a time; `EARLIEST` and `LATEST` are the ends.

        Raises RequestError: UNSUPPORTED_VERSION for a time before 1970 on a broker that cannot.
        """
        ask = partial(self._list_offset, topic, isolation=isolation)
        return {at: self.until_done(partial(ask, at, time_ms)) for at, time_ms in times_ms.items()}

    def end_offset(self, topic: str, partition: int, *, isolation: int = READ_UNCOMMITTED) -> int:
        """The high watermark (or, read_committed, the last stable offset) of a partition."""
        return self.list_offsets(topic, {partition: LATEST}, isolation=isolation)[partition].offset

    def _list_offset(self, topic: str, partition: int, time_ms: int, isolation: int) -> FoundOffset:
        asked = list_offsets.ListOffsetsPartition(partition_index=partition, timestamp=time_ms)
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[asked])],
        )
        answer = self.leader(topic, partition).ask(request, wire.LIST_OFFSETS)
        one = answer.topics[0].partitions[0]
        refuse(one.error_code, f"offsets of {topic}-{partition}")
        return FoundOffset(one.offset, one.timestamp)

    # --- records ---------------------------------------------------------------------------------

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 16 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        isolation: int = READ_UNCOMMITTED,
        with_append_times: bool = False,
    ) -> Fetched:
        """Read whole batches from the one that holds `offset` on; nothing new in time: no records.

        Brokers other than tidelog pass over being asked for append times. Raises RequestError:
        OFFSET_OUT_OF_RANGE where the log does not reach there.
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
            with_append_times=with_append_times,
        )

        def once() -> Fetched:
            answer = self.leader(topic, partition).ask(
                request, wire.FETCH, wait_s=max_wait_ms / 1000
            )
            refuse(answer.error_code, f"reading {topic}-{partition}")
            if not answer.responses:  # a quota is used up
                refuse(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"reading {topic}-{partition}")
            one = answer.responses[0].partitions[0]
            refuse(one.error_code, f"reading {topic}-{partition} at offset {offset}")
            return Fetched(
                memoryview(one.records or b""),
                one.high_watermark,
                one.last_stable_offset,
                one.log_start_offset,
                tuple(
                    (each.producer_id, each.first_offset) for each in one.aborted_transactions or ()
                ),
                tuple((each.base_offset, each.entries) for each in one.append_times or ()),
            )

        return self.until_done(once)

    def produce(self, topic: str, partition: int, batches: Buffer, *, acks: int = -1) -> Produced:
        """Append ready batches and wait, once: an append that may have happened is not tried again.

        `pipeline.producing` appends exactly once. Raises RequestError or ClusterUnreachable.
        """
        request = produce_request(topic, partition, batches, acks=acks)
        leader = self.until_done(lambda: self.leader(topic, partition))
        try:
            answer = leader.ask(request, wire.PRODUCE, wait_s=REQUEST_TIMEOUT_S)
        except ConnectionError as error:
            self.close()
            raise ClusterUnreachable(str(error)) from error
        return produced(answer, f"{topic}-{partition}")

    def init_producer_id(
        self, transactional_id: str | None = None, *, transaction_timeout_ms: int = 60_000
    ) -> tuple[int, int]:
        """A producer id and its epoch. A transactional id keeps its id, and the epoch before is fenced."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
        )

        def once() -> tuple[int, int]:
            asked = (
                self.any()
                if transactional_id is None
                else self.coordinator(transactional_id, TRANSACTION)
            )
            answer = asked.ask(request, wire.INIT_PRODUCER_ID)
            refuse(answer.error_code, f"producer id for {transactional_id or 'idempotence'}")
            return answer.producer_id, answer.producer_epoch

        return self.until_done(once)

    def last_sequence(self, topic: str, partition: int, producer_id: int) -> int | None:
        """The last sequence a partition has of a producer; None where it remembers none.

        Raises UnsupportedByBroker where the broker does not serve DescribeProducers.
        """
        asked = describe_producers.TopicRequest(name=topic, partition_indexes=[partition])
        request = describe_producers.DescribeProducersRequest(topics=[asked])

        def once() -> int | None:
            answer = self.leader(topic, partition).ask(request, wire.DESCRIBE_PRODUCERS)
            one = answer.topics[0].partitions[0]
            refuse(one.error_code, f"producers of {topic}-{partition}", one.error_message)
            for producer in one.active_producers:
                if producer.producer_id == producer_id and producer.last_sequence >= 0:
                    return int(producer.last_sequence)
            return None

        return self.until_done(once)

    # --- groups ----------------------------------------------------------------------------------

    def offset_fetch(self, group: str) -> dict[tuple[str, int], GroupOffset]:
        """Every offset a group has committed, by topic and partition; none: an empty dict."""
        request = offset_fetch.OffsetFetchRequest(group_id=group, topics=None)

        def once() -> dict[tuple[str, int], GroupOffset]:
            answer = self.coordinator(group, GROUP).ask(request, wire.OFFSET_FETCH)
            refuse(answer.error_code, f"offsets of group {group}")
            found = {}
            for topic in answer.topics:
                for one in topic.partitions:
                    refuse(one.error_code, f"offset of group {group}")
                    found[topic.name, one.partition_index] = GroupOffset(
                        one.committed_offset, one.metadata or "", one.committed_leader_epoch
                    )
            return found

        return self.until_done(once)

    def offset_commit(self, group: str, offsets: Mapping[tuple[str, int], GroupOffset]) -> None:
        """Commit offsets from outside the group, which must have no members.

        Raises RequestError: UNKNOWN_MEMBER_ID while the group has members.
        """
        by_topic: dict[str, list[offset_commit.OffsetCommitRequestPartition]] = {}
        for (topic, partition), one in sorted(offsets.items()):
            by_topic.setdefault(topic, []).append(
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=one.offset,
                    committed_metadata=one.metadata,
                )
            )
        request = offset_commit.OffsetCommitRequest(
            group_id=group,
            topics=[
                offset_commit.OffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in by_topic.items()
            ],
        )

        def once() -> None:
            answer = self.coordinator(group, GROUP).ask(request, wire.OFFSET_COMMIT)
            for topic in answer.topics:
                for one in topic.partitions:
                    where = f"{topic.name}-{one.partition_index}"
                    refuse(one.error_code, f"committing {where} for group {group}")

        self.until_done(once)


def produce_request(
    topic: str,
    partition: int,
    batches: Buffer,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
) -> produce.ProduceRequest:
    """A request that appends ready batches to one partition."""
    return produce.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
        topic_data=[
            produce.TopicProduceData(
                name=topic,
                partition_data=[produce.PartitionProduceData(index=partition, records=batches)],
            )
        ],
    )


def produced(answer: Any, where: str) -> Produced:
    """What a broker says of one partition's append. Raises RequestError."""
    one = answer.responses[0].partition_responses[0]
    if one.error_code:
        reasons = [each.batch_index_error_message for each in one.record_errors or ()]
        said = "; ".join(filter(None, [one.error_message, *reasons[:3]]))
        raise RequestError(one.error_code, f"writing to {where}", said or None)
    return Produced(one.base_offset, one.log_append_time_ms, one.log_start_offset)
