"""Which open transactions hang: nobody is going to end them, so consumers of committed data wait.

A transaction that is open in a partition is ended by its coordinator, after `transaction.timeout.ms` at
the latest. It hangs if no coordinator knows its producer id, as in a directory that came without
`__transaction_state`; or if the transaction that its producer id belongs to does not have the
partition, and nothing was heard of it for longer than any transaction may be open (KIP-664).

Between the two questions a transaction may end by itself, so the partition is asked once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.cli.transactions import asking

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.cli.cluster import Cluster
    from tidelog.cli.transactions.asking import DescribedTransaction
    from tidelog.client.calls.transactions import ProducerTransaction
    from tidelog.protocol.topic_partition import TopicPartition


class Opened(NamedTuple):
    """A transaction that is open in a partition."""

    place: TopicPartition
    transaction: ProducerTransaction


class Hanging(NamedTuple):
    """A transaction that nobody is going to end, and why not."""

    place: TopicPartition
    transaction: ProducerTransaction
    age_ms: int | None
    """How long ago its producer was last heard of there; None if that is unknown."""
    transactional_id: str | None
    why: str


def find(
    cluster: Cluster, places: Iterable[TopicPartition], older_than_ms: int, now_ms: int
) -> list[Hanging]:
    """Returns what hangs in these partitions. Raises CommandError."""
    opened = [Opened(place, each) for place in places for each in asking.open_in(cluster, place)]
    ids = sorted({each.transaction.producer_id for each in opened})
    listed = asking.of_producers(cluster, ids)
    known = {each.producer_id: each for each in asking.described(cluster, listed.values())}
    found = judged(opened, known, older_than_ms, now_ms)
    still = {
        (place, each.producer_id, each.start_offset)
        for place in {one.place for one in found}
        for each in asking.open_in(cluster, place)
    }
    return [
        each
        for each in found
        if (each.place, each.transaction.producer_id, each.transaction.start_offset) in still
    ]


def judged(
    opened: Iterable[Opened],
    known: Mapping[int, DescribedTransaction],
    older_than_ms: int,
    now_ms: int,
) -> list[Hanging]:
    """Returns which open transactions hang, by what coordinators know of their producer ids."""
    found = []
    for place, each in opened:
        age_ms = now_ms - each.last_ms if each.last_ms >= 0 else None
        owner = known.get(each.producer_id)
        if owner is None:
            why = f"no coordinator knows producer id {each.producer_id}"
            found.append(Hanging(place, each, age_ms, None, why))
        elif place not in owner.partitions and (age_ms is None or age_ms > older_than_ms):
            name = owner.transactional_id
            why = f"the transaction of {name} ({owner.state}) does not have the partition"
            found.append(Hanging(place, each, age_ms, name, why))
    return found
