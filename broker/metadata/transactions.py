"""Changes of partitions as transactions of the metadata store, each with all that it compares.

A change says what it was decided on: the revision of the partition's key, and the sessions of the
brokers that it removes, elects or adds. The store applies a transaction whole, and only if all of
that is still so. Therefore no order of transactions does harm, nor a transaction that is applied
late, nor a second controller: who decided on something old changes nothing.

A store takes a limited number of comparisons and operations. `batched` stays within both limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.metadata.brokers.records import live_key, offline_key
from tidelog.broker.metadata.records import partition_key, put_partition
from tidelog.broker.metadata.store import MOST_COMPARISONS, MOST_OPERATIONS, Compare

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from uuid import UUID

    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.metadata.store import Operation


class PartitionChange(NamedTuple):
    """One partition's next state, why, and what must still be so when it is stored."""

    topic_id: UUID
    partition: int
    before: PartitionRecord
    after: PartitionRecord
    compares: tuple[Compare, ...]
    why: str


class Transaction(NamedTuple):
    """What to give to `KeyValueStore.transact`, why, and the changes of partitions in it."""

    compares: tuple[Compare, ...]
    operations: tuple[Operation, ...]
    why: str
    changes: tuple[PartitionChange, ...] = ()


def unmodified(key: str, mod_revision: int) -> Compare:
    """Returns the condition that a key was last modified by a revision; 0: that there is none."""
    return Compare(key, "mod", "=", mod_revision)


def in_session(broker: int, epoch: int) -> Compare:
    """Returns the condition that a broker is in the session with this broker epoch."""
    return Compare(live_key(broker), "create", "=", epoch)


def as_seen(image: Image, broker: int) -> Compare:
    """Returns the condition that a broker's session is as in the image, or still missing."""
    live = image.brokers.get(broker)
    return unmodified(live_key(broker), 0 if live is None else live.mod_revision)


def offline_as_seen(image: Image, broker: int) -> Compare:
    """Returns the condition that a broker's `offline` key is as in the image, or still missing."""
    offline = image.offline.get(broker)
    return unmodified(offline_key(broker), 0 if offline is None else offline.mod_revision)


def change(
    image: Image, topic: str, index: int, after: PartitionRecord, brokers: Iterable[int], why: str
) -> PartitionChange:
    """Returns a partition's change from its state in the image.

    It was decided on the sessions of these `brokers`.
    """
    known = image.topics[topic]
    key = partition_key(known.topic_id, index)
    compares = [unmodified(key, known.mod_revisions[index])]
    compares += [as_seen(image, broker) for broker in brokers]
    before = known.assignments[index]
    return PartitionChange(known.topic_id, index, before, after, tuple(compares), why)


def batched(
    changes: Iterable[PartitionChange], guards: Sequence[Compare], limit: int = MOST_OPERATIONS
) -> Iterator[Transaction]:
    """Yields transactions that store changes, in their order; each compares the `guards`, too.

    None has more than `limit` operations, nor more comparisons than a store takes with as many. A
    caller whose transaction was refused gives a smaller limit the next time: then fewer changes
    wait for the one that was decided on something old.
    """
    most_comparisons = limit + MOST_COMPARISONS - MOST_OPERATIONS
    taken: list[PartitionChange] = []
    compares = dict.fromkeys(guards)
    for each in changes:
        more = {**compares, **dict.fromkeys(each.compares)}
        if taken and (len(taken) == limit or len(more) > most_comparisons):
            yield _transaction(taken, compares)
            taken, more = [], dict.fromkeys((*guards, *each.compares))
        taken.append(each)
        compares = more
    if taken:
        yield _transaction(taken, compares)


def _transaction(changes: list[PartitionChange], compares: Iterable[Compare]) -> Transaction:
    operations = [put_partition(each.topic_id, each.partition, each.after) for each in changes]
    why = ", ".join(sorted({each.why for each in changes}))
    return Transaction(tuple(compares), tuple(operations), why, tuple(changes))
