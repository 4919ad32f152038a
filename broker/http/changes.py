"""Changes over HTTP, below /v1, for which Kafka's protocol has no request.

The routes exist on a production broker, on the port of the metrics, which other machines may reach. So a
change is accepted from this machine alone (its loopback addresses), as JSON, never from a page in a
browser, and only with the right to alter the cluster. All requests through a proxy on this machine have a
loopback address: a proxy should forward GET alone.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING, Any

from tidelog.broker.http import clock
from tidelog.broker.http.answers import (
    HttpError,
    body_of,
    fields_of,
    json_line,
    refuse_pages,
    time_fields,
)
from tidelog.broker.http.leader_map import leader_map
from tidelog.broker.http.routes.declared import ACCEPT_CLOCK, RESET_TOPIC
from tidelog.broker.security.authorizer import CLUSTER_NAME
from tidelog.broker.security.session import ANONYMOUS, Session
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.errors import BrokerError, NotLeaderOrFollower, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tidelog.broker.http.routes.route import Route
    from tidelog.broker.http.services import Services

    Change = Callable[[Services, Mapping[str, Any]], Awaitable[dict[str, Any]]]

log = logging.getLogger("tidelog.http")

_FORBIDDEN = 403
_LISTENER = "HTTP"


async def accept_clock(services: Services, given: Mapping[str, Any]) -> dict[str, Any]:
    """Trusts the clock although it has leapt. `to_ms` names the leap: the time of the clock after it.

    Raises HttpError if there is no leap, or another one.
    """
    to_ms = given.get("to_ms")
    if type(to_ms) is int and await services.clock_watch.accept(to_ms):
        return clock.shown(services)
    leap = services.clock_watch.status().leap
    if leap is None:
        raise HttpError(409, "NO_LEAP", "the clock is trusted: there is no leap to accept")
    raise HttpError(
        409, "OTHER_LEAP", f"to_ms={to_ms!r}: the clock leapt to {leap.to_ms} ms; look at it again"
    )


async def reset_topic(services: Services, given: Mapping[str, Any]) -> dict[str, Any]:
    """Resets append times and largest event times that are ahead of the clock to the clock's time.

    `topic_id` names the topic whose preview was seen, `partition` one partition. Partitions that another
    broker leads are not changed. Raises HttpError, UnknownTopicOrPartition.
    """
    topic = services.metadata.image.topics.get(given["topic"])
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic {given['topic'][:260]}")
    if given.get("topic_id") != str(topic.topic_id):
        raise HttpError(409, "OTHER_TOPIC", f"topic_id: the topic has the id {topic.topic_id}")
    index = given.get("partition")
    if index is not None and (type(index) is not int or not 0 <= index < topic.partitions):
        raise UnknownTopicOrPartition(f"partition={index!r}: the topic has {topic.partitions}")
    indexes = range(topic.partitions) if index is None else [index]
    found = leader_map(services, topic, indexes)
    leaders = {each: broker for broker, led in found.others.items() for each in led}
    rows = []
    for each in indexes:
        if each in found.here:
            row = await services.pools.maintenance.run_to_end(_reset, services, topic.name, each)
        elif each in found.unknown:
            row = _failed(each, found.unknown[each])
        else:
            row = _failed(each, NotLeaderOrFollower(f"broker {leaders[each]} leads it: ask there"))
        rows.append(row)
    return {
        "topic": topic.name,
        "topic_id": str(topic.topic_id),
        **time_fields("now", services.clock.now_ms()),
        "partitions": rows,
    }


def _reset(services: Services, topic: str, index: int) -> dict[str, Any]:
    try:
        partition = services.partitions.get(topic, index)
        reset = partition.append_clock.reset(services.clock.now_ms())
    except BrokerError as error:  # the other partitions are reset all the same
        return _failed(index, error)
    return {"partition": index, "reset": clock.reset_shown(reset)}


def _failed(index: int, error: BrokerError) -> dict[str, Any]:
    return {"partition": index, "error": error.code.name, "message": error.message}


def add_changes(app: Any, web: Any, services: Services) -> None:
    """Adds the changes to an application."""
    for route, change in ((ACCEPT_CLOCK, accept_clock), (RESET_TOPIC, reset_topic)):
        app.router.add_post(route.path, _handler(services, route, change, web))


def _handler(
    services: Services, route: Route, change: Change, web: Any
) -> Callable[[Any], Awaitable[Any]]:
    fields = tuple(each.name for each in route.fields)

    async def handle(request: Any) -> Any:
        host = local_peer(request)
        refuse_pages(request.headers, checks_host=True)
        if request.content_type != "application/json":
            raise HttpError(_FORBIDDEN, "FORBIDDEN", "a change is sent as application/json")
        session = Session(ANONYMOUS, host, _LISTENER)
        services.authorizer.require(session, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        route.read(request.query.items())
        given = fields_of(await body_of(request), fields)
        log.info("HTTP change requested", extra={"path": request.path, "host": host, **given})
        answer = await change(services, {**given, **request.match_info})
        return web.json_response(answer, dumps=json_line)

    return handle


def local_peer(request: Any) -> str:
    """Returns the address that a request came from; raises HttpError unless it is this machine's."""
    peer = request.transport.get_extra_info("peername") if request.transport else None
    host = str(peer[0]) if peer else ""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        address = None
    mapped = getattr(address, "ipv4_mapped", None) or address
    if mapped is None or not mapped.is_loopback:
        raise HttpError(
            _FORBIDDEN,
            "FORBIDDEN",
            f"a change is accepted from this machine alone, over loopback, and not from {host}",
        )
    return host
