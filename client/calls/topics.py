"""Calls that create, delete and describe topics. Refusals raise RequestError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.client import apis
from tidelog.client.errors import RequestError, raise_for_code
from tidelog.client.flow import AnyBroker, Call, ControllerTarget, Node
from tidelog.protocol.api import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_log_dirs,
    metadata,
)
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WAIT_MS: Final = 30_000  # how long a broker may take to change topics


def describe(names: Sequence[str] | None, *, may_create: bool = False) -> Call[Any]:
    """The Metadata answer for the named topics, or (None) for all; errors of topics stay in it.

    `may_create` lets the broker create a missing topic, if its settings allow that.
    """
    asked = None if names is None else [metadata.MetadataRequestTopic(name=one) for one in names]
    request = metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=may_create)
    return Call(apis.METADATA, request, AnyBroker(), lambda answer: answer)


def create(
    name: str,
    partition_count: int,
    settings: Mapping[str, str],
    *,
    replication_factor: int = -1,
) -> Call[None]:
    """Creates a topic; -1 partitions are the broker's default."""
    topic = _creatable(name, partition_count, settings, replication_factor)
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=WAIT_MS)

    def read(answer: Any) -> None:
        (result,) = answer.topics
        raise_for_code(result.error_code, f"creating topic {name}", result.error_message)

    return Call(apis.CREATE_TOPICS, request, ControllerTarget(), read, wait_s=WAIT_MS / 1000)


def validate(
    name: str, partition_count: int, settings: Mapping[str, str]
) -> Call[dict[str, str | None] | None]:
    """All settings that a topic would have if it were created so; nothing is created (KIP-525).

    None if the broker does not tell: it is older than Apache Kafka 2.4, or the client has no right
    to describe the settings of topics.
    """
    topic = _creatable(name, partition_count, settings, -1)
    request = create_topics.CreateTopicsRequest(
        topics=[topic], timeout_ms=WAIT_MS, validate_only=True
    )

    def read(answer: Any) -> dict[str, str | None] | None:
        (result,) = answer.topics
        raise_for_code(result.error_code, f"creating topic {name}", result.error_message)
        return {one.name: one.value for one in result.configs or ()} or None

    return Call(apis.CREATE_TOPICS, request, ControllerTarget(), read, wait_s=WAIT_MS / 1000)


def _creatable(
    name: str, partition_count: int, settings: Mapping[str, str], replication_factor: int
) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=replication_factor,
        configs=[
            create_topics.CreatableTopicConfig(name=key, value=value)
            for key, value in settings.items()
        ],
    )


def delete(names: Sequence[str]) -> Call[dict[str, RequestError | None]]:
    """Deletes the topics that can be deleted. Returns for each name its error, or None."""
    request = delete_topics.DeleteTopicsRequest(topic_names=list(names), timeout_ms=WAIT_MS)

    def read(answer: Any) -> dict[str, RequestError | None]:
        codes = [one.error_code for one in answer.responses]
        if codes and all(code == ErrorCode.NOT_CONTROLLER for code in codes):
            raise_for_code(codes[0], "deleting topics")
        return {
            one.name: RequestError(one.error_code, f"deleting topic {one.name}", one.error_message)
            if one.error_code
            else None
            for one in answer.responses
        }

    return Call(apis.DELETE_TOPICS, request, ControllerTarget(), read, wait_s=WAIT_MS / 1000)


def add_partitions(name: str, count: int, *, validate_only: bool = False) -> Call[None]:
    """Increases the number of partitions of a topic to `count`, or only asks whether that is possible."""
    request = create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=None)],
        timeout_ms=WAIT_MS,
        validate_only=validate_only,
    )

    def read(answer: Any) -> None:
        (result,) = answer.results
        raise_for_code(result.error_code, f"adding partitions to {name}", result.error_message)

    return Call(apis.CREATE_PARTITIONS, request, ControllerTarget(), read, wait_s=WAIT_MS / 1000)


def log_sizes(name: str, partitions: Sequence[int], node_id: int) -> Call[dict[int, int]]:
    """The bytes of one broker's logs of these partitions, by partition."""
    asked = describe_log_dirs.DescribableLogDirTopic(topic=name, partitions=list(partitions))
    request = describe_log_dirs.DescribeLogDirsRequest(topics=[asked])

    def read(answer: Any) -> dict[int, int]:
        raise_for_code(answer.error_code, f"log directories of broker {node_id}")
        return {
            one.partition_index: one.partition_size
            for directory in answer.results
            for topic in directory.topics
            if topic.name == name
            for one in topic.partitions
            if not one.is_future_key
        }

    return Call(apis.DESCRIBE_LOG_DIRS, request, Node(node_id), read)
