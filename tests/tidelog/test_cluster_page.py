"""Pages and tests: every fault of docs/cluster.md names the test that holds its promise, and it exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
HEAD = re.compile(r"^\| fault \|.*\| held by \|\n(?:\|---)+\|\n", re.MULTILINE)
NOT_HELD = "not held by a test: nothing is promised"


def missing(text):
    """Returns the tests that a text names and that do not exist."""
    found = []
    for path, name in NAMED.findall(text):
        file = ROOT / path
        if not file.is_file() or (
            name and not re.search(rf"def {name}\(", file.read_text(encoding="utf-8"))
        ):
            found.append(f"{path}::{name}")
    return found


def test_every_fault_names_the_test_that_holds_its_promise():
    text = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    tables = HEAD.split(text)[1:]
    assert len(tables) == len(re.findall(r"\| held by \|", text)) > 1
    rows = [row for table in tables for row in table.split("\n\n")[0].splitlines()]
    assert len(rows) > 50
    for row in rows:
        held_by = row.rstrip(" |").rpartition("| ")[2]
        assert held_by == NOT_HELD or NAMED.fullmatch(held_by), row
    assert sum(NOT_HELD in row for row in rows) == 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_that_a_page_names_exists(page):
    assert missing(page.read_text(encoding="utf-8")) == []


def test_a_test_that_was_renamed_is_noticed():
    here = "tests/tidelog/test_cluster_page.py"
    name = test_a_test_that_was_renamed_is_noticed.__name__
    assert missing(f"`{here}` `{here}::{name}`") == []
    assert missing(f"`{here}::{name}_before`") == [f"{here}::{name}_before"]
    assert missing("`tests/tidelog/test_of_another_page.py`") != []
