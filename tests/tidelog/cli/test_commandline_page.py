"""docs/commandline.md and the command line: every command is there. `tests/docs` runs the page's examples."""

from __future__ import annotations

from pathlib import Path

from tidelog.cli.parser import _ASKING

PAGE = Path(__file__).parents[3] / "docs" / "commandline.md"


def test_every_command_there_is_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in _ASKING if name not in text] == []
