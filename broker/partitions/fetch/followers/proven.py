"""Which fetches count as those of a follower: those that a broker of the cluster proves (decision 44).

Every other fetch that names a replica is refused before anything is done for it, once this broker has caught
up with the metadata: they may show a new session only then. All that name an epoch wait alike, so that nobody
finds the epoch by the time it takes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidelog.broker.lifecycle.proof import Verdict
from tidelog.broker.network.answers import Pending
from tidelog.broker.partitions.fetch.followers.follower_fetch import FollowerFetch
from tidelog.broker.partitions.senders import GENUINE
from tidelog.protocol.acl import Operation
from tidelog.protocol.api.fetch import FetchResponse
from tidelog.protocol.errors import ClusterAuthorizationFailed

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from tidelog.broker.network.context import Context
    from tidelog.broker.partitions.fetch.followers.sessions import FollowerSessions
    from tidelog.broker.partitions.senders import Senders
    from tidelog.broker.partitions.services import Services
    from tidelog.protocol.api.fetch import FetchRequest, ReplicaState

    Answer = FetchResponse | Coroutine[Any, Any, FetchResponse] | Pending


def answer(
    services: Services,
    senders: Senders,
    sessions: FollowerSessions,
    request: FetchRequest,
    context: Context,
) -> Answer:
    """Answers a broker that fetches for its replicas.

    Raises ClusterAuthorizationFailed for what no broker of the cluster asks, and NotLeaderOrFollower for a
    session that is over.
    """
    claim = request.replica_state
    if claim is None:  # a version without broker epochs
        raise senders.refusal(Verdict.FORGED, context, request.replica_id)
    verdict = senders.judge(claim.replica_id, claim.replica_epoch, context.header.sender)
    if verdict not in GENUINE:
        return _later(services, senders, sessions, request, claim, context)
    return _judged(services, senders, sessions, request, context, verdict)


async def is_of_broker(senders: Senders, context: Context) -> bool:
    """Returns whether a broker of the cluster sends a request, by the header, which names one.

    Raises ClusterAuthorizationFailed for a wrong proof.
    """
    sender = context.header.sender
    assert sender is not None
    verdict = senders.judge(sender.broker, sender.epoch, sender)
    if verdict not in GENUINE:
        verdict = await senders.judge_again(sender.broker, sender.epoch, sender)
    if verdict is Verdict.FORGED:
        raise senders.refusal(verdict, context, sender.broker)
    if verdict is Verdict.PROVEN:
        context.connection.proven = sender.broker, sender.epoch
    return verdict is Verdict.PROVEN


async def _later(
    services: Services,
    senders: Senders,
    sessions: FollowerSessions,
    request: FetchRequest,
    claim: ReplicaState,
    context: Context,
) -> FetchResponse:
    verdict = await senders.judge_again(
        claim.replica_id, claim.replica_epoch, context.header.sender
    )
    found = _judged(services, senders, sessions, request, context, verdict)
    while not isinstance(found, FetchResponse):
        if isinstance(found, Pending):
            try:
                await found.happened
            except asyncio.CancelledError:
                found.dropped()
                raise
            found = found.finish()
        else:
            found = await found
    return found


def _judged(
    services: Services,
    senders: Senders,
    sessions: FollowerSessions,
    request: FetchRequest,
    context: Context,
    verdict: Verdict,
) -> Answer:
    claim, connection = request.replica_state, context.connection
    assert claim is not None
    if verdict not in GENUINE:
        raise senders.refusal(verdict, context, claim.replica_id)
    if not services.authorizer.allows_on_cluster(connection.session, Operation.CLUSTER_ACTION):
        raise ClusterAuthorizationFailed("only brokers fetch for replicas")
    connection.outgoing.count_in(services.memory.replication)
    connection.proven = claim.replica_id, claim.replica_epoch
    follower = sessions.of(connection, request)
    return FollowerFetch(services, follower, request, context).answer()
