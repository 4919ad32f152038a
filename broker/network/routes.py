"""Which handler serves a request: the routes of the APIs that protocol/api declares.

The handler of an API is the file of the same name in broker/api, imported with the first request.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.network.answers import NotServed
from tidelog.protocol.acl import ResourceType
from tidelog.protocol.message import API_VERSIONS, api_of, codec

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tidelog.broker.network.answers import Encoded, Pending
    from tidelog.broker.network.context import Context
    from tidelog.protocol.acl import Need
    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.message import Api, Codec, Message, RequestHeader

# The modules that can serve a request of the most frequent shape without message objects: their
# `shortcut` returns None if the request has to take the ordinary path.
_SHORTCUTS = {0: "produce_single", 8: "offset_commit_single"}


class Route(NamedTuple):
    """Everything that is needed to serve one API in one version."""

    name: str
    request: Codec
    response: Codec
    handle: Callable[[Any, Any, Context], Any]  # of the services, the request and its context
    refuse: Callable[[Any, BrokerError], Any]
    # Of the services, the connection, the header and the frame; None if the handler has to serve the request.
    shortcut: Callable[[Any, Any, RequestHeader, Any], Encoded | Pending | None] | None = None
    needs: tuple[Need, ...] = ()  # the rights on the cluster that every request requires
    fixed: Message | None = None  # the response, whatever the body of the request is


known: dict[tuple[int, int], Route] = {}
"""Those that are made already, by API key and version."""
_wrapped: Callable[[Route], Route] | None = None


def wrap(wrapper: Callable[[Route], Route] | None) -> None:
    """Replaces every route by what `wrapper` returns for it from now on, to add faults; None ends that."""
    global _wrapped  # noqa: PLW0603 - one table of routes, one who wraps them
    _wrapped = wrapper
    known.clear()


def handler_of(api: Api) -> ModuleType:
    """Returns the module that serves an API; imported on first use, to keep the start short."""
    return import_module(f"..api.{api.module}", __package__)


def route_of(header: RequestHeader) -> Route:
    """Returns the route of a request, compiled on first use if its version is served.

    Raises NotServed for an API or version that is not served.
    """
    version = header.api_version
    api = api_of(header.api_key)
    if api is None or api.served is None:
        what = f"unknown API key {header.api_key}"
        raise NotServed(f"{what} (version {version})", what)
    is_served = api.served[0] <= version <= api.served[1]
    if not is_served and header.api_key != API_VERSIONS:
        of = f"API key {header.api_key} has no"
        raise NotServed(f"{of} version {version} here", f"{of} such version")
    module = handler_of(api)
    if not is_served:
        version = 0  # KIP-511: the body is not parsed, the response has version 0 and error 35
    short = _SHORTCUTS.get(header.api_key)
    route = Route(
        api.name,
        codec(api.request, version),
        codec(api.response, version),
        module.handle,
        module.refuse,
        import_module(f"..api.{short}", __package__).shortcut if short else None,
        tuple(
            need
            for need in api.needs
            if need.resource_type is ResourceType.CLUSTER and not need.by_handler
        ),
        None if is_served else module.unsupported_version(),
    )
    if _wrapped is not None:
        route = _wrapped(route)
    if is_served:  # clients may ask for any number of unknown versions
        known[header.api_key, header.api_version] = route
    return route
