"""The index at / and /v1: every route with its purpose, as JSON, or as a small page for a browser."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.broker.http.answers import json_line
from tidelog.broker.http.routes.declared import OPENAPI, ROUTES

if TYPE_CHECKING:
    from tidelog.broker.http.services import Services

DOCS: Final = "docs/http.md"


class Page(NamedTuple):
    """A route beside those of `declared`."""

    path: str
    does: str
    method: str = "GET"


PAGES: Final = (
    Page("/", "Lists what this port answers; so does /v1"),
    Page("/metrics", "Returns what is counted, for Prometheus"),
    Page("/healthz", "Says whether the process serves"),
    Page("/readyz", "Says whether clients may connect, or why not"),
    Page(OPENAPI, "Describes /v1 as OpenAPI 3.1"),
)
ALSO: Final = "/v1"
PATHS: Final = (ALSO, *(each.path for each in (*PAGES, *ROUTES)))

_HTML: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>tidelog</title>
<h1>tidelog</h1>
<p>What this port answers; {docs} of the distribution has examples.</p>
<table>
{rows}</table>
</html>
"""


def as_json() -> str:
    """Returns the index as a line of JSON."""
    routes = [
        {"method": each.method, "path": each.path, "does": f"{each.does}."}
        for each in (*PAGES, *ROUTES)
    ]
    return json_line({"docs": DOCS, "openapi": OPENAPI, "routes": routes})


def as_html() -> str:
    """Returns the index as an HTML page; routes that a browser can open are links."""
    rows = "".join(map(_row, (*PAGES, *ROUTES)))
    return _HTML.format(docs=DOCS, rows=rows)


def _row(route: Any) -> str:
    name = html.escape(f"{route.method} {route.path}")
    if route.method == "GET" and "{" not in route.path:
        name = f'<a href="{html.escape(route.path)}">{name}</a>'
    return f"<tr><td>{name}<td>{html.escape(route.does)}.\n"


def add_index(app: Any, web: Any, services: Services) -> None:
    """Adds the index and the description of /v1 to an application."""

    async def index(request: Any) -> Any:
        is_page = "text/html" in request.headers.get("Accept", "")
        body, content_type = (
            (as_html(), "text/html") if is_page else (as_json(), "application/json")
        )
        answer = web.Response(text=body, content_type=content_type)
        answer.headers["Vary"] = "Accept"
        answer.headers["Content-Security-Policy"] = "default-src 'none'"
        return answer

    async def description(_request: Any) -> Any:
        text = await services.pools.metrics.run(_description)
        return web.Response(text=text, content_type="application/json")

    for path in ("/", ALSO):
        app.router.add_get(path, index)
    app.router.add_get(OPENAPI, description)


def _description() -> str:
    from tidelog.broker.http.routes import openapi  # few ask for it

    return openapi.text()
