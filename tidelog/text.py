"""What commands and jobs have in common in the text that they read and print."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SIGNED = re.compile(r"-[0-9]")  # a time such as -2h or -0044-03-15T12:00Z, not an option
_OPTION = re.compile(r"--[a-z-]+")
_UNIT = 1024


def with_signed_values(arguments: Sequence[str]) -> list[str]:
    """Joins `--at -2h` to `--at=-2h`, which argparse would take for two options."""
    joined: list[str] = []
    for argument in arguments:
        if _SIGNED.match(argument) and joined and _OPTION.fullmatch(joined[-1]):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns a hint that names the known word that is most like another; empty if none is like it."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), 1)
    return f": did you mean {near[0]}?" if near else ""


def size_of(count: float) -> str:
    """Returns a number of bytes as text: `12 B`, `3.4 KiB`, `1.2 GiB`."""
    if abs(count) < _UNIT:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= _UNIT
        if abs(count) < _UNIT:
            return f"{count:.1f} {unit}"
    return f"{count / _UNIT:.1f} TiB"


def first_of(names: Sequence[str], most: int = 5) -> str:
    """Returns the first of some names as text: `a, b and 3 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def some(count: int, what: str) -> str:
    """Returns a count with its noun: `1 record`, `2,000 records`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def are(count: int, what: str) -> str:
    """Returns a count with its noun and its verb: `1 record is`, `2,000 records are`."""
    return f"{some(count, what)} {'is' if count == 1 else 'are'}"
