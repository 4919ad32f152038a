"""Times by which a producer means that a record has none, where a topic lists them.

A leader stores such a record with -1 (message.timestamp.missing.values), so everything that reads the
log later knows without the setting that there is no time. Times are integers here, as in `prepare`.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from tidelog.protocol.errors import MessageTooLarge, UnpackedTooLarge
from tidelog.protocol.records import kernels
from tidelog.protocol.records.batch import pack_v2_header
from tidelog.protocol.records.layout import (
    INT64_MAX,
    INT64_MIN,
    NESTED,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    OUTSIDE,
    Region,
)

if TYPE_CHECKING:
    from tidelog.protocol.records.layout import Findings
    from tidelog.protocol.records.plan import AppendPlan

_INT32_MAX: Final = 2**31 - 1
_ROW_BYTES: Final = 48  # of a record's columns, beside its key, value and headers


def narrowed(plan: AppendPlan) -> AppendPlan:
    """Returns the plan with a window in which none of the listed times lies, nor a time beyond one."""
    low, high = _range_without(plan.missing, plan.append_time_ms)
    return plan._replace(
        min_timestamp=max(low, plan.min_timestamp), max_timestamp=min(high, plan.max_timestamp)
    )


def with_missing_times(region: Region, found: Findings, plan: AppendPlan) -> Region | None:
    """Returns the records, as format 2 and numbered from 0, with -1 in place of each listed time.

    None if no record has one, or if `prepare` refuses the records for what is `found` in them. Raises
    UnpackedTooLarge where that takes more memory than the plan allows for the copies of a batch.
    """
    if found.flags & NESTED:
        return None
    low, high = _range_without(plan.missing, plan.append_time_ms)
    if not kernels.examine(region, low, high, False).flags & OUTSIDE:
        return None
    if 3 * (region.end - region.start) + _ROW_BYTES * found.count > 4 * plan.most_unpacked:
        raise UnpackedTooLarge(f"{found.count} records take too much memory to replace their times")
    try:
        return _replaced(region, found, plan)
    except MessageTooLarge as error:
        raise UnpackedTooLarge(error.message) from None


def _range_without(missing: tuple[int, ...], around: int) -> tuple[int, int]:
    """Returns the smallest and the largest time of the range around a time that holds no listed one."""
    before = [time for time in missing if time <= around]
    after = [time for time in missing if time > around]
    low = min(before[-1] + 1, INT64_MAX) if before else INT64_MIN
    return low, after[0] - 1 if after else INT64_MAX


def _replaced(region: Region, found: Findings, plan: AppendPlan) -> Region | None:
    """Returns the records with -1 in place of each listed time; None if no record has one."""
    most_bytes, count, only = 2 * plan.most_unpacked, found.count, found.largest
    if only in plan.missing:
        other = kernels.examine(region, only, only, False).flags & OUTSIDE
        if not other:  # as where a producer sets no time at all
            region = region._replace(stamp=NO_TIMESTAMP)
            written = kernels.rewrite(region, 2, 0, INT64_MIN, False, most_bytes)
            return _region(written.data, count, NO_TIMESTAMP)
    from tidelog.protocol.records.columns import ColumnBuffers, RecordSelection, append_set

    written = kernels.rewrite(region, 2, 0, INT64_MIN, False, most_bytes)
    columns = ColumnBuffers()
    append_set(
        _batch(written.data, written.base_timestamp, count), columns, RecordSelection(verify=False)
    )
    listed, times = frozenset(plan.missing), array("q", bytes(columns.timestamps[: 8 * count]))
    if listed.isdisjoint(times):
        return None
    replaced = array("q", [NO_TIMESTAMP if time in listed else time for time in times])
    columns.timestamps[: 8 * count] = replaced.tobytes()
    rows = kernels.encode_rows(columns, 0, count, _INT32_MAX)
    return _region(rows.data, count, rows.base_timestamp)


def _region(data: bytes, count: int, base_timestamp: int) -> Region:
    """Returns the region of encoded records of format 2 that are numbered from 0."""
    return Region(data, 0, len(data), 2, count, 0, base_timestamp, None)


def _batch(payload: bytes, base_timestamp: int, count: int) -> bytes:
    """Returns encoded records of format 2 behind a header."""
    head = pack_v2_header(
        payload,
        base_offset=0,
        last_offset=count - 1,
        leader_epoch=-1,
        attributes=0,
        base_timestamp=base_timestamp,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=-1,
        count=count,
    )
    return head + payload
