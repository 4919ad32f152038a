"""From a frame to a response: decode, call the handler, encode, map errors, count.

`routes.py` finds the handler of a request: a function `(services, request, context)` that returns a response
message, a coroutine or `Pending` of one, or None (acks=0). It raises `BrokerError` for a request that fails
as a whole; its module's `refuse(request, error)` then makes the response that carries the code.

Error codes are written in two places only: here, and in `per_partition()`. An unexpected exception
is UNKNOWN_SERVER_ERROR, a logged traceback and a counter. A request that cannot be parsed, an
unknown API or version, and any error with acks=0 close the connection, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from tidelog.broker.network import routes, throttling
from tidelog.broker.network.accepting.admission import ASKED_BETWEEN_BROKERS, TOO_MANY
from tidelog.broker.network.answers import CloseConnection, Excessive, NoRoom, Pending
from tidelog.broker.network.context import Context
from tidelog.broker.network.encoded import Encoded, decode_in_steps, encode_in_steps
from tidelog.broker.network.per_partition import as_broker_error
from tidelog.broker.network.scheduler import is_in_slices
from tidelog.broker.security.authorizer import CLUSTER_NAME
from tidelog.protocol.message import (
    DecodeError,
    RequestHeader,
    TooMuch,
    api_of,
    read_request_header,
    response_header,
)
from tidelog.protocol.wire import Buffer

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tidelog.broker.network.context import ClientConnection
    from tidelog.broker.network.routes import Route
    from tidelog.broker.network.services import Services
    from tidelog.protocol.message import Message

log = logging.getLogger("tidelog.dispatch")

Answer = list[Buffer] | None
Coming = Coroutine[Any, Any, Answer] | Pending  # of an Answer
# Frames from this size on are decoded in steps.
_STEPS_BYTES = 4096
_COPIED_BYTES = 64 << 10  # of an answer, so that it is one buffer with its header
_WAITING = (1, 11, 14)  # Fetch, JoinGroup, SyncGroup: they wait for others
_MAYBE_SLOW_S = 0.01  # what takes less is not compared with the setting
# Small requests of Produce, Fetch and Heartbeat are the bulk of what is asked, and never take long: they
# are served at once. All others are served in slices.
_PLAIN = (0, 1, 12)
_PLAIN_BYTES = 1024


def dispatch(
    services: Services, connection: ClientConnection, frame: bytes | memoryview
) -> Answer | Coming:
    """Serves one frame (without its length).

    Returns the response's buffers, beginning with its length; None if there is no response; or an
    coroutine or `Pending` of one of these. Raises CloseConnection.
    """
    started_s = services.clock.monotonic_s()
    try:
        header = read_request_header(frame)
        if connection.is_over_limit and header.api_key not in ASKED_BETWEEN_BROKERS:
            raise NoRoom(TOO_MANY, TOO_MANY)
        route = routes.known.get((header.api_key, header.api_version)) or routes.route_of(header)
        if route.fixed is not None:
            return _encode(services, route, header, route.fixed, started_s)
        quota = None
        if services.metadata.image.quotas:
            quota = throttling.of_request(services, connection, header, len(frame), started_s)
        if quota is not None:
            route = quota.around(route)
        elif route.shortcut is not None:
            answer = route.shortcut(services, connection.session, header, frame)
            if answer is not None:
                connection.client_id = header.client_id
                if not isinstance(answer, list):
                    return _short_later(
                        services, route, Context(header, connection), answer, started_s
                    )
                taken_s = services.clock.monotonic_s() - started_s
                services.metrics.request_done(header.api_key, header.api_version, taken_s)
                return answer or None
    except DecodeError as error:
        raise _unparsable(error) from None
    connection.client_id = header.client_id
    context = Context(header, connection, quota)
    if header.api_key in _PLAIN and len(frame) <= _PLAIN_BYTES:
        return _serve(services, route, context, frame, started_s)
    return services.scheduler.serve(
        partial(_serve_in_slices, services, route, context, frame, started_s)
    )


def _unparsable(error: DecodeError) -> CloseConnection:
    text = f"unparsable request: {error}"
    return Excessive(text, text) if isinstance(error, TooMuch) else CloseConnection(text)


def _serve(
    services: Services, route: Route, context: Context, frame: bytes | memoryview, started_s: float
) -> Answer | Coming:
    """Decodes a request, asks for its rights, and calls its handler."""
    header = context.header
    try:
        if len(frame) >= _STEPS_BYTES:
            request: Message = decode_in_steps(route.request, frame, header.body_offset)
        else:
            request, _ = route.request.decode(frame, header.body_offset)
    except DecodeError as error:
        raise _unparsable(error) from None
    try:
        for need in route.needs:
            services.authorizer.require(
                context.session, need.operation, need.resource_type, CLUSTER_NAME
            )
        response = route.handle(services, request, context)
    except Exception as error:
        response = route.refuse(request, as_broker_error(services, error, route.name))
    if response is None:
        _count(services, header, started_s)
        return None
    if isinstance(response, CoroutineType):
        return _wait(services, route, header, request, response, started_s)
    if isinstance(response, Pending):
        finish = partial(_finish, services, route, header, request, response, started_s)
        return Pending(response.happened, finish, response.dropped)
    return _answer(services, route, header, request, response, started_s)


def _serve_in_slices(
    services: Services, route: Route, context: Context, frame: bytes | memoryview, started_s: float
) -> Answer | Coming:
    """Does what `_serve` does where it may pause, and whatever comes after a wait too."""
    return _in_slices(services, _serve(services, route, context, frame, started_s))


def _in_slices(services: Services, answer: Answer | Coming) -> Answer | Coming:
    """Returns the same answer, of which all that is still to be done may pause."""
    if isinstance(answer, CoroutineType):
        return services.scheduler.in_slices(answer)
    if isinstance(answer, Pending):
        later = answer

        def go_on() -> Answer | Coming:
            return _in_slices(services, later.finish())

        return Pending(later.happened, partial(services.scheduler.serve, go_on), later.dropped)
    return answer


def _finish(
    services: Services,
    route: Route,
    header: RequestHeader,
    request: Message,
    later: Pending,
    started_s: float,
) -> Answer | Coroutine[Any, Any, Answer]:
    """Finishes a request for which its handler has waited."""
    try:
        response = later.finish()
    except CloseConnection:
        raise
    except Exception as error:
        response = route.refuse(request, as_broker_error(services, error, route.name))
    if isinstance(response, CoroutineType):
        return _wait(services, route, header, request, response, started_s)
    return _answer(services, route, header, request, response, started_s)


async def _wait(
    services: Services,
    route: Route,
    header: RequestHeader,
    request: Message,
    pending: Awaitable[Message | None],
    started_s: float,
) -> Answer:
    """Finishes a request whose handler has to wait."""
    try:
        response = await pending
    except CloseConnection:
        raise
    except Exception as error:
        response = route.refuse(request, as_broker_error(services, error, route.name))
    if response is None:
        _count(services, header, started_s)
        return None
    return _answer(services, route, header, request, response, started_s)


def _short_later(
    services: Services, route: Route, context: Context, later: Pending, started_s: float
) -> Pending:
    """Returns the answer to a request for which its shortcut waits."""

    def finish() -> Answer:
        answer = later.finish()
        if not isinstance(answer, list):
            return _encode(services, route, context.header, answer(context), started_s)
        _count(services, context.header, started_s)
        return answer

    return later._replace(finish=finish)


def _count(services: Services, header: RequestHeader, started_s: float) -> None:
    """Counts a request that is done, with or without a response; logs a slow one."""
    taken_s = services.clock.monotonic_s() - started_s
    services.metrics.request_done(header.api_key, header.api_version, taken_s)
    if taken_s > _MAYBE_SLOW_S:
        _log_slow(services, header, taken_s)


def _log_slow(services: Services, header: RequestHeader, taken_s: float) -> None:
    limit_ms = services.config.limits.request_slow_log_ms
    api = api_of(header.api_key)
    if api is None or header.api_key in _WAITING or not 0 <= limit_ms < taken_s * 1000:
        return
    extra = {
        "api": api.name,
        "client": header.client_id,
        "version": header.api_version,
        "took_ms": round(taken_s * 1000),
    }
    log.warning("request was slow", extra=extra)


def _answer(
    services: Services,
    route: Route,
    header: RequestHeader,
    request: Message,
    response: Any,
    started_s: float,
) -> list[Buffer]:
    """Does what `_encode` does; what is left of a request that is served in slices is freed so, too."""
    answer = _encode(services, route, header, response, started_s)
    if is_in_slices():
        services.scheduler.leftovers.take(request, response)
    return answer


def _encode(
    services: Services, route: Route, header: RequestHeader, response: Any, started_s: float
) -> list[Buffer]:
    """Returns a response as buffers that begin with the frame's length.

    Raises CloseConnection for a response that its version cannot carry, which is a bug, and for one of
    more than ANSWER_BYTES.
    """
    parts: list[Buffer]
    try:
        if isinstance(response, Encoded):
            parts = [response.body]
        elif is_in_slices():
            parts = encode_in_steps(route.response, response, route.name)
        else:
            parts = route.response.encode_parts(response)
    except CloseConnection:
        raise
    except Exception as error:
        as_broker_error(services, error, f"encoding the answer of {route.name}")
        raise CloseConnection(f"no answer could be made to {route.name}") from None
    head = response_header(header.api_key, header.api_version, header.correlation_id)
    size = len(head)
    for part in parts:
        size += len(part)
    _count(services, header, started_s)
    if len(parts[0]) > _COPIED_BYTES:
        return [size.to_bytes(4, "big") + head, *parts]
    parts[0] = b"".join((size.to_bytes(4, "big"), head, parts[0]))
    return parts
