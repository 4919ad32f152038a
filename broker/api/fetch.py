"""Fetch (key 1): read records, and wait for them if there are too few.

Behaviour: the response is sent at once if min_bytes are available, if max_wait_ms is 0, or if reading a
partition has failed; else the request waits (`broker/partitions/fetch/client_fetch.py`). A topic that is
unknown does not end the wait for others. `broker/partitions/fetch/fetch_read.py` describes how partitions are
read within the limits.

As in Kafka, a partition that is named more than once is read and returned once: with the parameters
of its last mention, at the position of its first.

From version 7 on, a client that requests a session gets one (KIP-227,
`broker/partitions/fetch/session.py`): its next fetches name only changed partitions, and the responses have
only partitions with new data. The number of sessions is limited; a client without a session gets full
responses with session id 0. Followers of tidelog have sessions of their own
(`broker/partitions/fetch/followers/session.py`).

A response that would exceed the quota of its client is empty: the client fetches again (KIP-219).

From version 12 on, a client that requests append times, by a tag that is our extension, gets the
append time of each whole batch (decision 13). Their bytes do not count towards the limits: twelve
bytes for each different append time.

A fetch with a replica id is served if it is authenticated as one of that broker, which has the right to
CLUSTER_ACTION (`broker/partitions/fetch/followers/proven.py`): the response has the leader's state of the log
(decision 31), and records above the high watermark, as far as the leader has stored them. Any other is
refused with CLUSTER_AUTHORIZATION_FAILED, and changes nothing.

Version notes: 1 throttle time; 3 max_bytes; 4 isolation level, last stable offset; 5 log start
offset; 7 sessions; 9 leader epoch; 11 rack and preferred replica, and followers serve consumers
(`broker/partitions/fetch/consumers.py`); 12 flexible, diverging epoch; 13 topic ids; 15 replica id moves to a
tag; 16 the leader and its address if the client has an older one (KIP-951).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.network.scheduler import listed
from tidelog.broker.partitions.fetch import client_fetch, incremental
from tidelog.broker.partitions.fetch.fetch_read import (
    TOPIC_IDS_SINCE,
    FetchRead,
    are_few,
    is_replica,
)
from tidelog.broker.partitions.fetch.named_once import name_each_once
from tidelog.broker.partitions.fetch.parts import failed
from tidelog.broker.partitions.fetch.session_epochs import FIRST, NO_SESSION, SESSIONLESS
from tidelog.broker.pools import ON_LOOP
from tidelog.protocol.api.fetch import FetchableTopicResponse, FetchResponse
from tidelog.protocol.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    UnknownTopicId,
)
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.answers import Pending
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.fetch import FetchRequest
    from tidelog.protocol.errors import BrokerError

_WHOLE = (SESSIONLESS, FIRST)  # epochs of fetches that name all their partitions


def handle(
    services: Services, request: FetchRequest, context: Context
) -> FetchResponse | Coroutine[Any, Any, FetchResponse] | Pending:
    """Reads the available records; waits if they are fewer than min_bytes."""
    if is_replica(request):
        return _for_replica(services, request, context)
    quota = context.quota
    if quota is not None:
        request.min_bytes = quota.most_fetch_bytes(request.min_bytes)
    if request.session_epoch not in _WHOLE:
        return client_fetch.answer(
            services, incremental.next_of_session(services, request, context)
        )
    if request.session_id != NO_SESSION:
        incremental.close(services, request.session_id)
    topics = request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        name_each_once(request, by_id=context.version >= TOPIC_IDS_SINCE)
    if quota is not None or not are_few(topics):
        return client_fetch.answer(services, incremental.WholeFetch(services, request, context))
    read = FetchRead(services, request, context, ON_LOOP, request.topics)
    try:
        read.read_few()
    except WouldBlock:
        return client_fetch.wait(services, incremental.WholeFetch(services, request, context), None)
    if not (read.is_enough() or read.has_urgent_error()):
        return client_fetch.wait(services, incremental.WholeFetch(services, request, context), read)
    if request.session_epoch == FIRST:
        incremental.begin(services, request, context, read)
    return read.answer()


def _for_replica(
    services: Services, request: FetchRequest, context: Context
) -> FetchResponse | Coroutine[Any, Any, FetchResponse] | Pending:
    """Serves a fetch with a replica id."""
    return services.replicas.answer_follower(request, context)


async def refuse(request: FetchRequest, error: BrokerError) -> FetchResponse:
    """Returns the error at the top from version 7 on; before, for every partition."""
    return FetchResponse(
        error_code=error.code,
        responses=[]
        if isinstance(
            error,
            FetchSessionIdNotFound
            | InvalidFetchSessionEpoch
            | FetchSessionTopicIdError
            | UnknownTopicId,
        )
        else [
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=await listed(
                    failed(wanted.partition, error.code) for wanted in topic.partitions
                ),
            )
            for topic in request.topics
        ],
    )
