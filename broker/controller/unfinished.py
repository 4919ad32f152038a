"""What the controller finishes for a broker that has ended: the creations of topics that it began."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.image import abandonment
from tidelog.broker.metadata.transactions import Transaction, as_seen

if TYPE_CHECKING:
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metadata.store import Compare


def abandoned(image: Image, guard: Compare) -> list[Transaction]:
    """Returns the transactions by which creations become deletions whose broker has ended.

    So has one that registered again: it began the creation in an earlier session. `guard` is what
    makes the controller.
    """
    found = []
    for topic_id, creation in image.creations.items():
        broker, epoch = creation.record.broker, creation.record.epoch
        live = image.brokers.get(broker)
        if live is None or live.epoch != epoch:
            compares, operations = abandonment(topic_id, creation)
            compares = (guard, as_seen(image, broker), *compares)
            found.append(Transaction(compares, operations, "abandoned creation"))
    return found
