"""From a frame to a response: decode, call the handler, encode, map errors, count.

`routes.py` finds the handler of a request: a function `(services, request, context)` that returns a response
or a `Pending` (`answers.py`), or a coroutine of one, which becomes a `Pending` here and nowhere else. It
raises `BrokerError` for a request that fails as a whole; its module's `refuse(request, error)` then makes the
response that carries the code.

Error codes are written in two places only: here, and in `per_partition()`. An unexpected exception
is UNKNOWN_SERVER_ERROR, a logged traceback and a counter. A request that cannot be parsed, an
unknown API or version, and any error with acks=0 close the connection, as in Kafka.
"""

from __future__ import annotations

import logging
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.network import routes, throttling
from tidelog.broker.network.accepting.admission import ASKED_BETWEEN_BROKERS, TOO_MANY
from tidelog.broker.network.answers import CloseConnection, Encoded, Excessive, NoRoom, Pending
from tidelog.broker.network.context import Context
from tidelog.broker.network.encoded import decode_in_steps, encode_in_steps
from tidelog.broker.network.per_partition import as_broker_error
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
    from collections.abc import Callable

    from tidelog.broker.network.context import ClientConnection
    from tidelog.broker.network.encoded import Decoding
    from tidelog.broker.network.routes import Route
    from tidelog.broker.network.services import Services
    from tidelog.protocol.message import Message

log = logging.getLogger("tidelog.dispatch")

Answer = list[Buffer] | None
# Frames from this size on are decoded in steps.
_STEPS_BYTES = 4096
_COPIED_BYTES = 64 << 10  # of an answer, so that it is one buffer with its header
_WAITING = (1, 11, 14)  # Fetch, JoinGroup, SyncGroup: they wait for others
_MAYBE_SLOW_S = 0.01  # what takes less is not compared with the setting
# Requests of Produce, Fetch and Heartbeat are the bulk of what is asked: those that name few partitions are
# served by calls alone. All others are coroutines, which are served in slices.
_PLAIN = (0, 1, 12)
_PRODUCE = 0  # its records make it long, however few partitions it has
_PLAIN_STEPS = 4  # a decoder stops before the first topic, and before the first partition of each


def dispatch(
    services: Services, connection: ClientConnection, frame: bytes | memoryview
) -> Answer | Pending:
    """Serves one frame (without its length).

    Returns the response's buffers, beginning with its length; None if there is no response; or a `Pending` of
    one of these. Raises CloseConnection.
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
            response = route.shortcut(services, connection, header, frame)
            if response is not None:
                connection.client_id = header.client_id
                if isinstance(response, Pending):
                    return _short_later(services, route, header, response, started_s)
                return _encode(services, route, header, response, started_s)
    except DecodeError as error:
        raise _unparsable(error) from None
    connection.client_id = header.client_id
    context = Context(header, connection, quota)
    if header.api_key in _PLAIN and (len(frame) < _STEPS_BYTES or header.api_key == _PRODUCE):
        return _serve_plain(services, route, context, frame, started_s)
    return services.scheduler.serve(_serve(services, route, context, frame, started_s))


def _unparsable(error: DecodeError) -> CloseConnection:
    text = f"unparsable request: {error}"
    return Excessive(text, text) if isinstance(error, TooMuch) else CloseConnection(text)


def _serve_plain(
    services: Services, route: Route, context: Context, frame: bytes | memoryview, started_s: float
) -> Answer | Pending:
    """Serves a request without a coroutine, unless it has many elements or its handler needs one."""
    try:
        if len(frame) < _STEPS_BYTES:
            request, _ = route.request.decode(frame, context.header.body_offset)
        else:
            steps = route.request.decode_in_steps(frame, context.header.body_offset)
            for _ in range(_PLAIN_STEPS):
                next(steps)
            return services.scheduler.serve(
                _serve(services, route, context, frame, started_s, steps)
            )
    except StopIteration as end:
        request = end.value[0]
    except DecodeError as error:
        raise _unparsable(error) from None
    response = _handle(services, route, context, request)
    if isinstance(response, Pending | CoroutineType):
        return _answer(_Call(services, route, context.header, request, started_s), response)
    return _encode(services, route, context.header, response, started_s)


async def _serve(
    services: Services,
    route: Route,
    context: Context,
    frame: bytes | memoryview,
    started_s: float,
    steps: Decoding | None = None,
) -> Answer | Pending:
    """Serves a request that may be long: others have their turn in between, also between `steps`."""
    header = context.header
    try:
        if len(frame) >= _STEPS_BYTES:
            steps = steps or route.request.decode_in_steps(frame, header.body_offset)
            request: Message = await decode_in_steps(steps)
        else:
            request, _ = route.request.decode(frame, header.body_offset)
    except DecodeError as error:
        raise _unparsable(error) from None
    response = _handle(services, route, context, request)
    return await _answer_in_steps(_Call(services, route, header, request, started_s), response)


class _Call(NamedTuple):
    """A request that its handler has to answer."""

    services: Services
    route: Route
    header: RequestHeader
    request: Any
    started_s: float

    def refuse(self, error: Exception) -> Any:
        """Returns the response to a request that has failed as a whole."""
        return _refuse(self.services, self.route, self.request, error)


def _refuse(services: Services, route: Route, request: Any, error: Exception) -> Any:
    return route.refuse(request, as_broker_error(services, error, route.name))


def _handle(services: Services, route: Route, context: Context, request: Any) -> Any:
    """Asks for the rights of a request, and calls its handler."""
    try:
        for need in route.needs:
            services.authorizer.require(
                context.session, need.operation, need.resource_type, CLUSTER_NAME
            )
        return route.handle(services, request, context)
    except Exception as error:
        return _refuse(services, route, request, error)


def _answer(call: _Call, response: Any) -> Answer | Pending:
    """Returns the answer to a short request, for which a coroutine is needed only if its handler is one."""
    if isinstance(response, Pending):
        finish = partial(_finish, call, response, _answer)
        return Pending(response.happened, finish, response.dropped, response.is_stored)
    if isinstance(response, CoroutineType):
        return call.services.scheduler.serve(_answer_in_steps(call, response))
    return _encode(call.services, call.route, call.header, response, call.started_s)


async def _answer_in_steps(call: _Call, response: Any) -> Answer | Pending:
    """Returns the answer to a request, in steps."""
    services, route, header, _, started_s = call
    if isinstance(response, CoroutineType):
        try:
            response = await response
        except CloseConnection:
            raise
        except Exception as error:
            response = call.refuse(error)
            if isinstance(response, CoroutineType):
                response = await response
    if isinstance(response, Pending):
        return response._replace(finish=partial(_finish, call, response, _serve_answer))
    if isinstance(response, Encoded):
        return _encode(services, route, header, response, started_s)
    try:
        parts = await encode_in_steps(route.response, response, route.name)
    except CloseConnection:
        raise
    except Exception as error:
        raise _not_encoded(services, route, error) from None
    return _framed(services, header, parts, started_s)


def _serve_answer(call: _Call, response: Any) -> Answer | Pending:
    return call.services.scheduler.serve(_answer_in_steps(call, response))


def _finish(
    call: _Call, pending: Pending, answer: Callable[[_Call, Any], Answer | Pending]
) -> Answer | Pending:
    """Finishes a request for which its handler has waited."""
    try:
        response = pending.finish()
    except CloseConnection:
        raise
    except Exception as error:
        response = call.refuse(error)
    return answer(call, response)


def _short_later(
    services: Services, route: Route, header: RequestHeader, later: Pending, started_s: float
) -> Pending:
    """Returns the answer to a request for which its shortcut waits."""

    def finish() -> Answer:
        return _encode(services, route, header, later.finish(), started_s)

    return Pending(later.happened, finish, later.dropped, later.is_stored)


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


def _encode(
    services: Services, route: Route, header: RequestHeader, response: Any, started_s: float
) -> Answer:
    """Returns a response as buffers that begin with the frame's length; None for no response.

    Raises CloseConnection for a response that its version cannot carry, which is a bug.
    """
    if isinstance(response, Encoded):
        if response.is_frame:
            _count(services, header, started_s)
            return [response.body] if response.body else None
        return _framed(services, header, [response.body], started_s)
    try:
        parts = route.response.encode_parts(response)
    except Exception as error:
        raise _not_encoded(services, route, error) from None
    return _framed(services, header, parts, started_s)


def _not_encoded(services: Services, route: Route, error: Exception) -> CloseConnection:
    """Logs that no response could be encoded; returns why the connection is closed."""
    as_broker_error(services, error, f"encoding the answer of {route.name}")
    return CloseConnection(f"no answer could be made to {route.name}")


def _framed(
    services: Services, header: RequestHeader, parts: list[Buffer], started_s: float
) -> list[Buffer]:
    """Returns the parts of a response's body with its length and its header before them."""
    head = response_header(header.api_key, header.api_version, header.correlation_id)
    size = len(head)
    for part in parts:
        size += len(part)
    _count(services, header, started_s)
    if len(parts[0]) > _COPIED_BYTES:
        return [size.to_bytes(4, "big") + head, *parts]
    parts[0] = b"".join((size.to_bytes(4, "big"), head, parts[0]))
    return parts
