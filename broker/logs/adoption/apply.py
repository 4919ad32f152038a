"""Writes a plan of adoption into new metadata, so that the brokers find their topics.

The keys that every store has are written last, in one transaction. A broker that starts on an interrupted
adoption stops with an error, and does not rename logs whose topics are not there yet to `-stray`; the same
command given again continues the adoption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.logs.adoption.errors import AdoptionError
from tidelog.broker.metadata import records
from tidelog.broker.metadata.records import TopicRecord
from tidelog.broker.metadata.store import MOST_OPERATIONS, absent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.broker.logs.adoption.plan import AdoptionPlan
    from tidelog.broker.metadata.store import KeyValueStore, Put


async def apply(store: KeyValueStore, plan: AdoptionPlan) -> None:
    """Writes a plan into a store, which is open.

    Raises AdoptionError if the store has anything else in it, and KafkaStorageError.
    """
    puts = {put.key: put for put in _puts(plan)}
    last = records.put_beginning(plan.cluster_id, plan.next_producer_id, plan.broker_configs)
    there = {pair.key: pair.value for pair in (await store.read()).pairs}
    foreign = [key for key, value in there.items() if key not in puts or puts[key].value != value]
    if foreign:
        raise AdoptionError(
            f"the metadata store is not empty ({foreign[0]}): an adoption begins a new cluster; name "
            f"another file, or another cluster of etcd (etcd://.../NAME)"
        )
    left = [put for key, put in puts.items() if key not in there]
    for first in range(0, len(left), MOST_OPERATIONS):
        await store.transact(absent(records.CLUSTER), left[first : first + MOST_OPERATIONS])
    if await store.transact(absent(records.CLUSTER), last) is None:
        raise AdoptionError("another process has begun a cluster in this metadata store meanwhile")


def _puts(plan: AdoptionPlan) -> Iterator[Put]:
    for topic in plan.topics:
        for index, record in enumerate(topic.assignments):
            yield records.put_partition(topic.topic_id, index, record)
        yield records.put_topic(
            TopicRecord(topic.name, topic.topic_id, topic.partitions, topic.configs)
        )
