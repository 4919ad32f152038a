"""Writes the table of requests into docs/http.md, from broker/http/routes/declared.py.

Usage: derive_http.py [--check]. With --check nothing is written; exit status 1 means that the page is
stale. Only the lines between the two markers are derived.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tidelog.broker.http.routes.declared import ALWAYS, ROUTES
from tools.derived import between, write_or_check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog.broker.http.routes.route import Error, Route

PAGE = ROOT / "docs" / "http.md"
BEGIN = "<!-- requests: derived, see tools/derive_http.py -->\n"
END = "<!-- /requests -->\n"


def table() -> str:
    """Returns each request with its parameters, fields and errors as Markdown."""
    rows = ["| request, and what it may have | |", "|---|---|"]
    for route in ROUTES:
        rows += _rows(route)
    return "\n".join([*rows, "", f"Any request may also fail with {_listed(ALWAYS)}.", ""])


def _rows(route: Route) -> Iterator[str]:
    errors = f" Errors: {_listed(route.errors)}." if route.errors else ""
    yield f"| `{route.method} {route.path}` | {route.does}.{errors} |"
    for each in route.parameters:
        yield f"| `?{each.name}={each.written}` | {each.meaning} |"
    for each in route.fields:
        optional = "" if each.is_required else " (optional)"
        yield f'| `{{"{each.name}": {each.written}}}` | {each.meaning}{optional} |'


def _listed(errors: Iterable[Error]) -> str:
    by_status = groupby(sorted(errors), key=lambda error: error.status)
    return "; ".join(
        f"{status} {', '.join(f'`{error.name}`' for error in same)}" for status, same in by_status
    )


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, between(PAGE, BEGIN, END, table())))
