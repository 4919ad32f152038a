r"""Reads Java .properties files as java.util.Properties does.

A line is `key=value`, `key:value` or `key value`. Lines that begin with # or ! are comments. A line
that ends in an odd number of backslashes continues in the next one, whose leading blanks are
skipped. Escapes are \t \n \r \f \uXXXX; any other escaped character stands for itself. If a key is
given twice, the last value counts. The text is UTF-8.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLANKS = " \t\f"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")
# The key: escaped characters or anything but a separator; then the separator itself.
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """Returns the properties in `text`, in order of first appearance."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        matched = _KEY.match(line)
        assert matched is not None  # the pattern matches the empty string
        found[_unescaped(matched[1])] = _unescaped(line[matched.end() :])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Returns the lines, with continuations joined, without blank lines and comments."""
    pending = ""
    continuing = False
    for raw in _LINE_END.split(text):
        line = raw.lstrip(_BLANKS)
        if not continuing and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        continuing = trailing % 2 == 1
        pending += line[:-1] if continuing else line
        if not continuing:
            yield pending
            pending = ""
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _CONTROL.get(escape, escape)
