"""What both kinds of fetch, a consumer's and a follower's, need of a request and a response."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api.fetch import PartitionData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog.broker.partitions.services import Services
    from tidelog.protocol.api.fetch import FetchTopic
    from tidelog.protocol.topic_partition import TopicPartition


def wanted_names(
    services: Services, topics: Iterable[FetchTopic], *, by_id: bool
) -> Iterator[TopicPartition]:
    """Yields the requested partitions that may be here."""
    for topic in topics:
        name = services.metadata.image.topic_name(topic.topic_id) if by_id else topic.topic
        if name is None:
            continue
        for wanted in topic.partitions:
            yield name, wanted.partition


def failed(index: int, code: int) -> PartitionData:
    """Returns a partition's part of a response that has nothing but an error."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )
