r"""Names and sentences from the wire, made fit for a terminal.

Clients choose group ids, client ids, transactional ids and metadata, and another broker chooses what its
topics are called. Control characters in them would be commands to the terminal, and a line break would
forge a line. Everything that is not printable is shown as Python writes it: ESC is `\x1b`.
"""

from __future__ import annotations

import json
from typing import Any


def escaped(text: str) -> str:
    """Returns text as one printable line."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def escaped_lines(text: str) -> str:
    """Returns text whose line breaks stay, such as a cell of a table with two lines."""
    return "\n".join(map(escaped, text.split("\n")))


_to_json = json.JSONEncoder(ensure_ascii=False).encode


def as_json(value: Any) -> str:
    """Returns JSON in one line. Readable text stays as it is; what is not printable is escaped."""
    text = _to_json(value)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
