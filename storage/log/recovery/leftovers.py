"""Leftovers of interrupted changes in a partition's directory, ours or Apache Kafka's.

    .tmp       a small file that was being replaced: removed
    .deleted   files of a segment that retention deleted: removed
    .cleaned   segments that compaction, or the splitting of a segment, was still writing: removed
    .swap      such segments, complete: they replace the segments they were made from, unless
               a .cleaned at or before them shows that the splitting was not complete.
               Append times are renamed with their log; alone they belong to the current one.
               A power loss may leave some renames of a replacement and undo others. So append times,
               and a transaction index, that have their final name may be those of a .swap.
    an index without its log: removed; and append times that a complete file before them covers

These are the rules of Kafka's LogLoader, with one exception: an incomplete copy of a .swap is
renamed to `.stray` as long as the segments that it would replace exist.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import CorruptMessage
from tidelog.storage import filenames, files
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.log_file import Tail
from tidelog.storage.segment.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# The log is removed last: an interrupted removal leaves a segment, or nothing.
_REMOVAL = (
    *filenames.INDEX_SUFFIXES,
    filenames.SNAPSHOT_SUFFIX,
    filenames.APPEND_TIMES_SUFFIX,
    filenames.LOG_SUFFIX,
)

_log = logging.getLogger("tidelog.storage")


class _Swap(NamedTuple):
    """A complete segment that does not have its final name yet."""

    base_offset: int
    last_offset: int  # of its batches; below the base offset if it has none
    whole_size: int  # the bytes of whole batches
    size: int
    # Where its append times end: with the last segment that it replaces, if tidelog wrote it.
    covered_offset: int

    @property
    def last_replaced(self) -> int:
        """No segment that it replaces begins behind this offset."""
        return max(self.last_offset, self.base_offset, self.covered_offset - 1)


def tidy(directory: Path) -> bool:
    """Completes or undoes interrupted changes; True if segments were replaced. Raises OSError."""
    names = [path.name for path in directory.iterdir()]
    for name in names:
        if filenames.is_leftover(name):
            files.unlink(directory / name)
    cleaned = _ending(names, filenames.CLEANED_SUFFIX)
    swapped = _ending(names, filenames.SWAP_SUFFIX)
    if cleaned:
        first = min(file.offset for file in cleaned)
        _remove(directory, [file for file in swapped if file.offset >= first], ".swap")
        _remove(directory, cleaned, filenames.CLEANED_SUFFIX)
        swapped = [file for file in swapped if file.offset < first]
    replaced = _complete(directory, swapped) if swapped else False
    _remove_orphans(directory)
    return replaced


def remove_behind(directory: Path, offset: int, *, everything: bool) -> None:
    """Removes the segments that begin after an offset, or all, durably. Raises OSError.

    The last one is removed first, so that the files are a valid log at any moment. Snapshots of
    producers after the offset are removed too.
    """
    there = _ending([path.name for path in directory.iterdir()], "")
    ours = [file for file in there if file.suffix in _REMOVAL]
    gone = [file for file in ours if everything or file.offset > offset]
    for file in sorted(gone, key=lambda file: (-file.offset, _REMOVAL.index(file.suffix))):
        files.unlink(directory / filenames.segment_file(*file))
    if gone:
        files.sync(directory)


def set_aside(path: Path, suffix: str = filenames.STRAY_SUFFIX) -> Path:
    """Renames a file to a name that brokers ignore, and returns its path. Raises OSError.

    The suffix is `.stray`, or `.2.stray` and so on, if there is one already; that of what lies
    behind a cut is `-cut`, or `.2-cut` and so on.
    """
    target, number = path.with_name(path.name + suffix), 2
    while target.exists():
        target = path.with_name(f"{path.name}.{number}{suffix}")
        number += 1
    files.rename(path, target)
    return target


def _ending(names: Sequence[str], suffix: str) -> list[filenames.SegmentFile]:
    parsed = (
        filenames.parse_segment_file(n.removesuffix(suffix)) for n in names if n.endswith(suffix)
    )
    return [file for file in parsed if file is not None]


def _remove(directory: Path, found: Sequence[filenames.SegmentFile], suffix: str) -> None:
    for file in found:
        files.unlink(directory / (filenames.segment_file(*file) + suffix))


def _complete(directory: Path, swapped: Sequence[filenames.SegmentFile]) -> bool:
    """Replaces segments by the complete ones that were made from them."""
    there = _ending([path.name for path in directory.iterdir()], "")
    logs = {file.offset for file in there if file.suffix == filenames.LOG_SUFFIX}
    swaps, aside = [], set()
    for file in swapped:
        if file.suffix != filenames.LOG_SUFFIX:
            continue
        swap = _read(directory, file.offset)
        if swap.whole_size < swap.size:
            path = directory / (filenames.segment_file(*file) + filenames.SWAP_SUFFIX)
            if file.offset in logs:
                away = set_aside(path)
                _log.warning("recovery renamed part of a segment", extra={"file": away})
                aside.add(file.offset)
                continue
            files.truncate(path, swap.whole_size)
        swaps.append(swap)
    if swaps:
        first = min(swap.base_offset for swap in swaps)
        last = max(swap.last_replaced for swap in swaps)
        bases = sorted({swap.base_offset for swap in swaps} | aside)
        kept = _in_place_already(swaps) - set(swapped)
        for file in there:
            if not first <= file.offset <= last or file.suffix == filenames.SNAPSHOT_SUFFIX:
                continue
            if bases[bisect_right(bases, file.offset) - 1] not in aside and file not in kept:
                files.unlink(directory / filenames.segment_file(*file))
    for swap in swaps:
        _log.info(
            "recovery completed replacement by compacted segment",
            extra={"directory": directory, "base_offset": swap.base_offset},
        )
        # The log last: it completes the swap.
        for suffix in (*filenames.INDEX_SUFFIXES, filenames.LOG_SUFFIX):
            _put_in_place(directory, filenames.SegmentFile(swap.base_offset, suffix))
    completed = bool(swaps)
    for file in swapped:  # after their log, to which they belong only then
        if file.suffix == filenames.APPEND_TIMES_SUFFIX and file.offset not in aside:
            _put_in_place(directory, file)
            completed = True
    if completed:
        files.sync(directory)
    _remove(directory, swapped, filenames.SWAP_SUFFIX)
    return completed


def _in_place_already(swaps: Sequence[_Swap]) -> set[filenames.SegmentFile]:
    """Returns the files that hold for a `.swap` of a log under their final name, if there are any.

    Unless another `.swap` is to replace them: then they are those of the old segment.
    """
    kept = {filenames.SegmentFile(each.base_offset, filenames.TXN_INDEX_SUFFIX) for each in swaps}
    for swap in swaps:
        if swap.covered_offset > swap.last_offset:
            kept.add(filenames.SegmentFile(swap.base_offset, filenames.APPEND_TIMES_SUFFIX))
    return kept


def _covered_offset(directory: Path, base_offset: int) -> int:
    """Returns where the append times end that a `.swap` has, or has already put in place.

    The base offset if they do not say, as in a segment that Apache Kafka wrote. Raises OSError.
    """
    path = directory / filenames.segment_file(base_offset, filenames.APPEND_TIMES_SUFFIX)
    swap = path.with_name(path.name + filenames.SWAP_SUFFIX)
    times = AppendTimes(swap if swap.exists() else path, base_offset)
    times.load()
    times.close()
    return times.end_offset


def _put_in_place(directory: Path, file: filenames.SegmentFile) -> None:
    """Gives a file its final name; a missing index is built."""
    path = directory / filenames.segment_file(*file)
    with contextlib.suppress(FileNotFoundError):
        files.rename(path.with_name(path.name + filenames.SWAP_SUFFIX), path)


def _read(directory: Path, base_offset: int) -> _Swap:
    """Reads the headers of a segment whose name still ends in .swap."""
    name = filenames.segment_file(base_offset, filenames.LOG_SUFFIX) + filenames.SWAP_SUFFIX
    path = directory / name
    size = path.stat().st_size
    segment = Segment(directory, base_offset, Tail(base_offset, size))
    segment.files.log.path = path
    last_offset, whole = base_offset - 1, 0
    try:
        for found in segment.walk():
            last_offset = found.batch.last_offset
            whole = found.position + found.batch.size
    except CorruptMessage:
        pass
    return _Swap(base_offset, last_offset, whole, size, _covered_offset(directory, base_offset))


def _remove_orphans(directory: Path) -> None:
    """Removes indexes without a log, because a later segment with that name would use them.

    And append times without a log, if those of the segment before them are complete up to behind
    their offset: then they are of a segment that was replaced.
    """
    there = _ending([path.name for path in directory.iterdir()], "")
    logs = sorted(file.offset for file in there if file.suffix == filenames.LOG_SUFFIX)
    for file in there:
        before = bisect_right(logs, file.offset)
        if before and logs[before - 1] == file.offset:
            continue
        if file.suffix in filenames.INDEX_SUFFIXES:
            files.unlink(directory / filenames.segment_file(*file))
            _log.warning(
                "index file without a log removed",
                extra={"directory": directory, "file": filenames.segment_file(*file)},
            )
        elif (
            file.suffix == filenames.APPEND_TIMES_SUFFIX
            and before
            and _covered_offset(directory, logs[before - 1]) > file.offset
        ):
            files.unlink(directory / filenames.segment_file(*file))
