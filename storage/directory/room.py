"""Which log directories have no room for records, as far as appends and reserves have found out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage import reserves

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tidelog.storage.log.partition import Partition

_LEAST_BYTES = 1 << 20  # less is as good as nothing to appends


def is_short(path: Path, opened: Iterable[Partition]) -> bool:
    """Returns whether writes to a log directory fail for lack of space."""
    return reserves.of(path).is_given_up or any(True for _ in _full(path, opened))


def note(path: Path, opened: Iterable[Partition]) -> None:
    """Tells the logs of a directory that they are full no more, if there is room for records."""
    full = list(_full(path, opened))
    if full and reserves.free_bytes(path) >= _LEAST_BYTES:
        for each in full:
            each.note_room()


def _full(path: Path, opened: Iterable[Partition]) -> Iterator[Partition]:
    return (each for each in opened if each.is_full and each.directory.parent == path)
