"""The parts of a Produce response: one part for each partition.

A part that fails has its error code, a sentence, the records that were refused (KIP-467), and from version
10 on the leader and its address if this broker does not lead (KIP-951).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.network.answers import NO_RESPONSE, CloseConnection
from tidelog.broker.network.per_partition import code_for
from tidelog.broker.partitions.leader_hints import leader_hint
from tidelog.protocol.api.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.protocol.error_codes import ERRORS
from tidelog.protocol.errors import ErrorCode, InvalidTimestamp
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    import asyncio

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.answers import Encoded
    from tidelog.broker.network.context import Context
    from tidelog.broker.partitions.leader_hints import Addresses
    from tidelog.protocol.api.produce import ProduceRequest
    from tidelog.protocol.errors import BrokerError
    from tidelog.storage.log.partition import Appended, Partition

    Answer = ProduceResponse | Encoded

TOPIC_IDS_SINCE = 13
_LEADERS_SINCE = 10

# Errors for which Kafka's response has no log start offset.
_WITHOUT_START_OFFSET = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class Part:
    """One partition's part of a request, and of its response."""

    __slots__ = ("data", "partition", "pending", "result", "topic")

    def __init__(self, topic: TopicProduceData, data: PartitionProduceData) -> None:
        self.topic = topic
        self.data = data
        self.result = PartitionProduceResponse(
            index=data.index, base_offset=-1, log_append_time_ms=NO_TIMESTAMP, log_start_offset=-1
        )
        self.partition: Partition | None = None  # set once the request may append to it
        # Set if the append runs in a thread, or waits for the disk.
        self.pending: asyncio.Future[Appended] | None = None

    def done(self, appended: Appended) -> PartitionProduceResponse:
        """Fills in the result of the append."""
        self.result.base_offset = appended.base_offset
        self.result.log_append_time_ms = appended.log_append_time_ms
        self.result.log_start_offset = appended.log_start_offset
        return self.result


def answered(request: ProduceRequest, response: ProduceResponse, leaders: Addresses) -> Answer:
    """Returns the response; with acks=0 there is none, and an error closes the connection."""
    if request.acks != 0:
        if leaders:
            add_leader_addresses(response, leaders)
        return response
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                raise CloseConnection(
                    f"acks=0 and {ERRORS[result.error_code].name}: {result.error_message}"
                )
    return NO_RESPONSE


def add_leader_addresses(response: ProduceResponse, leaders: Addresses) -> None:
    """Adds the addresses of the leaders that a response names (KIP-951)."""
    response.node_endpoints = [
        NodeEndpoint(node_id=each.broker, host=each.host, port=each.port, rack=each.rack)
        for each in leaders.values()
    ]


def failed_in_transaction(
    services: Services,
    context: Context,
    leaders: Addresses,
    transactional_id: str,
    wanted: Part,
    error: BrokerError,
) -> PartitionProduceResponse:
    """Fills in an error as `failed_part` does, and logs the refused producer."""
    services.transactions.refusals.note(context, transactional_id, error)
    return failed_part(services, context, leaders, wanted, error)


def failed_part(
    services: Services, context: Context, leaders: Addresses, wanted: Part, error: BrokerError
) -> PartitionProduceResponse:
    """Fills in one partition's error code, sentence, refused records and leader.

    The leader's address is added to `leaders`.
    """
    result, partition, version = wanted.result, wanted.partition, context.version
    if version >= _LEADERS_SINCE and error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        topics = services.metadata.image
        known = (
            topics.topics_by_id.get(wanted.topic.topic_id)
            if version >= TOPIC_IDS_SINCE
            else topics.topics.get(wanted.topic.name)
        )
        hint = leader_hint(services, context, known, result.index, leaders)
        if hint is not None:
            result.current_leader = LeaderIdAndEpoch(
                leader_id=hint.leader, leader_epoch=hint.leader_epoch
            )
    services.metrics.produce_failed(error.code)
    if partition is not None:
        if isinstance(error, InvalidTimestamp):
            services.time_watch.refused(partition, error)
        if error.code not in _WITHOUT_START_OFFSET:
            result.log_start_offset = partition.log_start_offset
    result.error_code = code_for(error.code, version <= 3)
    result.error_message = error.message
    result.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in error.record_errors
    ]
    return result


def failed_alone(
    services: Services, context: Context, topic: str, partition: Partition, error: BrokerError
) -> ProduceResponse:
    """Returns the response with an error for a request with one partition, whose append has failed."""
    wanted = Part(TopicProduceData(name=topic), PartitionProduceData(index=partition.index))
    wanted.partition = partition
    leaders: Addresses = {}
    result = failed_part(services, context, leaders, wanted, error)
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=topic, partition_responses=[result])]
    )
    if leaders:
        add_leader_addresses(response, leaders)
    return response
