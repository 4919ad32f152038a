"""Reassignments of partitions to other brokers (KIP-455): grow, catch up, shrink.

`begin` adds the new replicas beside the old ones. They fetch, and the leader takes them into the
ISR. When every replica of the target is in the ISR, and the ISR without the others is large enough,
`complete` removes the others in one step. A replica that leaves the assignment ends the leader
epoch: if it comes back, an offset that the leader remembers of it counts no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.eligible_leaders import changed, effective_min, led_by
from tidelog.broker.metadata.records import NO_LEADER
from tidelog.protocol.errors import InvalidReplicaAssignment, NoReassignmentInProgress

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tidelog.broker.metadata.records import PartitionRecord


def is_in_progress(record: PartitionRecord) -> bool:
    """Returns whether replicas of a partition are being added or removed."""
    return bool(record.adding or record.removing)


def target(record: PartitionRecord) -> tuple[int, ...]:
    """Returns the replicas that a partition will have, the preferred leader first."""
    return tuple(broker for broker in record.replicas if broker not in record.removing)


def original(record: PartitionRecord) -> tuple[int, ...]:
    """Returns the replicas that a partition had before the reassignment that is in progress."""
    return tuple(broker for broker in record.replicas if broker not in record.adding)


def begin(
    record: PartitionRecord, replicas: Sequence[int], registered: Collection[int]
) -> PartitionRecord:
    """Returns the state in which a partition begins to move to these replicas.

    A reassignment in progress is replaced. What that one was adding, and this one does not want, is
    in `adding` and `removing`: it may be in the ISR by now, so it goes in the last step with the
    others. Raises InvalidReplicaAssignment, also for a broker that is not `registered`.
    """
    wanted = tuple(replicas)
    if not wanted or len(set(wanted)) != len(wanted):
        raise InvalidReplicaAssignment(
            f"{list(wanted)} cannot be replicas: there must be one, and no broker twice"
        )
    had = original(record)
    unknown = [broker for broker in wanted if broker not in registered and broker not in had]
    if unknown:
        raise InvalidReplicaAssignment(f"broker {unknown[0]} is not registered")
    removing = tuple(broker for broker in record.replicas if broker not in wanted)
    adding = tuple(broker for broker in wanted + removing if broker not in had)
    return changed(record, replicas=wanted + removing, adding=adding, removing=removing)


def cancel(record: PartitionRecord) -> PartitionRecord:
    """Returns the state in which a partition goes back to the replicas that it had.

    Raises NoReassignmentInProgress.
    """
    if not is_in_progress(record):
        raise NoReassignmentInProgress("no replica is being added or removed")
    return begin(record, original(record), ())


def complete(
    record: PartitionRecord, able: Collection[int], min_insync: int
) -> PartitionRecord | None:
    """Returns the state after the last step of a reassignment; None while it cannot be done.

    The leader stays if it is a replica of the target and able to lead. Else the first in-sync replica
    that is able becomes the leader.
    """
    if not is_in_progress(record) or not _is_target_ready(record, min_insync):
        return None
    replicas = target(record)
    isr = tuple(broker for broker in record.isr if broker in replicas)
    stays = record.leader in isr and record.leader in able
    leader = record.leader if stays else _first(replicas, isr, able)
    if leader == NO_LEADER:
        return None
    moved = record._replace(replicas=replicas, adding=(), removing=())
    if not record.removing:
        return changed(moved)
    return led_by(moved, leader, isr, ())


def _is_target_ready(record: PartitionRecord, min_insync: int) -> bool:
    """Returns whether the other replicas can go.

    The ISR must be large enough without them. If replicas were added, all of the target must be in
    it; where a reassignment was cancelled, or only removes, one that is down blocks nothing.
    """
    replicas = target(record)
    in_sync = [broker for broker in replicas if broker in record.isr]
    if any(broker in record.adding for broker in replicas) and len(in_sync) < len(replicas):
        return False
    return len(in_sync) >= effective_min(record._replace(replicas=replicas), min_insync)


def _first(replicas: tuple[int, ...], isr: tuple[int, ...], able: Collection[int]) -> int:
    return next((broker for broker in replicas if broker in isr and broker in able), NO_LEADER)
