"""What a topic's settings mean for its replicas, and what is read of the store beside the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.metadata.records import partition_key, read
from tidelog.broker.replication.messages import Assignment

if TYPE_CHECKING:
    from uuid import UUID

    from tests.simulation.replication.cluster.log import Log
    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.metadata.memory import MemoryState


class Settings(NamedTuple):
    """The settings of a topic that its replicas obey."""

    min_insync: int
    is_stamped: bool
    format: int
    needs_flush: bool
    allows_unclean: bool
    retention_ms: int
    retention_event_ms: int
    is_compacted: bool = False


def settings_of(topic: Topic) -> Settings:
    """Returns the settings of a topic in an image."""
    configs = topic.configs
    return Settings(
        int(configs.get("min.insync.replicas", "1")),
        configs.get("message.timestamp.type") == "LogAppendTime",
        int(configs.get("simulated.format", "2")),
        configs.get("flush.messages") == "1",
        configs.get("unclean.leader.election.enable") == "true",
        int(configs.get("retention.ms", "-1")),
        int(configs.get("simulated.retention.event.ms", "-1")),
        configs.get("cleanup.policy") == "compact",
    )


def due(log: Log, settings: Settings, trusted_ms: int) -> int:
    """Returns the log start by the retention of times, which begins with the oldest batch."""
    offset, largest = log.start, log.max_event
    for batch in log.batches:
        if batch.end > log.high_watermark:
            break
        is_old = settings.retention_ms >= 0 and (
            log.append_time(batch.base) + settings.retention_ms < trusted_ms
        )
        is_late = settings.retention_event_ms >= 0 and (
            batch.record_time + settings.retention_event_ms < largest
        )
        if not is_old and not is_late:
            break
        offset = batch.end
    return offset


def stored_assignment(store: MemoryState, topic_id: UUID, index: int) -> Assignment | None:
    """Returns the stored state of a partition; None if it is gone."""
    pairs = store.read(partition_key(topic_id, index)).pairs
    for pair in pairs:
        if pair.key == partition_key(topic_id, index):
            record = read(pair.key, pair.value)
            return Assignment(record, pair.mod_revision)
    return None
