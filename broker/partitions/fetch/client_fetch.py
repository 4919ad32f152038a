"""When a fetch of a client is answered: at once if it may be, else after a wait for more data.

The answer is sent at once if min_bytes are available, if max_wait_ms is 0, if no partition can be read,
or if reading one has failed; else the fetch waits (`delayed_fetch.py`) and reads again. A
topic that is unknown, or that the client may not read, does not end the wait for others, as in Kafka,
unless it has become so during the wait: a client that asks again at once would ask without a pause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.partitions.fetch.fetch_read import TOPIC_IDS_SINCE, FetchRead, are_few
from tidelog.broker.partitions.fetch.parts import wanted_names
from tidelog.broker.partitions.offload import offload
from tidelog.broker.pools import ON_LOOP
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from typing import Any

    from tidelog.broker.network.context import Context
    from tidelog.broker.partitions.services import Services
    from tidelog.broker.pools import Permit
    from tidelog.protocol.api.fetch import FetchRequest, FetchResponse, FetchTopic


class ClientFetch(Protocol):
    """What a fetch of a client reads each time, and how it waits: a whole request, or one of a session."""

    @property
    def request(self) -> FetchRequest:
        """The request."""

    @property
    def context(self) -> Context:
        """Its context."""

    @property
    def is_part(self) -> bool:
        """Whether it asks for more than it reads."""

    def topics(self) -> Sequence[FetchTopic]:
        """Returns what to read now."""

    def has_urgent_error(self, read: FetchRead) -> bool:
        """Returns whether one of the errors of a read is answered at once."""

    async def wait(self, read: FetchRead, timeout_s: float) -> bool:
        """Waits until there may be more; returns False if the time is over."""

    def respond(self, read: FetchRead) -> FetchResponse:
        """Returns the response to what was read."""

    async def settle(self) -> None:
        """Finishes what `respond` has begun, if that is much."""

    def hold_back(self) -> FetchResponse:
        """Returns the response that has nothing, after which the client asks for the same again."""


def answer(
    services: Services, fetch: ClientFetch
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """Returns the response, or a coroutine that waits for it."""
    topics = fetch.topics()
    read = FetchRead(services, fetch.request, fetch.context, ON_LOOP, topics, is_part=fetch.is_part)
    if not are_few(topics):
        return _answer_many(services, fetch, read)
    try:
        read.read_few()
    except WouldBlock:
        return wait(services, fetch, None)
    if _is_enough(fetch, read):
        return _respond(fetch, read)
    return wait(services, fetch, read)


async def _answer_many(services: Services, fetch: ClientFetch, read: FetchRead) -> FetchResponse:
    try:
        await read.read()
    except WouldBlock:
        return await wait(services, fetch, None)
    if not _is_enough(fetch, read):
        return await wait(services, fetch, read)
    response = _respond(fetch, read)
    await fetch.settle()
    return response


def _is_enough(fetch: ClientFetch, read: FetchRead) -> bool:
    return read.is_enough() or (bool(read.errors) and fetch.has_urgent_error(read))


async def wait(services: Services, fetch: ClientFetch, read: FetchRead | None) -> FetchResponse:
    """Waits for more data, then reads again.

    The last read is the response, whatever it finds.
    """
    deadline_s = services.clock.monotonic_s() + fetch.request.max_wait_ms / 1000
    if read is None:
        read = await _read_anywhere(services, fetch)
    errors = len(read.errors)
    while not _is_enough(fetch, read) and len(read.errors) <= errors:
        if read.has_grown():  # since the read, before the request waited
            read = await _read_anywhere(services, fetch)
            continue
        left_s = deadline_s - services.clock.monotonic_s()
        woken = left_s > 0 and await fetch.wait(read, left_s)
        read = await _read_anywhere(services, fetch)
        if not woken:
            break
    response = _respond(fetch, read)
    await fetch.settle()
    return response


def _respond(fetch: ClientFetch, read: FetchRead) -> FetchResponse:
    """Returns the response to what was read, or an empty one if the quota of the client is exceeded."""
    quota = fetch.context.quota
    if quota is not None and quota.holds_back(read.size_bytes):
        return fetch.hold_back()
    return fetch.respond(read)


async def _read_anywhere(services: Services, fetch: ClientFetch) -> FetchRead:
    """Reads on the loop; in a thread if much is to be converted or the disk has to be read."""
    request, context, is_part = fetch.request, fetch.context, fetch.is_part
    topics = fetch.topics()

    async def read(permit: Permit) -> FetchRead:
        made = FetchRead(services, request, context, permit, topics, is_part=is_part)
        await made.read()
        return made

    names = wanted_names(services, topics, by_id=context.version >= TOPIC_IDS_SINCE)
    return await offload(services, names, read)
