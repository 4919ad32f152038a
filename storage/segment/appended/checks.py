"""Which entries of a `.appendtimes` file hold, and from where on append times are unknown.

The functions decide by the table of `append_times.py`, and change nothing. `closed` says what a closed
segment's file lacks. After a crash `check` goes by the entries alone, and `confirm` compares them with
what is known otherwise of the batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.segment.appended.layout import DAMAGED, END, UNKNOWN, AppendTimeEntry
from tidelog.storage.time.append_time import goes_back

if TYPE_CHECKING:
    from tidelog.storage.segment.appended.entries import Entries


class KeptTimes(NamedTuple):
    """What is kept of a file. Offsets are relative to the segment's base."""

    size: int  # the number of its first entries
    unknown_from: int
    end: int | None  # the offset of the END entry to be written, None for none


class Stop(NamedTuple):
    """How the log ended before this start."""

    lost_power: bool = True
    keeps_end: bool = False  # in flush mode: each append put an END entry behind its own entry


NOTHING = KeptTimes(0, 0, None)  # no entry is the segment's


def check(
    entries: Entries,
    durable: int,
    end: int | None,
    time_before: int | None,
    stop: Stop,
) -> KeptTimes | None:
    """Checks the entries from a durable offset on; None if all are kept. Raises OSError.

    `end` is the offset of the END entry behind the entries, and `time_before` the last append time before
    the durable offset, where that is known: if it is not there, no power loss explains what is missing.
    Where no power was lost, entries with a CRC are checked from the first on, and a damaged one ends nothing.
    """
    lost_power = stop.lost_power
    if entries.lost_from == 0:
        return NOTHING
    if entries.layout.is_checked and not lost_power:
        durable = 0
    grown = entries._replace(size=entries.growing())
    first = max(grown.floor(durable), 0)
    last = AppendTimeEntry(UNKNOWN, -1) if first == 0 else grown.at(first - 1)
    known = None if last.time == UNKNOWN else last.time
    count = grown.size
    for at, entry in enumerate(grown.walk(first), first):
        if entry is DAMAGED and not lost_power:
            continue
        if entry is DAMAGED or not _may_follow(entry, last, known, is_first=at == 0):
            count = at
            break
        last = entry
        known = known if entry.time == UNKNOWN else entry.time
    whole, is_grown = count == entries.size, count == grown.size
    found = end if whole else _end_at(entries, count, end, is_grown=is_grown)
    if found is None and lost_power and stop.keeps_end and entries.layout.is_checked:
        # END was overwritten in the sector of the last kept entry, and its successor was not written.
        # When that entry was appended, all times before its offset were in the file.
        found = last.offset if last.offset > max(durable, 0) else None
    if whole and entries.lost_from is None and found == end:
        return None
    if time_before is not None and last.time not in (UNKNOWN, time_before):
        durable = 0
    offset = max(last.offset + 1 if found is None else found, durable)
    if offset <= last.offset:  # nothing vouches for the last entry's own batch
        count = entries._replace(size=count).floor(offset - 1) + 1
    return KeptTimes(count, offset, None if found is None else offset)


def _end_at(entries: Entries, number: int, end: int | None, *, is_grown: bool) -> int | None:
    """Returns the offset of an END entry among the entries, None if there is none at a number.

    One of an earlier commit is whole. One that lay in two sectors may be torn: an entry was written over
    it, and one sector has the bytes from before. If that is the second one, the CRC is that of the END. If
    it is the first one, the second one begins with the offset of the new entry, where the END was, and has
    the whole entry behind it, too.
    """
    entry = entries.at(number)
    if entry is not DAMAGED:
        return entry.offset if is_grown and entry.time == END else None
    torn = entries.torn_end(number)
    if torn is None or torn.is_sure:
        return None if torn is None else torn.offset
    following = end if number + 1 == entries.size else entries.at(number + 1).offset
    return torn.offset if following is not None and torn.offset <= following else None


def _may_follow(
    entry: AppendTimeEntry, last: AppendTimeEntry, last_known: int | None, *, is_first: bool
) -> bool:
    """Returns whether an entry can be next: its offset grows, its time does not decrease."""
    if is_first:
        return entry.offset == 0
    if entry.time != UNKNOWN and last_known is not None and goes_back(last_known, entry.time):
        return False
    return last.offset < entry.offset < 1 << 31


def confirm(
    entries: Entries,
    last: AppendTimeEntry,
    end: int | None,
    times: tuple[int | None, int | None],
    vouched: int,
    *,
    is_whole: bool,
) -> KeptTimes | None:
    """Compares with the append times of the first and the last batch; None if they agree.

    Entries before the `vouched` offset cannot be lost. In a closed segment's file that `is_whole`, the last
    entry has to have the last batch's time. Raises OSError.
    """
    first_time, last_time = times
    is_other = last.time not in (UNKNOWN, last_time)
    if entries.at(0).time not in (UNKNOWN, first_time) or (is_whole and is_other):
        return NOTHING
    if last.time == UNKNOWN or (last_time is not None and not goes_back(last_time, last.time)):
        return None
    if end is not None:  # partition.times may describe more than is durable
        return KeptTimes(entries.floor(vouched - 1) + 1, vouched, vouched)
    return KeptTimes(entries.size, max(last.offset + 1, vouched), None)


def closed(
    entries: Entries, end: int | None, end_offset: int, last_time: int | None, durable: int = 0
) -> int | None:
    """Returns from which offset on a closed segment's file lacks entries; None if it lacks none.

    `last_time` is the append time of the last batch, and known only if nothing was appended since
    `partition.times` was written. Entries before the `durable` offset show that it is the segment's file.
    END behind the segment's end alone is left from a cleaning that was interrupted. Raises OSError.
    """
    last, lost_from = next(entries.held_before(entries.size)), end
    if end is None:
        known_to = last.offset + 1
        if last_time is None or durable < end_offset:
            known_to = max(known_to, durable)
        is_last = last.time in (UNKNOWN, last_time) or known_to >= end_offset
        lost_from = None if is_last else known_to
    elif end >= end_offset:
        lost_from = 0 if last.offset >= end_offset else None
    elif last_time is not None and last.time == last_time and durable > 0:
        lost_from = None
    elif last_time is not None and 0 < durable < end_offset:
        lost_from = max(end, durable)
    elif last_time is not None:
        lost_from = 0
    if lost_from is not None:
        entries.report(lost_from)
    return lost_from
