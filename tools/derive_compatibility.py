"""Writes the table of served APIs into docs/compatibility.md, from the dispatch table.

Usage: derive_compatibility.py [--check]. With --check nothing is written; exit status 1 says the page is
stale. Only the lines between the two API markers are derived; the rest of the page is written by hand
or by the client matrix.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from broker.network.dispatch import HANDLERS  # noqa: E402 - needs the path above
from protocol.message import api_of  # noqa: E402

PAGE = ROOT / "docs" / "compatibility.md"
BEGIN = "<!-- apis: derived, see tools/derive_compatibility.py -->\n"
END = "<!-- /apis -->\n"


def table() -> str:
    """The served APIs as a Markdown table."""
    rows = ["| key | API | versions | flexible from |", "|---|---|---|---|"]
    for key, handler in sorted(HANDLERS.items()):
        api = api_of(key)
        assert api is not None
        flexible = "never" if api.first_flexible is None else api.first_flexible
        versions = f"{handler.min_version}-{handler.max_version}"
        rows.append(f"| {key} | {api.name} | {versions} | {flexible} |")
    return "\n".join(rows) + "\n"


def derived(page: str) -> str:
    """The page with its API table replaced; ValueError if the markers are missing."""
    head, rest = page.split(BEGIN, 1)
    _, tail = rest.split(END, 1)
    return head + BEGIN + table() + END + tail


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    page = PAGE.read_text()
    fresh = derived(page)
    if "--check" in arguments:
        if fresh != page:
            print("docs/compatibility.md is stale: run `make derive`", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
