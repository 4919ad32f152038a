"""Encodes the values of keys: JSON objects in UTF-8, without spaces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tidelog.broker.metadata.store import Put

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_encode = json.JSONEncoder(separators=(",", ":")).encode


def put(key: str, value: Mapping[str, object]) -> Put:
    """Returns the operation that writes a value."""
    return Put(key, _encode(value).encode())


def text(value: object) -> str:
    """Returns a JSON value that must be a string. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def numbers(values: Iterable[object]) -> tuple[int, ...]:
    """Returns JSON values that must be integers. Raises TypeError for anything else."""
    found = []
    for value in values:
        if not isinstance(value, int):
            raise TypeError(f"{value!r} is no whole number")
        found.append(value)
    return tuple(found)
