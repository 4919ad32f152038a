"""The code blocks of the project's pages: of which language they are, and what a comment before them says.

An indented block, and a fenced one without a language, is for a shell: its lines are commands, or those that
begin with `$ ` are, and what stands below them is what they print. A block of Python is a program. Comments
before a block may say

    <!-- not run: why -->            `test_pages.py` leaves it out
    <!-- first: a command -->        what has to be done before, and a reader need not see
    <!-- requests: a test -->        that test makes the page's requests by curl, and judges the answers
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FENCE = re.compile(r" *```(\w*)$")
_INDENT = " " * 4
_COMMENT = re.compile(r" *<!-- (not run|first|requests): (.*) -->$")
_HERE = re.compile(r"<<-?\s*'?(\w+)'?")


class Block(NamedTuple):
    """A code block, and what the comments before it say."""

    line: int
    language: str
    text: str
    reason: str | None
    first: list[str]

    @property
    def is_run(self) -> bool:
        """Whether it is something to run, and no comment says why it is not."""
        return self.language in ("", "sh", "python") and self.reason is None

    def commands(self) -> Iterator[tuple[str, str]]:
        """Yields each command with what it prints, as far as the page shows it."""
        if self.language == "python":
            is_test = "def test_" in self.text
            name, runs = ("test_it.py", "-m pytest -q") if is_test else ("it.py", "")
            yield f"cat > {name} <<'END'\n{self.text}\nEND\npython3 {runs} {name}", ""
            return
        lines = self.text.splitlines()
        has_prompts = any(line.startswith("$ ") for line in lines)
        while lines:
            line = lines.pop(0)
            if not line.strip():
                continue
            command = [line.removeprefix("$ ")]
            end = _HERE.search(line)
            while (end and command[-1] != end[1]) or command[-1].endswith("\\"):
                command.append(lines.pop(0))
            shown = []
            while has_prompts and lines and not lines[0].startswith("$ "):
                shown.append(lines.pop(0))
            yield "\n".join(command), "\n".join(shown).rstrip()


def blocks_of(page: Path) -> Iterator[Block]:
    """Yields the code blocks of a page in their order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    reason: str | None = None
    requests: str | None = None
    first: list[str] = []
    at = 0
    while at < len(lines):
        begun, line = at, lines[at]
        at += 1
        if said := _COMMENT.match(line):
            if said[1] == "first":
                first.append(said[2])
            elif said[1] == "requests":
                requests = said[2]
            else:
                reason = said[2]
            continue
        if fence := _FENCE.match(line):
            while lines[at].strip() != "```":
                at += 1
            at += 1
            text, language = lines[begun + 1 : at - 1], fence[1]
        elif line.startswith(_INDENT) and _may_begin(lines[begun - 1]):
            while at < len(lines) and (lines[at].startswith(_INDENT) or not lines[at].strip()):
                at += 1
            text, language = lines[begun:at], ""
        else:
            if line.strip():
                reason, first = None, []
            continue
        plain = textwrap.dedent("\n".join(text)).strip("\n")
        if plain.startswith("curl "):
            reason = reason or requests
        yield Block(begun + 1, language, plain, reason, first)
        reason, first = None, []


def _may_begin(before: str) -> bool:
    """Whether an indented block may begin behind this line; elsewhere it continues a paragraph."""
    return not before.strip() or _COMMENT.match(before) is not None
