"""What a read of `timelog` does: the splits of each task, and their rows as Arrow batches.

The columns are those of the level, and `plausible` where a row is a record: whether its time can be right,
by the rule of `engine.plausible`; null for a record without a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipeline.engine.plausible import UNKNOWN, are_odd
from tidelog.pipeline.source import access, splits
from tidelog.pipeline.source.levels import RECORD, SCHEMAS, TIME, rows
from tidelog.pipeline.source.reading import ReadOptions
from tidelog.pipeline.timelog.names import OptionError, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.pipeline.source.splits import Selection, Split
    from tidelog.pipeline.timelog.options import TimelogOptions

_PLAUSIBLE: Final = "plausible"
_HEADERS: Final = {"headers", "header_names"}


def schema_of(settings: TimelogOptions) -> Any:
    """Returns the Arrow schema of the rows."""
    schema = SCHEMAS[settings.level]
    if settings.level in (RECORD, TIME):
        schema = schema.append(pa.field(_PLAUSIBLE, pa.bool_()))
    if settings.with_headers:
        return schema
    return pa.schema([field for field in schema if field.name not in _HEADERS])


def checked(names: Sequence[str], settings: TimelogOptions) -> tuple[str, ...]:
    """Returns the names of wanted columns. Raises OptionError for one that is not there.

    A table keeps the columns that it had when it was created, and `schema` of a program's reader
    names those that it needs.
    """
    known = schema_of(settings).names
    for name in names:
        if name not in known:
            raise OptionError(unknown(f"level {settings.level}", name, known, kind="column"))
    return tuple(names)


def grouped(settings: TimelogOptions, selection: Selection) -> list[list[Split]]:
    """Returns the splits of each task; about as many tasks as wanted at least, if there is a wish."""
    most = settings.most_in_task
    planned = _planned(settings, selection)
    groups = splits.grouped(planned, selection.split_bytes, most)
    least = settings.least_tasks
    if least is None or len(groups) >= least or not planned:
        return groups
    size = max(1, sum(one.size_bytes for one in planned) // least)
    count = max(1, sum(one.end_offset - one.start_offset for one in planned) // least)
    smaller = replace(
        selection,
        split_bytes=min(size, selection.split_bytes),
        split_offsets=min(count, selection.split_offsets),
        offsets=splits.offsets_of(planned),
    )
    return splits.grouped(_planned(settings, smaller), size, most)


def _planned(settings: TimelogOptions, selection: Selection) -> list[Split]:
    place = settings.place
    found = access.plan(selection, logs=place.logs, brokers=place.brokers)
    return splits.cut(found, settings.most_in_task)


def batches_of(
    settings: TimelogOptions, group: Sequence[Split], names: Sequence[str], now_ms: int
) -> Iterator[Any]:
    """Yields the rows of some splits, with these columns; `now_ms` is when they were planned."""
    for split in group:
        high = settings.high_time_of((split.topic, split.partition))
        options = ReadOptions.of(
            replace(settings.selection, high_time=high),
            settings.depth,
            verify_crc=settings.verify_crc,
            batch_bytes=settings.batch_bytes,
        )
        for batch in rows(split, settings.level, options):
            is_judged = settings.hides or _PLAUSIBLE in names
            whole = _judged(batch, now_ms, hides=settings.hides) if is_judged else batch
            yield whole.select(names)


def _judged(batch: Any, now_ms: int, *, hides: bool) -> Any:
    """Returns rows with the column `plausible`; `hides`: no `timestamp` where it is false."""
    times = batch.column("timestamp_ms").to_numpy()
    appended = batch.column("append_time_ms").fill_null(UNKNOWN).to_numpy()
    plausible = pa.array(
        ~are_odd(times, appended, now_ms),
        mask=~batch.column("has_timestamp").to_numpy(zero_copy_only=False),
    )
    if hides:
        place, shown = batch.schema.get_field_index("timestamp"), batch.column("timestamp")
        shown = pc.if_else(plausible, shown, pa.scalar(None, shown.type))
        batch = batch.set_column(place, "timestamp", shown)
    return batch.append_column(_PLAUSIBLE, plausible)
