"""How far the high watermark of a leader may move, and what depends on it.

Each rule is a function of its own, with its source. None changes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.partitions.replication import isr
from tidelog.broker.partitions.replication.messages import NO_OFFSET

if TYPE_CHECKING:
    from tidelog.broker.partitions.replication.leader_view import LeaderView
    from tidelog.broker.partitions.replication.remote import RemoteReplica


def next_high_watermark(leader: LeaderView, now_ms: int) -> int:
    """Returns the smallest log end of the maximal ISR and of those about to join it.

    The result may be less than before, and the caller then keeps the former one.

    A follower that has not fetched in this epoch has no known end, so nothing moves; nor has one whose
    registration this leader does not know.
    """
    if isr.is_frozen(leader):
        return leader.high_watermark
    maximal = leader.maximal_isr
    ends = [
        remote.log_end_offset if is_heard_of(leader, remote) else NO_OFFSET
        for remote in leader.remotes.values()
        if remote.broker in maximal or is_about_to_join(leader, remote, now_ms)
    ]
    return min([leader.fetchable_end, *ends])


def is_heard_of(leader: LeaderView, remote: RemoteReplica) -> bool:
    """Returns whether this leader knows the registration of a follower's last fetch.

    A broker that has stopped uncleanly leaves the ISR before it registers anew (KIP-966). A leader
    that does not know the one does not know the other, and its ISR may be too large.
    """
    status = leader.brokers.get(remote.broker)
    return status is not None and remote.broker_epoch <= status.epoch


def is_about_to_join(leader: LeaderView, remote: RemoteReplica, now_ms: int) -> bool:
    """Returns whether the high watermark waits for a follower that is not in the ISR yet.

    One that may not join would hold the high watermark for nothing (KAFKA-15021).
    """
    return isr.is_eligible(leader, remote) and isr.is_caught_up(leader, remote, now_ms)


def is_committed(leader: LeaderView, end_offset: int) -> bool:
    """Returns whether all in-sync replicas have what is before an offset."""
    return leader.high_watermark >= end_offset


def is_end_known(leader: LeaderView) -> bool:
    """Returns whether the high watermark is no less than any earlier leader's (KIP-207)."""
    return leader.high_watermark >= leader.epoch_start_offset


def low_watermark(leader: LeaderView) -> int:
    """Returns the smallest log start of the live replicas, which DeleteRecords waits for."""
    starts = [
        remote.log_start_offset
        for remote in leader.remotes.values()
        if remote.broker in leader.brokers
    ]
    return min([leader.log_start_offset, *starts])
