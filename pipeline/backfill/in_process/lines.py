"""What CSV and JSON lines share: how Spark cuts a file into lines, and the options of its readers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tidelog.pipeline.backfill.in_process.errors import NeedsSpark

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from tidelog.pipeline.jobs.backfill import BackfillOptions

_END: Final = re.compile(r"\r\n|\r|\n")
_BLANK: Final = "".join(map(chr, range(0x21)))
"""What Java trims."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_SHOWN: Final = 60
_MARK: Final = "\ufeff"


def of_file(path: Path) -> list[str]:
    """Returns the lines of a file that are not blank. Raises NeedsSpark for what is no plain text."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise NeedsSpark(f"{path} is not UTF-8") from None
    if _CONTROL.search(text) or text.startswith(_MARK):
        raise NeedsSpark(f"{path} contains control characters or a byte order mark")
    return [line for line in _END.split(text) if line.strip(_BLANK)]


def named(path: Path, line: str) -> str:
    """Returns the place of a line for messages, and its beginning."""
    number = _END.split(path.read_bytes().decode()).index(line) + 1
    return f"line {number} of {path} ({line[:_SHOWN]!r})"


def options_of(options: BackfillOptions, known: Collection[str]) -> Mapping[str, str]:
    """Returns the options of the reader, with names in lower case. Raises NeedsSpark for others."""
    given = {name.lower(): value for name, value in options.option}
    for name in given.keys() - set(known):
        raise NeedsSpark(f"--option {name} is given")
    return given


def is_set(given: Mapping[str, str], name: str) -> bool:
    """Returns whether an option is true. Raises NeedsSpark for a value that is neither."""
    value = given.get(name, "false").lower()
    if value not in {"true", "false"}:
        raise NeedsSpark(f"--option {name} is {value}")
    return value == "true"
