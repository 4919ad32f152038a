"""How far scrubbing has come, and what it has found: a small file of the first log directory.

    1                              the version
    crc32 of the third line        8 hexadecimal digits
    {"ended_ms": n, ...}           one line of JSON

It is replaced whole by rename, and not durably: a power loss costs a part of a pass.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, NamedTuple

from storage import filenames, files

if TYPE_CHECKING:
    from pathlib import Path

_VERSION = b"1"


class Damage(NamedTuple):
    """A segment with batches that have gone bad, and the first of them."""

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


class ScrubFileError(ValueError):
    """The file does not hold what its format promises."""


def read_progress(directory: Path) -> ScrubProgress:
    """Returns what was written last, or that nothing was. Raises OSError and ScrubFileError."""
    try:
        data = (directory / filenames.SCRUB_CHECKPOINT).read_bytes()
    except FileNotFoundError:
        return ScrubProgress()
    return parse_progress(data)


def write_progress(directory: Path, progress: ScrubProgress) -> None:
    """Replaces the file; raises OSError."""
    body = json.dumps(progress._asdict()).encode()
    data = b"%s\n%08x\n%s\n" % (_VERSION, zlib.crc32(body), body)
    files.replace(directory / filenames.SCRUB_CHECKPOINT, data, durable=False, losable=True)


def parse_progress(data: bytes) -> ScrubProgress:
    """Returns what the bytes of a file hold; raises ScrubFileError."""
    lines = data.splitlines()
    if len(lines) != 3 or lines[0] != _VERSION:
        raise ScrubFileError(f"it is not a file about scrubbing of version {_VERSION.decode()}")
    if lines[1] != b"%08x" % zlib.crc32(lines[2]):
        raise ScrubFileError("its checksum is wrong")
    try:
        fields = json.loads(lines[2])
        at = fields["at"]
        return ScrubProgress(
            fields["ended_ms"],
            None if at is None else (at[0], at[1], at[2]),
            tuple(Damage(*each) for each in fields["damage"]),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ScrubFileError(f"it does not hold what it should: {error!r}") from error
