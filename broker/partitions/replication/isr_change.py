"""A leader's change of its own ISR as a transaction (KIP-497, with the store in place of AlterIsr).

There is no request to a controller. What KIP-497 fences by epochs, the transaction compares:

- the partition has not changed since the state on which the leader decided;
- the leader is still in the session in which it leads, so a change that is applied late, after the
  leader has started again, is refused;
- each replica that is added is still in the session with the broker epoch of its fetch (KIP-903),
  and neither fenced nor stopping (KIP-841).

A replica whose log has failed or whose disk is full is not added either: the controller would remove
it again at once. That is judged by the image alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.records import partition_key, put_partition
from tidelog.broker.metadata.transactions import Transaction, as_seen, in_session, unmodified

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from tidelog.broker.metadata.image import Image
    from tidelog.broker.partitions.replication.messages import ChangeIsr


def transaction(
    image: Image, topic_id: UUID, index: int, proposed: ChangeIsr, me: int, my_epoch: int
) -> Transaction | None:
    """Returns the transaction of a change that the leader `me` proposes.

    `my_epoch` is the broker epoch in which it leads. Returns None if the image shows already that
    the store would refuse it, because a replica that is added cannot be.
    """
    if not all(
        _can_join(image, broker, epoch) and _can_store(image, broker, topic_id, index)
        for broker, epoch in proposed.added.items()
    ):
        return None
    compares = (
        unmodified(partition_key(topic_id, index), proposed.mod_revision),
        in_session(me, my_epoch),
        *(as_seen(image, broker) for broker in proposed.added),
    )
    operation = put_partition(topic_id, index, proposed.record)
    return Transaction(compares, (operation,), "in-sync replicas")


def _can_join(image: Image, broker: int, epoch: int) -> bool:
    """Returns whether a broker is in this session and can join an ISR."""
    live = image.brokers.get(broker)
    if live is None or live.epoch != epoch:
        return False
    return not live.record.is_fenced and not live.record.is_stopping


def cannot_store(
    image: Image, brokers: Iterable[int], topic_id: UUID, index: int
) -> frozenset[int]:
    """Returns those of `brokers` whose log of a partition accepts no records."""
    if not image.offline:
        return frozenset()
    return frozenset(broker for broker in brokers if not _can_store(image, broker, topic_id, index))


def _can_store(image: Image, broker: int, topic_id: UUID, index: int) -> bool:
    """Returns whether a broker's log of a partition accepts records."""
    offline = image.offline.get(broker)
    return offline is None or not any(
        index in found.get(topic_id, ())
        for found in (offline.record.partitions, offline.record.full)
    )
