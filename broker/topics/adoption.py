"""Adoption of logs without metadata, which an operator copied here from Kafka or another tidelog.

At the start every such log becomes a topic. Its directory gives the name, the partitions, the id of
partition.metadata (a new one is written if there is none or another topic has it), and from the
last batches the message format and the time type. Partition numbers without a directory become
empty partitions, so that each key keeps its partition.

Opening a copy must never delete data: these topics keep everything (`KEEP`) until an operator sets
retention.ms, retention.bytes, retention.max.eventtime.ms or cleanup.policy. Logs that cannot be
served are left unchanged. A partition that names another topic than the others of its name is
renamed to `-stray`.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from broker.metadata.image import Topic
from broker.metadata.names import new_id
from broker.metadata.records import PartitionRecord
from broker.topics.settings import KEEP, is_internal
from protocol.errors import BrokerError
from storage.log.reading import last_batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from broker.node import Node
    from protocol.records.batch import Batch

_MOST_MISSING = 10_000  # a directory called backup-20240131 is not a partition
_RELEASES = ("0.9.0", "0.10.2", "3.0")  # the newest releases that wrote format 0, 1, 2

_log = logging.getLogger("tidelog.node")


async def adopt_logs(node: Node) -> None:
    """Create a topic for every log without one, except for logs of deleted topics."""
    image = node.metadata.image
    found: dict[str, list[int]] = defaultdict(list)
    for name, index in node.store.names():
        if name in image.topics:
            continue
        if image.deletions and node.store.topic_id(name, index) in image.deletions:
            continue  # a log that could not be removed yet is removed later
        found[name].append(index)
    for name, indexes in found.items():
        try:
            await _adopt(node, name, indexes)
        except BrokerError as error:
            _log.error("log of no topic left alone: %s", error.message, extra={"topic": name})


async def _adopt(node: Node, name: str, indexes: Sequence[int]) -> None:
    """Create a topic for the logs of one name. Raises BrokerError; then they are left unchanged."""
    partitions = max(indexes) + 1
    if partitions - len(indexes) > _MOST_MISSING:
        _log.error(
            "log of no topic left alone: too many partitions are missing before it",
            extra={"topic": name, "partition": partitions - 1},
        )
        return
    settings = await node.pools.topics.run(_settings_of, node, name, indexes)
    node.settings.of_topic(name, settings)
    node.metadata.check_name(name)
    said, topic_id = _id_of(node, name, indexes)
    for index in indexes:
        if node.store.topic_id(name, index) in (None, said):
            await node.pools.topics.run(node.store.assign_topic_id, name, index, topic_id)
    epochs = await node.pools.topics.run(_leader_epochs, node, name, indexes)
    await node.topics.adopt(
        Topic(
            name,
            topic_id,
            tuple(
                PartitionRecord.led_by(node.config.node_id, epochs.get(index, 0))
                for index in range(partitions)
            ),
            settings,
        )
    )
    _log.warning(
        "topic found in the log directories is served; nothing of it is deleted until somebody "
        "sets retention.ms, retention.bytes, retention.max.eventtime.ms or cleanup.policy",
        extra={
            "topic": name,
            "partitions": partitions,
            "made_empty": sorted(set(range(partitions)) - set(indexes)),
            "settings": settings,
        },
    )


def _id_of(node: Node, name: str, indexes: Sequence[int]) -> tuple[UUID | None, UUID]:
    """Return the topic id that most partitions have, and the id that the topic will have."""
    ids = [node.store.topic_id(name, index) for index in indexes]
    said = Counter(each for each in ids if each is not None and each.int > 1).most_common(1)
    if not said:
        return None, new_id()
    topic_id = said[0][0]
    if topic_id in node.metadata.image.topics_by_id:  # the logs are a copy under another name
        return topic_id, new_id()
    return topic_id, topic_id


def _leader_epochs(node: Node, name: str, indexes: Sequence[int]) -> dict[int, int]:
    """Return the latest leader epoch of each log."""
    node.store.read_leader_epochs([(name, index) for index in indexes])
    return {index: node.store.leader_epoch(name, index) or 0 for index in indexes}


def _settings_of(node: Node, name: str, indexes: Sequence[int]) -> dict[str, str]:
    """Return settings that continue the topic as it was, and delete nothing."""
    settings = dict(KEEP)
    last = [each for each in (_last_batch(node, name, index) for index in indexes) if each]
    if last and not is_internal(name):
        magic = max(batch.magic for batch in last)
        if magic != node.config.topic_defaults.target_magic:
            settings["message.format.version"] = _RELEASES[magic]
        if all(batch.is_log_append_time for batch in last):
            settings["message.timestamp.type"] = "LogAppendTime"
    return settings


def _last_batch(node: Node, name: str, index: int) -> Batch | None:
    """Return the last batch of a log; None if there is none, or it cannot be read."""
    try:
        partition = node.store.partition(name, index)
        return None if partition is None else last_batch(partition.segments)
    except (BrokerError, OSError) as error:
        _log.error("log cannot be read: %s", error, extra={"log": f"{name}-{index}"})
        return None
