"""docs/cluster.md: each promise names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cluster.md"
HELD_BY = re.compile(r"\| `(tests/[\w/]+\.py)::(\w+)` \|$", re.MULTILINE)


def test_every_promise_is_held_by_a_test():
    text = PAGE.read_text(encoding="utf-8")
    _, _, promises = text.partition("| fault | promise | held by |\n|---|---|---|\n")
    rows = promises.split("\n\n")[0].splitlines()
    named = HELD_BY.findall(text)
    assert len(named) == len(rows) > 10
    for path, name in named:
        assert re.search(rf"def {name}\(", (ROOT / path).read_text(encoding="utf-8")), (path, name)
