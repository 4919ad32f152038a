"""The segments and producer snapshots in a partition's directory, by their file names."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage import filenames, files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog.storage.segment.segment import Segment


class Listing(NamedTuple):
    """The content of a partition's directory."""

    base_offsets: list[int]  # ascending
    snapshot_offsets: list[int]  # ascending


def listed(directory: Path) -> Listing:
    """Lists the segment files in a partition's directory. Raises OSError."""
    bases, snapshot_offsets = [], []
    for path in directory.iterdir():
        file = filenames.parse_segment_file(path.name)
        if file is None:
            continue
        if file.suffix == filenames.LOG_SUFFIX:
            bases.append(file.offset)
        elif file.suffix == filenames.SNAPSHOT_SUFFIX:
            snapshot_offsets.append(file.offset)
    return Listing(sorted(bases), sorted(snapshot_offsets))


def remove_later_snapshots(directory: Path, offsets: Sequence[int], end_offset: int) -> None:
    """Removes producer snapshots after a cut, durably: other batches will get these offsets."""
    later = [offset for offset in offsets if offset > end_offset]
    for offset in later:
        files.unlink(filenames.snapshot_path(directory, offset))
    if later:
        files.sync(directory)


def remove_stray_snapshots(directory: Path, segments: Sequence[Segment]) -> None:
    """Removes all producer snapshots except those at the start of a segment or at the log's end."""
    wanted = {segment.base_offset for segment in segments} | {segments[-1].tail.end_offset}
    for offset in listed(directory).snapshot_offsets:
        if offset not in wanted:
            files.unlink(filenames.snapshot_path(directory, offset))
