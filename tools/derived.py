"""What the tools that derive pages share: they write a page, or check that it is not stale.

    if __name__ == "__main__":
        sys.exit(write_or_check(PAGE, page()))

A tool writes its pages. With `--check` it writes nothing, names those that are stale, and exits with
status 1 if there are any.
"""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def write_or_check(page: Path, text: str) -> int:
    """Gives a page this text, or with `--check` compares it; returns the exit status."""
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{page.relative_to(_ROOT)} is stale: run make derive", file=sys.stderr)
        return 1
    page.write_text(text, encoding="utf-8")
    return 0


def between(page: Path, begin: str, end: str, text: str) -> str:
    """Returns the text of a page with `text` between two marks. Raises ValueError without them."""
    head, rest = page.read_text(encoding="utf-8").split(begin, 1)
    _, tail = rest.split(end, 1)
    return head + begin + text + end + tail
