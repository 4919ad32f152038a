"""Says where in a table something is: the line or row of a file, else what the row contains."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_SHOWN: Final = 60


def shown(text: str) -> str:
    """Returns the beginning of a line or a value, in quotes."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def path_of(file: str) -> str:
    """Returns the path of a file that Spark names by its URI, if it is a local one, else the URI."""
    return unquote(urlsplit(file).path) if file.startswith("file:") else file


def place_of(file: str | None, row: int | None, text: str | None, value: object) -> str:
    """Returns the place of a row with its value: `row` counts from 1; `text` is what is wrong in it.

    Without a number it is the line of the file with this text, if there is one only.
    """
    content = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    if not file:
        return f"the row is {shown(content)}"
    path = path_of(file)
    if row is not None:
        return f"row {row} of {path}"
    line = _line_with(path, text) if text else None
    return f"{path}, {shown(content)}" if line is None else f"line {line} of {path}"


def _line_with(path: str, text: str) -> int | None:
    found = None
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if text in line:
                    if found is not None:
                        return None
                    found = number
    except OSError:
        return None
    return found
