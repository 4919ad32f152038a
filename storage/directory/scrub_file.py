"""How far scrubbing has come, and what it has found: a small file of the first log directory.

It has the format of `checked_json`, and is replaced whole by rename, and not durably: a power loss
costs a part of a pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage import filenames, files
from tidelog.storage.directory.checked_json import mismatched, packed, unpacked

if TYPE_CHECKING:
    from pathlib import Path


class Damage(NamedTuple):
    """A segment with batches that have gone bad, and the first of them.

    Where none has, it is the first whose compressed set Java clients refuse.
    """

    topic: str
    partition: int
    base_offset: int  # of the segment
    bad_batches: int
    position: int  # in the segment's file, in bytes
    offset: int  # the first that may be in the batch
    reason: str


class ScrubProgress(NamedTuple):
    """How far scrubbing has come."""

    ended_ms: int | None = None  # when the last whole pass ended, by the broker's clock
    at: tuple[str, int, int] | None = None  # topic, partition and base offset of a pass under way
    damage: tuple[Damage, ...] = ()


def read_progress(directory: Path) -> ScrubProgress:
    """Returns what was written last, or that nothing was. Raises OSError and CheckedJsonError."""
    try:
        data = (directory / filenames.SCRUB_CHECKPOINT).read_bytes()
    except FileNotFoundError:
        return ScrubProgress()
    return parse_progress(data)


def write_progress(directory: Path, progress: ScrubProgress) -> None:
    """Replaces the file by one with this progress. Raises OSError."""
    data = packed(progress._asdict())
    files.replace(directory / filenames.SCRUB_CHECKPOINT, data, durable=False, losable=True)


def parse_progress(data: bytes) -> ScrubProgress:
    """Returns what the bytes of a file hold; raises CheckedJsonError."""
    fields = unpacked(data, "scrubbing")
    try:
        at = fields["at"]
        return ScrubProgress(
            fields["ended_ms"],
            None if at is None else (at[0], at[1], at[2]),
            tuple(Damage(*each) for each in fields["damage"]),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise mismatched(error) from error
