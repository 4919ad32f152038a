"""May a fetch of a follower count? By leader epochs and offsets, in Kafka's order (Partition.fetchRecords).

Each rule is a function of its own, with its source. None changes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.partitions.replication.messages import NO_EPOCH, Diverging, FetchAnswer
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.partitions.replication.leader_view import LeaderView
    from tidelog.broker.partitions.replication.messages import FetchRequest


def answer(leader: LeaderView, request: FetchRequest) -> FetchAnswer:
    """Returns the answer to a follower's fetch, whose records are read afterwards."""
    error, diverging = judge_fetch(leader, request)
    if error and error != ErrorCode.OFFSET_OUT_OF_RANGE:
        return FetchAnswer(error, leader.leader_epoch)
    return FetchAnswer(
        error,
        leader.leader_epoch,
        leader.high_watermark,
        leader.log_start_offset,
        leader.log_end_offset if error else leader.fetchable_end,
        diverging,
    )


def judge_fetch(leader: LeaderView, request: FetchRequest) -> tuple[ErrorCode, Diverging | None]:
    """Returns the error of a follower's fetch, and where its log and the leader's part.

    With either the leader uses nothing of the fetch. A fetch of another leader epoch means
    nothing in this one, so the epoch is checked first. A follower below the log start has to
    restart even if its epochs diverge. The registration comes last.
    """
    error = judge_epoch(leader, request) or judge_replica(leader, request)
    if error:
        return error, None
    diverging = diverging_epoch(leader, request)
    error = judge_offset(leader, request, diverging)
    if error or diverging:
        return error, None if error else diverging
    return judge_registration(leader, request), None


def judge_epoch(leader: LeaderView, request: FetchRequest) -> ErrorCode:
    """Refuses a fetch of another leader epoch (KIP-320).

    FENCED_LEADER_EPOCH: the follower has to learn of this leader. UNKNOWN_LEADER_EPOCH: the
    leader has to learn of the follower's; it may lead no more.
    """
    if request.leader_epoch in {NO_EPOCH, leader.leader_epoch}:
        return ErrorCode.NONE
    if request.leader_epoch < leader.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def judge_replica(leader: LeaderView, request: FetchRequest) -> ErrorCode:
    """Refuses a fetch of a broker that has no replica here.

    One that names the leader epoch asks again: this leader's assignment may be the older one.
    """
    if request.replica in leader.remotes:
        return ErrorCode.NONE
    if request.leader_epoch == NO_EPOCH:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def diverging_epoch(leader: LeaderView, request: FetchRequest) -> Diverging | None:
    """Returns the leader's epoch and its end, if the follower has another history (KIP-595).

    The epoch is named beside the offset: the leader may never have had the follower's epoch
    (KIP-279).
    """
    if request.last_fetched_epoch == NO_EPOCH:
        return None
    found = Diverging(*leader.epochs.end_of(request.last_fetched_epoch))
    if found.epoch < request.last_fetched_epoch or found.end_offset < request.fetch_offset:
        return found
    return None


def judge_offset(
    leader: LeaderView, request: FetchRequest, diverging: Diverging | None
) -> ErrorCode:
    """Refuses an offset outside of the log, and an epoch that has no place in it."""
    if request.fetch_offset < leader.log_start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if diverging is not None:
        has_place = diverging.epoch != NO_EPOCH
        return ErrorCode.NONE if has_place else ErrorCode.OFFSET_OUT_OF_RANGE
    if request.fetch_offset > leader.log_end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


def judge_registration(leader: LeaderView, request: FetchRequest) -> ErrorCode:
    """Refuses a fetch that was sent before its broker registered anew (KIP-903)."""
    status = leader.brokers.get(request.replica)
    if status is not None and request.broker_epoch < status.epoch:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE
