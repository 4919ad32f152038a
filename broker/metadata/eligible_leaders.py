"""The next state of a partition: its leader, and who has every committed record (KIP-966).

Every member of the ISR has all records below the high watermark. The high watermark stands still
while the ISR is below `min.insync.replicas`, so a replica that leaves it then stays complete: it
becomes an eligible leader replica (ELR). A replica that leaves while enough others stay does not,
because the high watermark moves on without it.

The ELR stays complete only while the high watermark stands still. So the leader moves it in no
state whose ELR has members, whatever `min.insync.replicas` says by then (`may_advance`). The
setting may therefore change at any moment, and reach the brokers in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidelog.broker.metadata.records import PartitionRecord


class TopicRules(NamedTuple):
    """The settings of a topic on which elections of its leaders depend."""

    min_insync: int  # min.insync.replicas
    allows_unclean: bool = False  # unclean.leader.election.enable


def effective_min(record: PartitionRecord, min_insync: int) -> int:
    """Returns how many members an ISR needs: no more than there are replicas."""
    return min(min_insync, len(record.replicas))


def may_advance(record: PartitionRecord, min_insync: int) -> bool:
    """Returns whether the high watermark may move in a state of the partition that is committed.

    With members in the ELR it may not: a new ISR that is large enough clears the ELR in the same
    change, and one that is not yet cleared was left by a change of `min.insync.replicas`.
    """
    return len(record.isr) >= effective_min(record, min_insync) and not record.elr


def elr_after(record: PartitionRecord, isr: Collection[int], min_insync: int) -> tuple[int, ...]:
    """Returns the ELR after the ISR has become `isr`, in the order of the replicas.

    It is empty if the ISR is large enough. Else it has all who were in ISR or ELR and are not in
    the new ISR.
    """
    if len(isr) >= effective_min(record, min_insync):
        return ()
    complete = {*record.isr, *record.elr}.difference(isr)
    return tuple(broker for broker in record.replicas if broker in complete)


def changed(record: PartitionRecord, **fields: object) -> PartitionRecord:
    """Returns the next state of a partition: its partition epoch is one more, its nonce empty."""
    epoch = record.partition_epoch + 1
    return record._replace(partition_epoch=epoch, nonce="", **fields)  # type: ignore[arg-type]


def led_by(
    record: PartitionRecord, leader: int, isr: tuple[int, ...], elr: tuple[int, ...]
) -> PartitionRecord:
    """Returns the state with a new leader, in the next leader epoch."""
    return changed(
        record,
        leader=leader,
        leader_epoch=record.leader_epoch + 1,
        isr=isr,
        elr=elr,
        last_leader=NO_LEADER,
    )
