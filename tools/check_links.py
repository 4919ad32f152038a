"""Checks that every relative link of the project's pages leads to a file, and to a heading in it.

`python tools/check_links.py` prints the links that lead nowhere, and exits with status 1 if there
are any. Anchors are those that GitHub makes of headings. Code blocks are left out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?)\s*$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {4}.*$", re.MULTILINE)


def pages(root: Path) -> Iterator[Path]:
    """Yields the pages of the project; folders that begin with a dot hold none."""
    for path in sorted(root.rglob("*.md")):
        if not any(part.startswith(".") for part in path.relative_to(root).parts[:-1]):
            yield path


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings; the second of a name ends in -1, and so on."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = _LINK.sub("]", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (one := anchor if not number else f"{anchor}-{number}") in found:
            number += 1
        found.add(one)
    return found


def broken(page: Path) -> Iterator[str]:
    """Yields a sentence for each link of a page that leads nowhere."""
    text = page.read_text(encoding="utf-8")
    for target in _LINK.findall(_INDENTED.sub("", _FENCE.sub("", text))):
        if ":" in target.split("/")[0]:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists():
            yield f"{target}: there is no such file"
        elif anchor and there.suffix == ".md" and anchor not in anchors(there.read_text("utf-8")):
            yield f"{target}: that page has no such heading"


def main() -> int:
    """Prints the broken links; returns the exit status."""
    found = [f"{page.relative_to(ROOT)}: {said}" for page in pages(ROOT) for said in broken(page)]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
