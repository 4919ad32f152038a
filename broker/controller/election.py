"""Elections: which replica leads a partition, and who stays in its ISR (KIP-631, KIP-966).

A broker is *able* to lead a partition if it is live, neither fenced nor stopping, and its log of
the partition is not offline. Nobody else stays in an ISR. The order of choice:

1. an able member of the ISR; the leader itself if it is one, else the first in the order of the
   replicas;
2. if there is none: an able member of the ELR, which has every committed record too;
3. if ISR and ELR have no member at all, not even one that is down: the last known leader, which is
   the last broker that left the two sets;
4. only with `unclean.leader.election.enable`: any able replica.

The last two may lose committed records: the new leader is then `is_recovering` (KIP-704), and alone
in the ISR. Each change adds one to the partition epoch, and each other leader, also none, one to
the leader epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.eligible_leaders import changed, elr_after, led_by
from tidelog.broker.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tidelog.broker.metadata.records import PartitionRecord


def elect(
    record: PartitionRecord, able: Collection[int], min_insync: int, *, allows_unclean: bool = False
) -> PartitionRecord | None:
    """Returns the state that a partition should have now; None if it is as it should be.

    `able` are the brokers that can lead it, `min_insync` its `min.insync.replicas`.
    """
    isr = tuple(broker for broker in record.isr if broker in able)
    leader = record.leader if record.leader in isr else _first(record.replicas, isr)
    if leader == NO_LEADER:
        return _from_outside(record, able, min_insync, allows_unclean=allows_unclean)
    elr = elr_after(record, isr, min_insync)
    if leader == record.leader:
        same = isr == record.isr and elr == record.elr
        return None if same else changed(record, isr=isr, elr=elr)
    return led_by(record, leader, isr, elr)


def prefer(record: PartitionRecord, able: Collection[int]) -> PartitionRecord | None:
    """Returns the state with the preferred leader, the first replica; None if nothing changes.

    The preferred leader is elected from the ISR alone.
    """
    first = record.replicas[0]
    if first == record.leader or first not in record.isr or first not in able:
        return None
    return led_by(record, first, record.isr, record.elr)


def relieve(record: PartitionRecord, able: Collection[int]) -> PartitionRecord | None:
    """Returns the state with another leader from the ISR; None if no other member is `able`.

    The ISR stays as it is: a leader whose disk is slow has every record.
    """
    others = [broker for broker in record.isr if broker in able and broker != record.leader]
    leader = _first(record.replicas, others)
    return None if leader == NO_LEADER else led_by(record, leader, record.isr, record.elr)


def without_leader(record: PartitionRecord, elr: tuple[int, ...]) -> PartitionRecord | None:
    """Returns the state without a leader and with an empty ISR; None if it is that already."""
    if record.leader == NO_LEADER:
        same = not record.isr and elr == record.elr
        return None if same else changed(record, isr=(), elr=elr)
    without = led_by(record, NO_LEADER, (), elr)
    return without._replace(last_leader=record.leader)


def is_unclean(before: PartitionRecord, after: PartitionRecord) -> bool:
    """Returns whether a change elects a leader that may lack committed records."""
    known = (before.leader, *before.isr, *before.elr, NO_LEADER)
    return after.leader not in known


def _from_outside(
    record: PartitionRecord, able: Collection[int], min_insync: int, *, allows_unclean: bool
) -> PartitionRecord | None:
    """Elects where nobody in the ISR can lead."""
    elr = elr_after(record, (), min_insync)
    leader = _first(elr, able)
    if leader != NO_LEADER:
        return led_by(record, leader, (leader,), _rest(record, elr, leader, min_insync))
    leader = _last_resort(record, elr, able, allows_unclean=allows_unclean)
    if leader == NO_LEADER:
        return without_leader(record, elr)
    return led_by(record, leader, (leader,), ())._replace(is_recovering=True)


def _rest(
    record: PartitionRecord, elr: tuple[int, ...], leader: int, min_insync: int
) -> tuple[int, ...]:
    """Returns the ELR after one of its members has become the leader, alone in the ISR."""
    return elr_after(record._replace(isr=(), elr=elr), (leader,), min_insync)


def _last_resort(
    record: PartitionRecord,
    elr: tuple[int, ...],
    able: Collection[int],
    *,
    allows_unclean: bool,
) -> int:
    """Returns a leader that may lack committed records, or NO_LEADER."""
    last = record.last_leader if record.leader == NO_LEADER else record.leader
    if last in able and last in record.replicas and (allows_unclean or not elr):
        return last
    return _first(record.replicas, able) if allows_unclean else NO_LEADER


def _first(ordered: Iterable[int], able: Collection[int]) -> int:
    return next((broker for broker in ordered if broker in able), NO_LEADER)
