"""JSON over HTTP, as every HTTP listener of the broker sends it.

The body of an error is `{"error": NAME, "message": sentence}`. The status is 400, for a missing
object 404, for a log that cannot be read or a leader that does not answer 503, and 403 without the
right to a change, or for a request of a page in a browser if something can be changed (`browser_guard`).
Times are shown twice: as `*_ms`, exact, and as ISO 8601 in UTC.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from itertools import zip_longest
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tidelog.config.instants import to_iso
from tidelog.config.setting import closest
from tidelog.protocol.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    import logging
    import socket
    from collections.abc import Callable, Mapping, Sequence

_BODY_TIMEOUT_S = 10.0
_SHOWN = 80  # characters of a path
_COMPARED, _PARTS = 12, 8  # characters of a part of a path, and parts, to find the nearest one
_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.OFFSET_OUT_OF_RANGE: 404,
    ErrorCode.CORRUPT_MESSAGE: 503,
    ErrorCode.KAFKA_STORAGE_ERROR: 503,
    ErrorCode.LEADER_NOT_AVAILABLE: 503,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: 503,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.UNKNOWN_SERVER_ERROR: 500,
}


class HttpError(Exception):
    """A request that fails: the HTTP status, the error's name, and a sentence for the client."""

    def __init__(self, status: int, name: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.name = name


def json_line(answer: Any) -> str:
    """Returns a value as one line of JSON."""
    return json.dumps(answer) + "\n"


def time_fields(name: str, time_ms: int | None) -> dict[str, Any]:
    """Returns two fields for a time: `name_ms` in ms since the epoch, and `name` in ISO 8601."""
    return {f"{name}_ms": time_ms, name: to_iso(time_ms)}


def partition_number(text: str) -> int:
    """Parses the number of a partition. Raises HttpError."""
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise HttpError(
            404, "UNKNOWN_TOPIC_OR_PARTITION", f"{text[:40]!r} is no partition's number"
        )
    return int(text)


def browser_guard(web: Any, listening: socket.socket) -> Any:
    """Returns a middleware that refuses requests from a page in a browser.

    A browser names the page that requests a change (Origin, Sec-Fetch-Site); other programs do not
    send these headers. If a page's name was made to resolve to this machine, the browser sends that
    name as Host. So on loopback only this machine's own names and plain addresses are served.
    """
    address = listening.getsockname()[0]
    is_loopback = ipaddress.ip_address(address).is_loopback

    async def guard(request: Any, handler: Any) -> Any:
        refuse_pages(request.headers, checks_host=is_loopback)
        return await handler(request)

    return web.middleware(guard)


def refuse_pages(headers: Mapping[str, str], *, checks_host: bool) -> None:
    """Raises HttpError if the headers are those of a request from a page in a browser (`browser_guard`)."""
    if "Origin" in headers or headers.get("Sec-Fetch-Site", "none") != "none":
        raise HttpError(403, "FORBIDDEN", "pages in a browser are not answered here")
    if checks_host and not is_address_or_local(headers.get("Host")):
        raise HttpError(
            403,
            "FORBIDDEN",
            f"Host: {headers['Host'][:80]}: on loopback only localhost and plain addresses are answered",
        )


def is_address_or_local(host: str | None, names: frozenset[str] = frozenset()) -> bool:
    """Returns whether a Host header is missing, an address, localhost, or one of some names."""
    if host is None:  # HTTP/1.0; browsers always send a Host header
        return True
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
        if name == "localhost" or name.endswith(".localhost") or name in names:
            return True
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def body_of(request: Any) -> str:
    """Reads the text of a body. Raises HttpError if the body is not as long as its Content-Length."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            text: str = await request.text()
    except TimeoutError:
        raise HttpError(
            400,
            "BAD_REQUEST",
            f"the body has not come within {_BODY_TIMEOUT_S:g} s: Content-Length is {request.content_length}",
        ) from None
    except ConnectionError:
        raise HttpError(400, "BAD_REQUEST", "the client left before its body ended") from None
    return text


def fields_of(
    text: str, fields: tuple[str, ...] | None, *, may_be_empty: bool = False
) -> Mapping[str, Any]:
    """Parses a body, which is a JSON object with no other fields than `fields` (None: any).

    An empty body, if it `may_be_empty`, has no fields. Raises HttpError.
    """
    if may_be_empty and not text.strip():
        return {}
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, "BAD_JSON", f"the body is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise HttpError(400, "BAD_JSON", "the body is no JSON object")
    for name in given:
        if fields is not None and name not in fields:
            known = f"it may have {', '.join(fields)}" if fields else "it takes none"
            raise HttpError(
                400, "UNKNOWN_FIELD", f"{name[:40]!r} is no field of this request: {known}"
            )
    return given


def error_middleware(
    web: Any,
    log: logging.Logger,
    paths: Sequence[str],
    failed: Callable[[], None] | None = None,
) -> Any:
    """Returns a middleware that answers every error as JSON; `paths` are those of the routes.

    Calls `failed` for unexpected errors.
    """

    async def answer(request: Any, handler: Any) -> Any:
        headers = {}
        try:
            return await handler(request)
        except HttpError as refused:
            status, name, sentence = refused.status, refused.name, str(refused)
        except BrokerError as error:
            status, name, sentence = _STATUS.get(error.code, 400), error.code.name, error.message
        except ValueError as error:
            status, name, sentence = 400, "BAD_REQUEST", str(error)
        except web.HTTPMethodNotAllowed as error:
            status, name = 405, "METHOD_NOT_ALLOWED"
            headers["Allow"] = ", ".join(sorted(error.allowed_methods))
            sentence = f"{request.path[:_SHOWN]} takes {headers['Allow']}"
        except web.HTTPNotFound:
            status, name, sentence = 404, "NOT_FOUND", not_found(request.path, paths)
        except web.HTTPException as error:
            status, name, sentence = error.status, "BAD_REQUEST", error.reason
        except Exception:
            log.exception("HTTP request failed", extra={"path": request.path[:_SHOWN]})
            if failed is not None:
                failed()
            status, name, sentence = 500, "UNKNOWN_SERVER_ERROR", "unexpected error: see the log"
        said = {"error": name, "message": sentence}
        return web.json_response(said, status=status, headers=headers, dumps=json_line)

    return web.middleware(answer)


def not_found(path: str, paths: Sequence[str]) -> str:
    """Returns the sentence of a 404 for a path, with the most similar of the paths of routes."""
    path = path[:_SHOWN]
    parts = [part[:_COMPARED] for part in path.split("/")[:_PARTS]]  # more would hold up the broker
    filled = {}
    for each in paths:
        pairs = zip_longest(each.split("/"), parts, fillvalue="")
        own = [given if name.startswith("{") else name for name, given in pairs]
        filled["/".join(own).rstrip("/")] = each
    near = closest("/".join(parts), filled)
    meant = f"did you mean {filled[near]}?" if near else f"there are {', '.join(paths)}"
    return f"nothing is at {path}: {meant}"
