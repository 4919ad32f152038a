"""Replaces segments by a compacted one, rename by rename, as Kafka does.

    X.*.cleaned -> X.*.swap      complete: from here on a crash ends with the new segment
    the old logs -> *.deleted    if there are several, the directory is synced after this
    the rest of the old ones -> *.deleted
    X.*.swap -> X.*              indexes, then the log, then the append times

A power loss may undo any renames since the last sync of the directory, and no old segment may come
back beside the new one that holds its records. `recovery/leftovers` finishes or undoes an
interrupted replacement.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tidelog.storage import filenames, files
from tidelog.storage.compaction.cleaned_segment import SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog.storage.segment.segment import Segment

# The log before the append times: a .swap of them alone belongs to the log that has its name.
_IN_PLACE = (
    *filenames.INDEX_SUFFIXES,
    filenames.LOG_SUFFIX,
    filenames.APPEND_TIMES_SUFFIX,
)


def complete(directory: Path, base_offset: int) -> None:
    """Marks a cleaned segment as complete, durably.

    Raises OSError, and then the caller calls `discard`.
    """
    for suffix in SUFFIXES:
        path = directory / filenames.segment_file(base_offset, suffix)
        with contextlib.suppress(FileNotFoundError):
            files.rename(
                path.with_name(path.name + filenames.CLEANED_SUFFIX),
                path.with_name(path.name + filenames.SWAP_SUFFIX),
            )
    files.sync(directory)


def discard(directory: Path, base_offset: int) -> None:
    """Removes a cleaned segment, complete or not; raises OSError.

    Its log is renamed to `.cleaned` first and removed last. So whatever a crash or a failure leaves
    of it is removed by the next start or the next cleaning, and never replaces a segment.
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
    """Removes every cleaned segment of a log of which none is being swapped in; raises OSError."""
    for path in sorted(directory.iterdir()):
        name, ending = path.stem, path.suffix
        if ending in (filenames.SWAP_SUFFIX, filenames.CLEANED_SUFFIX):
            file = filenames.parse_segment_file(name)
            if file is not None:
                discard(directory, file.offset)
        elif path.name.endswith(filenames.CLEANED_SUFFIX + ".tmp"):
            files.unlink(path)


def mark_logs_deleted(sources: Sequence[Segment]) -> list[Path]:
    """Renames the logs of the old segments to `.deleted`; raises OSError.

    They still serve reads under that name, with their other files. If there are several, the
    directory must be synced before the next step: a later log must not come back beside the new
    segment that holds its records, nor without its append times.
    """
    return [path for source in sources for path in source.files.mark_log_deleted()]


def mark_companions_deleted(sources: Sequence[Segment]) -> list[Path]:
    """Renames the other files of the old segments to `.deleted`.

    What cannot be renamed is logged and left.
    """
    return [path for source in sources for path in source.files.mark_companions_deleted()]


def put_in_place(directory: Path, base_offset: int) -> None:
    """Gives the complete segment its final name; raises OSError.

    Durable once the directory is synced.
    """
    for suffix in _IN_PLACE:
        path = directory / filenames.segment_file(base_offset, suffix)
        with contextlib.suppress(FileNotFoundError):
            files.rename(path.with_name(path.name + filenames.SWAP_SUFFIX), path)


def remove_snapshots(sources: Sequence[Segment]) -> None:
    """Removes the producer snapshots at offsets where no segment begins any more."""
    for source in sources[1:]:
        with contextlib.suppress(OSError):  # the next clean stop removes it
            files.unlink(filenames.snapshot_path(source.files.directory, source.base_offset))
