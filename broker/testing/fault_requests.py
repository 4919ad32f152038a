"""Injects faults into requests: errors as the API returns them, delays, disconnects.

A faulty route compares the topics and partitions of a request with the target of each fault, and applies the
effects of those that strike. An error is raised where the handler gets the partition or topic, so it is
returned and counted as any other error of that partition, and under acks=0 it closes the connection. For an
API without topics, or an error of a fetch session, it is the error of the whole request.
"""

from __future__ import annotations

import asyncio
import types
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tidelog.broker.network.answers import NO_RESPONSE, Encoded, Pending
from tidelog.broker.testing.faults import BY_PARTITION, BY_TOPIC
from tidelog.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.error_class import error_class
from tidelog.protocol.errors import BrokerError, ErrorCode
from tidelog.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.broker.controller.topics.topics import Topics
    from tidelog.broker.http.services import Services
    from tidelog.broker.network.context import ClientConnection, Context
    from tidelog.broker.network.routes import Route
    from tidelog.broker.partitions.lookup import Partitions
    from tidelog.broker.partitions.produce.appends import Appends
    from tidelog.broker.testing.faults import Fault, Faults
    from tidelog.storage.log.partition import Appended, Partition

_TOPICS = {"Produce": "topic_data"}  # the field with the topics, if it is not `topics`
_PARTITIONS = {"Produce": "partition_data"}
_INDEXES = {"Produce": "index", "Fetch": "partition", "OffsetForLeaderEpoch": "partition"}
# Errors of a fetch as a whole.
_OF_SESSIONS = frozenset(
    {
        "FETCH_SESSION_ID_NOT_FOUND",
        "INVALID_FETCH_SESSION_EPOCH",
        "FETCH_SESSION_TOPIC_ID_ERROR",
    }
)


class _Part(NamedTuple):
    """A topic, or one of its partitions, that a request names."""

    topic: str
    partition: int | None


def wrapped(route: Route, faults: Faults) -> Route:
    """Returns the route with faults applied; while its API has none, it works as before."""
    handle, shortcut, api = route.handle, route.shortcut, route.name

    def faulty(services: Services, request: Any, context: Context) -> Any:
        faults_of_api = faults.of_requests.get(api)
        if not faults_of_api:
            return handle(services, request, context)
        parts = _parts(services, api, request)
        striking = [fault for fault in faults_of_api if _is_about(fault, parts) and fault.strikes()]
        if not striking:
            return handle(services, request, context)
        return _serve(route, striking, parts, services, request, context)

    def short(services: Services, client: ClientConnection, header: Any, frame: Any) -> Any:
        assert shortcut is not None
        return None if faults.of_requests.get(api) else shortcut(services, client, header, frame)

    return route._replace(handle=faulty, shortcut=None if shortcut is None else short)


def _is_about(fault: Fault, parts: Sequence[_Part]) -> bool:
    target = fault.target
    return target.topic is None or any(target.is_at(*part) for part in parts)


def _parts(services: Services, api: str, request: Any) -> list[_Part]:
    """Returns the topics or partitions of a request, without those whose topic id is unknown."""
    if api not in BY_PARTITION + BY_TOPIC:
        return []
    found = []
    for topic in getattr(request, _TOPICS.get(api, "topics")) or ():
        name = getattr(topic, "name", None) or getattr(topic, "topic", None)
        name = name or services.metadata.image.topic_name(getattr(topic, "topic_id", ZERO_UUID))
        if not name:
            continue
        if api in BY_TOPIC:
            found.append(_Part(name, None))
            continue
        index = _INDEXES.get(api, "partition_index")
        partitions = getattr(topic, _PARTITIONS.get(api, "partitions"))
        found += [_Part(name, getattr(partition, index)) for partition in partitions]
    if api == "DeleteTopics":
        found += [_Part(name, None) for name in request.topic_names]
    elif api == "Metadata" and request.topics is None:
        found += [_Part(name, None) for name in services.metadata.image.topics]
    return found


async def _serve(
    route: Route,
    striking: Sequence[Fault],
    parts: Sequence[_Part],
    services: Services,
    request: Any,
    context: Context,
) -> Any:
    """Serves a request with faults; returns no response if the connection is closed instead."""
    for fault in _of(striking, delay=True, after=False):
        await fault.hold()
    if _of(striking, disconnect=True, after=False):
        context.connection.hang_up()
        return NO_RESPONSE
    errors = [fault for fault in striking if fault.effect.error is not None]
    for fault in errors:
        if (not parts and route.name != "Metadata") or (
            route.name == "Fetch" and fault.effect.error in _OF_SESSIONS
        ):
            raise _error(fault)
    erring = (
        cast("Services", _FaultyServices(services, errors))
        if errors and route.name != "Metadata"
        else services
    )
    response = route.handle(erring, request, context)
    while isinstance(response, Pending | CoroutineType):
        response = await (_finished(response) if isinstance(response, Pending) else response)
    if errors and route.name == "Metadata":
        if isinstance(response, Encoded):  # what all get who ask for all topics is not changed
            response, _ = route.response.decode(response.body)
        await _fail_topics(route, response, errors)
    for fault in _of(striking, delay=True, after=True):
        await fault.hold()
    if _of(striking, disconnect=True, after=True):
        context.connection.hang_up()
        return NO_RESPONSE
    return response


async def _finished(later: Pending) -> Any:
    """Awaits a `Pending`, and returns its response."""
    try:
        await later.happened
    except asyncio.CancelledError:
        later.dropped()
        raise
    return later.finish()


def _of(
    faults: Iterable[Fault], *, after: bool, delay: bool = False, disconnect: bool = False
) -> list[Fault]:
    return [
        fault
        for fault in faults
        if fault.effect.after == after
        and (fault.effect.delay_ms is not None) == delay
        and fault.effect.disconnect == disconnect
    ]


def _error(fault: Fault) -> BrokerError:
    """Returns the exception for the error of a fault."""
    name = fault.effect.error
    assert name is not None
    code = ErrorCode[name]
    known = error_class(code)
    if known is None:  # this broker never raises it
        known = types.new_class(name, (BrokerError,), {"code": code})
    return known(f"{code.sentence} (injected, fault {fault.number})")


async def _fail_topics(route: Route, response: Any, errors: Sequence[Fault]) -> None:
    """Replaces topics in a response to Metadata by errors: its handler does not get topics one by one."""
    for at, topic in enumerate(response.topics):
        for fault in errors:
            if fault.target.is_at(topic.name or "", None):
                asked = MetadataRequestTopic(name=topic.name, topic_id=topic.topic_id)
                refused = await route.refuse(MetadataRequest(topics=[asked]), _error(fault))
                response.topics[at] = refused.topics[0]
                break


class _FaultyServices:
    """The services of a broker, which raise the errors of one request's faults."""

    def __init__(self, services: Services, faults: Sequence[Fault]) -> None:
        self._services = services
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._services, name)

    def _fail(self, topic: str, partition: int | None, *, after: bool = False) -> None:
        for fault in self._faults:
            if fault.effect.after == after and fault.target.is_at(topic, partition):
                raise _error(fault)

    @property
    def partitions(self) -> _FaultyPartitions:
        """The logs of this broker, with faults."""
        return _FaultyPartitions(self._services.partitions, self._fail)

    @property
    def appends(self) -> _FaultyAppends:
        """The appends, with faults."""
        return _FaultyAppends(self._services.appends, self._fail)

    @property
    def topics(self) -> _FaultyTopics:
        """The changes of topics, with faults."""
        return _FaultyTopics(self._services.topics, lambda name: self._fail(name, None))


class _FaultyPartitions:
    """The logs of a broker; getting one raises the error of a fault."""

    def __init__(self, partitions: Partitions, fail: Callable[[str, int], None]) -> None:
        self._partitions = partitions
        self._fail = fail

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partitions, name)

    def get(self, topic: str, index: int) -> Partition:
        self._fail(topic, index)
        return self._partitions.get(topic, index)

    def opened(self, topic: str, index: int) -> Partition:
        self._fail(topic, index)
        return self._partitions.opened(topic, index)

    def leader(self, topic: str, index: int, *how: Any) -> Partition:
        self._fail(topic, index)
        return self._partitions.leader(topic, index, *how)

    async def open_leader(self, topic: str, index: int) -> Partition:
        self._fail(topic, index)
        return await self._partitions.open_leader(topic, index)

    async def open(self, topic: str, index: int) -> Partition:
        self._fail(topic, index)
        return await self._partitions.open(topic, index)


class _FaultyAppends:
    """The appends of a broker; after an append the error of a fault is raised."""

    def __init__(self, appends: Appends, fail: Callable[..., None]) -> None:
        self._appends = appends
        self._fail = fail

    def __getattr__(self, name: str) -> Any:
        return getattr(self._appends, name)

    def append(
        self, partition: Partition, *what: Any, **how: Any
    ) -> Appended | asyncio.Future[Appended]:
        appended = self._appends.append(partition, *what, **how)
        if isinstance(appended, asyncio.Future):
            return asyncio.ensure_future(self._fail_later(partition, appended))
        self._fail(partition.topic, partition.index, after=True)
        return appended

    async def _fail_later(
        self, partition: Partition, appended: asyncio.Future[Appended]
    ) -> Appended:
        outcome = await appended
        self._fail(partition.topic, partition.index, after=True)
        return outcome


class _FaultyTopics:
    """The changes of topics; before one the error of a fault is raised."""

    def __init__(self, topics: Topics, fail: Callable[[str], None]) -> None:
        self._topics = topics
        self._fail = fail

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topics, name)

    async def create(self, name: str, **how: Any) -> Any:
        """Creates a topic, or raises the error of a fault."""
        self._fail(name)
        return await self._topics.create(name, **how)

    async def add_partitions(self, name: str, *what: Any, **how: Any) -> Any:
        """Adds partitions to a topic, or raises the error of a fault."""
        self._fail(name)
        return await self._topics.add_partitions(name, *what, **how)

    async def delete(self, name: str) -> Any:
        """Deletes a topic, or raises the error of a fault."""
        self._fail(name)
        return await self._topics.delete(name)
