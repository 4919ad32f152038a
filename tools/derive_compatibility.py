"""Writes the APIs that are served, and those that are not, into docs/compatibility.md.

Usage: derive_compatibility.py [--check]. With --check nothing is written; exit status 1 means that
the page is stale. What is served is what protocol/api declares; Kafka's other APIs are those that kio
knows. Only the lines between the API markers are derived; the rest of the page is written by hand or by
the client matrix.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from kio.schema.index import api_key_map

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tidelog.protocol.message import served_apis
from tools.derived import between, write_or_check

PAGE = ROOT / "docs" / "compatibility.md"
BEGIN = "<!-- apis: derived, see tools/derive_compatibility.py -->\n"
END = "<!-- /apis -->\n"
_LAST = 92  # the last key of Kafka 4.1; a newer kio may know more


def table() -> str:
    """Returns the served APIs as a Markdown table."""
    rows = [
        "| key | API | versions | flexible from | largest request | most elements |",
        "|---|---|---|---|---|---|",
    ]
    for api in served_apis():
        flexible = "never" if api.first_flexible is None else api.first_flexible
        assert api.served is not None
        lowest, highest = api.served
        size = _size(api.request_bytes)
        cells = (
            api.key,
            api.name,
            f"{lowest}-{highest}",
            flexible,
            size,
            f"{api.request_elements:,}",
        )
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*rows, "", *textwrap.wrap(others(), 115)]) + "\n"


def others() -> str:
    """Returns a sentence with the APIs of Kafka that are not served."""
    served = {api.key for api in served_apis()}
    names = [
        f"{name.title().replace('_', '')} ({key})"
        for key, name in sorted(api_key_map.items())
        if key not in served and key <= _LAST
    ]
    return f"The other APIs of Kafka 4.1 are not served: {', '.join(names)}."


def _size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "socket.request.max.bytes"
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, between(PAGE, BEGIN, END, table())))
