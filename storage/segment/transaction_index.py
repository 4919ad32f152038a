"""`.txnindex` files: the transactions whose abort marker is in a segment, in Kafka's own format.

An entry is int16 version (0), int64 producer id, int64 first and last offset of the transaction,
and int64 last stable offset when it was aborted. Entries are in the order of their markers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from storage import files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size


class Aborted(NamedTuple):
    """An aborted transaction; `last_offset` is the offset of its marker."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse(data: bytes) -> list[Aborted]:
    """Returns every whole entry, unchecked; a torn last one is ignored."""
    whole = len(data) // ENTRY_SIZE * ENTRY_SIZE
    return [Aborted(*fields) for fields in _ENTRY.iter_unpack(data[:whole])]


def pack(entries: Iterable[Aborted]) -> bytes:
    """Returns the bytes of the file."""
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def truncate(path: Path, end_offset: int) -> None:
    """Drops the transactions whose marker lies at or behind an offset; raises OSError.

    Nothing where there is no file. The file is replaced, and made durable with its directory.
    """
    try:
        entries = parse(path.read_bytes())
    except FileNotFoundError:
        return
    kept = [entry for entry in entries if entry.last_offset < end_offset]
    if len(kept) < len(entries):
        files.replace(path, pack(kept), durable=False)
