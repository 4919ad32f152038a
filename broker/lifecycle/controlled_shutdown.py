"""A broker leaves on purpose (KIP-841): others lead before it stops.

The broker reports that it stops. The controller then removes it from all ISRs and moves its leaders,
and no leader adds it to an ISR again. It stops when it leads nothing, and when all live brokers have
seen that; until then it answers their requests. Then its logs are flushed, the registration files
record that the stop was clean, and its session ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.lifecycle.registration import is_in_charge
from tidelog.broker.metadata.brokers.keys import CONTROLLER
from tidelog.broker.metadata.brokers.records import live_key, put_live, put_seen
from tidelog.broker.metadata.store import Compare, Delete
from tidelog.broker.metadata.transactions import Transaction, in_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metadata.store import Operation


def begin(image: Image, me: int, my_epoch: int, lease: int) -> Transaction | None:
    """Returns the transaction by which a broker reports that it stops; None if it has."""
    live = image.brokers.get(me)
    if live is None or live.epoch != my_epoch or live.record.is_stopping:
        return None
    operation = put_live(me, live.record._replace(is_stopping=True), lease)
    return Transaction((in_session(me, my_epoch),), (operation,), "stopping")


def confirm(image: Image, me: int, my_epoch: int, lease: int) -> Transaction | None:
    """Returns the transaction by which a broker reports the image it has seen; None if nobody waits for it.

    Brokers that stop wait until the others have seen the last change of their partitions.
    """
    asked = max(
        (
            _handed_over(image, broker)
            for broker, live in image.brokers.items()
            if live.record.is_stopping and broker != me and not is_in_charge(image, broker)
        ),
        default=0,
    )
    if image.members.seen.get(me, 0) >= asked:
        return None
    operation = put_seen(me, image.revision, lease)
    return Transaction((in_session(me, my_epoch),), (operation,), "seen")


def may_stop(image: Image, me: int, seen: Mapping[int, int]) -> bool:
    """Returns whether a stopping broker can stop.

    `seen` has the revision of the image of each broker, as far as this one knows. A broker that is
    not known to have seen the last change may still send requests to this one. Fenced brokers serve
    nobody, so they are not waited for. Where all others are fenced or stop too, nobody can take over.
    """
    if not any(
        broker != me and not live.record.is_fenced and not live.record.is_stopping
        for broker, live in image.brokers.items()
    ):
        return True
    if is_in_charge(image, me):
        return False
    handed_over = _handed_over(image, me)
    return all(
        seen.get(broker, 0) >= handed_over
        for broker, live in image.brokers.items()
        if broker != me and not live.record.is_fenced
    )


def end(image: Image, me: int, my_epoch: int) -> Transaction:
    """Returns the transaction that ends a session at once, without waiting for its lease.

    The controller makes room for another in the same transaction.
    """
    compares: tuple[Compare, ...] = (in_session(me, my_epoch),)
    operations: tuple[Operation, ...] = (Delete(live_key(me)),)
    if image.controller is not None and image.controller.broker == me:
        compares += (Compare(CONTROLLER, "create", "=", image.controller.epoch),)
        operations += (Delete(CONTROLLER),)
    return Transaction(compares, operations, "stopped")


def _handed_over(image: Image, broker: int) -> int:
    """Returns the revision that last changed a partition of which a broker has a replica."""
    return max(
        (
            revision
            for topic in image.topics.values()
            for record, revision in zip(topic.assignments, topic.mod_revisions, strict=True)
            if broker in record.replicas
        ),
        default=0,
    )
