"""Adoption of logs without metadata, which an operator copied here from Kafka or another tidelog.

At the start every such log becomes a topic. Its directory has the name, the partition numbers and the topic
id (in partition.metadata; a new id is written if there is none or another topic has it), and its last batches
the message format and the time type. Partition numbers without a directory become empty partitions, so that
each key keeps its partition.

Opening a copy must never delete data: these topics keep everything (`KEEP`) until an operator sets
retention.ms, retention.bytes, retention.max.eventtime.ms or cleanup.policy. Logs that cannot be
served are left unchanged. A partition that names another topic than the others of its name is
renamed to `-stray`.

A crash may interrupt an adoption at any step: the next start adopts the same logs as one topic. For
this, each step leaves the logs of a name with at most one id that can become the topic's. Ids that
belong to another topic are removed from all logs before the first log gets the new id.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tidelog.broker.logs.strays import rename_to_stray
from tidelog.broker.metadata.image import Topic
from tidelog.broker.metadata.names import RESERVED_IDS, new_id
from tidelog.broker.metadata.records import PartitionRecord
from tidelog.broker.settings import KEEP, is_internal
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from tidelog.broker.logs.services import Services
    from tidelog.broker.metadata.image import Image
    from tidelog.protocol.records.batch import Batch
    from tidelog.storage.directory.store import LogStore

_MOST_MISSING = 10_000  # a directory called backup-20240131 is not a partition
_ID_BLOCK = 1_000  # producer ids that a broker of Kafka allocates at once
_RELEASES = ("0.9.0", "0.10.2", "3.0")  # the newest releases that wrote format 0, 1, 2

_log = logging.getLogger("tidelog.node")


async def adopt_logs(services: Services) -> None:
    """Creates a topic for every log without one, except for logs of deleted topics."""
    image = services.metadata.image
    found: dict[str, list[int]] = defaultdict(list)
    for name, index in services.store.names():
        if name in image.topics:
            continue
        if image.deletions and services.store.topic_id(name, index) in image.deletions:
            continue  # a log that could not be removed yet is removed later
        found[name].append(index)
    for name, indexes in found.items():
        try:
            await _adopt(services, name, indexes)
        except BrokerError as error:
            _log.error("topic not adopted", extra={"topic": name, "reason": error.message})


async def _adopt(services: Services, name: str, indexes: Sequence[int]) -> None:
    """Creates a topic for the logs of one name.

    Raises BrokerError; then the logs are unchanged.
    """
    partitions = max(indexes) + 1
    if partitions - len(indexes) > _MOST_MISSING:
        _log.error(
            "topic not adopted",
            extra={
                "topic": name,
                "partition": partitions - 1,
                "reason": "too many partitions are missing before it",
            },
        )
        return
    image = services.metadata.image
    settings = await services.pools.topics.run(_settings_of, services, name, indexes)
    services.settings.of_topic(name, settings)
    services.metadata.check_name(name)
    topic_id = await services.pools.topics.run(_assign_one_id, services.store, name, indexes, image)
    epochs = await services.pools.topics.run(_leader_epochs, services, name, indexes)
    used = await services.pools.topics.run(_largest_producer_id, services, name, indexes)
    unsafe = (used // _ID_BLOCK + 1) * _ID_BLOCK - image.next_producer_id
    if unsafe > 0:
        await services.metadata.allocate_producer_ids(unsafe)  # no producer gets these
    records = tuple(
        PartitionRecord.led_by(services.config.cluster.node_id, epochs.get(index, 0))
        for index in range(partitions)
    )
    # Never rolled back: the logs hold data.
    await services.metadata.add_topic(Topic(name, topic_id, records, settings))
    await services.reconciler.reconcile()
    error = services.reconciler.failure(topic_id)
    if error is not None:
        raise error
    _log.warning(
        "topic adopted from log directories",
        extra={
            "topic": name,
            "partitions": partitions,
            "made_empty": sorted(set(range(partitions)) - set(indexes)),
            "settings": settings,
            "advice": "nothing is deleted until you set retention.ms, retention.bytes, "
            "retention.max.eventtime.ms or cleanup.policy",
        },
    )


def _assign_one_id(store: LogStore, name: str, indexes: Sequence[int], image: Image) -> UUID:
    """Writes one topic id into the logs of a name, in a thread; returns the id.

    Chooses the id of most of them, or a new one if a topic has it already, because then the logs
    are a copy of that topic's. A log with yet another id keeps it. Raises KafkaStorageError.
    """
    ids = _ids(store, name, indexes)
    most = Counter(each for each in ids.values() if each is not None).most_common(1)
    found = most[0][0] if most else None
    if found in image.topics_by_id:
        others = {i for i, each in ids.items() if each is not None and each != found}
        for index in others:  # first: the next start must not mistake their topic for this one
            rename_to_stray(store, name, index)
        ids = dict.fromkeys(ids.keys() - others)
        for index in sorted(ids):
            store.assign_topic_id(name, index, None)
        found = None
    topic_id = found or new_id()
    for index, named in ids.items():
        if named is None:
            store.assign_topic_id(name, index, topic_id)
    return topic_id


def _ids(store: LogStore, name: str, indexes: Sequence[int]) -> dict[int, UUID | None]:
    """Returns the topic id of each log; None if it has none, or one that no topic has."""
    ids = {index: store.topic_id(name, index) for index in indexes}
    return {index: None if named in RESERVED_IDS else named for index, named in ids.items()}


def _leader_epochs(services: Services, name: str, indexes: Sequence[int]) -> dict[int, int]:
    """Returns the latest leader epoch of each log."""
    services.store.read_leader_epochs([(name, index) for index in indexes])
    return {index: services.store.leader_epoch(name, index) or 0 for index in indexes}


def _largest_producer_id(services: Services, name: str, indexes: Sequence[int]) -> int:
    """Returns the largest producer id that the logs remember; -1 if they remember none.

    A new producer with the id of one of theirs would be refused, or taken for its duplicate.
    """
    largest = -1
    for index in indexes:
        try:
            partition = services.store.partition(name, index)
            if partition is not None:
                with partition.state.append_lock:
                    producers = partition.state.read_producers()
                    largest = max([largest, *(each.producer_id for each in producers)])
        except (BrokerError, OSError) as error:
            where = {"log": f"{name}-{index}"}
            _log.error("producer state not read", extra=where | {"reason": str(error)})
    return largest


def _settings_of(services: Services, name: str, indexes: Sequence[int]) -> dict[str, str]:
    """Returns settings that continue the topic as it was, and deletes nothing."""
    settings = dict(KEEP)
    last = [each for each in (_last_batch(services, name, index) for index in indexes) if each]
    if last and not is_internal(name):
        magic = max(batch.magic for batch in last)
        if magic != services.config.topic_defaults.target_magic:
            settings["message.format.version"] = _RELEASES[magic]
        if all(batch.is_log_append_time for batch in last):
            settings["message.timestamp.type"] = "LogAppendTime"
    return settings


def _last_batch(services: Services, name: str, index: int) -> Batch | None:
    """Returns the last batch of a log; None if there is none, or it cannot be read."""
    try:
        partition = services.store.partition(name, index)
        if partition is None:
            return None
        from tidelog.storage.log.slices import last_batch

        return last_batch(partition.segments)
    except (BrokerError, OSError) as error:
        where = {"log": f"{name}-{index}"}
        _log.error("last batch not read", extra=where | {"reason": str(error)})
        return None
