"""Judges the files of stopped brokers: the replicas of a partition are one log, stored several times.

Segments may begin elsewhere on each broker, but a follower stores its leader's batches as they are, and
their append times. So the bytes of all segments of a partition, one after another, are the same on all
replicas, and so are the append times, which never go back. `tidelog dump` finds nothing wrong with any file.
"""

from __future__ import annotations

import struct
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

from tidelog.dump.files import kind_of
from tidelog.dump.segments import DumpFinding, DumpOptions, read_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.nemesis.history import Place

_BATCH = struct.Struct(">qi")  # base offset, and the size of what follows


def wrong_files(log_dirs: Sequence[Path], places: Sequence[Place]) -> Iterator[str]:
    """Yields everything that is wrong with the files of these partitions."""
    for place in places:
        for log_dir in log_dirs:
            yield from findings(log_dir / str(place))
        yield from differences(log_dirs, place)
        yield from wrong_times(log_dirs, place)


def batches(log_dir: Path, place: Place) -> Iterator[bytes]:
    """Yields the batches of a partition that a log directory has, in order."""
    for segment in sorted(log_dir.joinpath(str(place)).glob("*.log")):
        data = segment.read_bytes()
        position = 0
        while position < len(data):
            _, size = _BATCH.unpack_from(data, position)
            end = position + _BATCH.size + size
            yield data[position:end]
            position = end


def differences(log_dirs: Sequence[Path], place: Place) -> Iterator[str]:
    """Yields the first difference between the replicas of a partition."""
    for those in zip_longest(*(batches(log_dir, place) for log_dir in log_dirs)):
        if len(set(those)) > 1:
            offsets = [None if each is None else _BATCH.unpack_from(each)[0] for each in those]
            yield f"{place} differs: batches at {offsets}"
            return


def append_times(log_dir: Path, place: Place) -> list[tuple[int, int | None]]:
    """Returns the last offset and the append time of each batch; None where it is unknown."""
    return [
        (row.fields["last_offset"], row.fields["append_time"])
        for segment in sorted(log_dir.joinpath(str(place)).glob("*.log"))
        for row in read_segment(segment, DumpOptions(with_records=False))
        if not isinstance(row, DumpFinding)
    ]


def wrong_times(log_dirs: Sequence[Path], place: Place) -> Iterator[str]:
    """Yields append times that are unknown, go back, or are others on another replica."""
    first, *others = (append_times(log_dir, place) for log_dir in log_dirs)
    for offset, time_ms in first:
        if time_ms is None:
            yield f"{place}: no append time at {offset}"
            return
    for before, after in pairwise(first):
        if after[1] < before[1]:
            yield f"{place}: the append time goes back from {before} to {after}"
    for number, other in enumerate(others, 2):
        for mine, theirs in zip_longest(first, other):
            if mine != theirs:
                yield f"{place}: append time {mine} on broker 1, {theirs} on broker {number}"
                break


def findings(directory: Path) -> Iterator[str]:
    """Yields what `tidelog dump` finds in the files of a partition."""
    for path in sorted(directory.iterdir()):
        kind = kind_of(path)
        if kind is None:
            continue
        for found in kind.read(path, DumpOptions(with_records=False)):
            if isinstance(found, DumpFinding):
                yield f"{path}: {found.where}: {found.what}"
