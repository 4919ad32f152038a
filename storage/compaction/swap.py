"""Putting a compacted segment in the place of those it was made from, name by name, as Kafka does.

    X.*.cleaned -> X.*.swap      complete: from here on a crash ends with the new segment
    the old logs -> *.deleted    and the directory is synced, where there are several
    the rest of the old ones -> *.deleted
    X.*.swap -> X.*              indexes, then the log, then the append times

A power loss may undo any names since the last sync of the directory, and no more of an old segment must
come back than of the one that holds its records. `leftovers` finishes or undoes what was interrupted.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from storage import filenames, files
from storage.compaction.cleaned_segment import SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from storage.segment.segment import Segment

# The log before the append times: a .swap of them alone belongs to the log that has its name.
_IN_PLACE = (
    filenames.OFFSET_INDEX_SUFFIX,
    filenames.TIME_INDEX_SUFFIX,
    filenames.TXN_INDEX_SUFFIX,
    filenames.LOG_SUFFIX,
    filenames.APPEND_TIMES_SUFFIX,
)


def complete(directory: Path, base_offset: int) -> None:
    """Say that the cleaned segment is whole, durably; raises OSError, and then `discard` ends it."""
    for suffix in SUFFIXES:
        path = directory / filenames.segment_file(base_offset, suffix)
        with contextlib.suppress(FileNotFoundError):
            files.rename(
                path.with_name(path.name + filenames.CLEANED_SUFFIX),
                path.with_name(path.name + filenames.SWAP_SUFFIX),
            )
    files.sync(directory)


def discard(directory: Path, base_offset: int) -> None:
    """Remove a cleaned segment that is not wanted, whole or not; raises OSError.

    First its log says `.cleaned` again, and it says so longest: what a crash or a failure leaves of it
    then, the next start and the next cleaning remove, and nothing of it takes anything's place.
    """
    paths = [directory / filenames.segment_file(base_offset, suffix) for suffix in SUFFIXES]
    swaps = [path.with_name(path.name + filenames.SWAP_SUFFIX) for path in paths]
    cleaned = [path.with_name(path.name + filenames.CLEANED_SUFFIX) for path in paths]
    was_named = any(path.exists() for path in swaps)
    with contextlib.suppress(FileNotFoundError):
        files.rename(swaps[-1], cleaned[-1])
        files.sync(directory)
    for path in (*swaps[:-1], *cleaned[:-1]):
        files.unlink(path)
    if was_named:
        files.sync(directory)
    files.unlink(cleaned[-1])


def discard_all(directory: Path) -> None:
    """Remove every cleaned segment, for a log of which none is taking its place; raises OSError."""
    for path in sorted(directory.iterdir()):
        name, ending = path.stem, path.suffix
        if ending in (filenames.SWAP_SUFFIX, filenames.CLEANED_SUFFIX):
            file = filenames.parse_segment_file(name)
            if file is not None:
                discard(directory, file.offset)
        elif path.name.endswith(filenames.CLEANED_SUFFIX + ".tmp"):
            files.unlink(path)


def mark_logs_deleted(sources: Sequence[Segment]) -> list[Path]:
    """Give the logs of the old segments the name of such as are about to go; raises OSError.

    They serve on under it, with what else is theirs. Before anything more is done to a group of several,
    the directory has to be synced: a later one must not come back beside what holds its records,
    nor without its append times.
    """
    return [path for source in sources for path in source.mark_log_deleted()]


def mark_companions_deleted(sources: Sequence[Segment]) -> list[Path]:
    """Go on with the other files of theirs, as far as the disk lets us."""
    return [path for source in sources for path in source.mark_companions_deleted()]


def put_in_place(directory: Path, base_offset: int) -> None:
    """Give the complete segment its name; raises OSError. Durable when the directory is synced."""
    for suffix in _IN_PLACE:
        path = directory / filenames.segment_file(base_offset, suffix)
        with contextlib.suppress(FileNotFoundError):
            files.rename(path.with_name(path.name + filenames.SWAP_SUFFIX), path)


def remove_snapshots(sources: Sequence[Segment]) -> None:
    """Remove the producers' snapshots at what is no segment's beginning any more."""
    for source in sources[1:]:
        with contextlib.suppress(OSError):  # the next clean stop removes it
            files.unlink(filenames.snapshot_path(source.directory, source.base_offset))
