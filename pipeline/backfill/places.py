"""Says where in a table something is: the line or row of a file, else what the row contains."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN: Final = 60


def shown(text: str) -> str:
    """Returns the beginning of a line or a value, in quotes."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def path_of(file: str) -> str:
    """Returns the path of a file that Spark names by its URI, if it is a local one, else the URI."""
    return unquote(urlsplit(file).path) if file.startswith("file:") else file


def place_of(file: str | None, row: int | None, text: str, value: object) -> str:
    """Returns the place of a row with its value: `row` counts from 1; `text` is what is wrong in it.

    Without a number it is the first line of a file that has this text and those in the value.
    """
    content = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    if not file:
        return f"the row is {shown(content)}"
    path = path_of(file)
    if row is not None:
        return f"row {row} of {path}"
    line = _line_with(path, [text, *_texts(content)])
    return f"{path}, {shown(content)}" if line is None else f"line {line} of {path}"


def _texts(content: str) -> list[str]:
    try:
        fields = json.loads(content)
    except ValueError:
        return []
    return [one for one in fields.values() if isinstance(one, str)] if type(fields) is dict else []


def _line_with(path: str, texts: Sequence[str]) -> int | None:
    forms = [re.compile(rf"(?<!\w){re.escape(text)}(?!\w)") for text in texts]
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            numbered = enumerate(lines, 1)
            return next((n for n, line in numbered if all(one.search(line) for one in forms)), None)
    except OSError:
        return None
