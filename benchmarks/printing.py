"""Results that are printed as they come, one after the other: a line of a table or of JSON each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    Found = TypeVar("Found", bound=NamedTuple)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds the option that chooses between the two."""
    parser.add_argument("--json", action="store_true", help="print JSON lines instead of a table")


def print_each(
    found: Iterable[Found], head: str, line: Callable[[Found], str], *, as_json: bool
) -> None:
    """Prints what is found: below a `head` a `line` for each, or its fields as JSON."""
    if not as_json:
        print(head)
    for each in found:
        print(json.dumps(each._asdict()) if as_json else line(each), flush=True)
