"""What a backfill makes of the columns of a table, whoever reads it: names, types, the unit of times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.pipeline.backfill.rows import LOCAL
from tidelog.pipeline.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.pipeline.jobs.backfill import BackfillOptions

_TIMES: Final = frozenset({"timestamp", "timestamp_ntz", "date"})
_WHOLE: Final = frozenset({"tinyint", "smallint", "int", "bigint"})


class ColumnNames(NamedTuple):
    """The names of the columns that are read."""

    values: Sequence[str]
    headers: Sequence[str]
    single: Sequence[str]  # of the time, the key and the partition, as far as they are given

    @property
    def all(self) -> tuple[str, ...]:
        """Each name once."""
        return tuple(dict.fromkeys([*self.single, *self.values, *self.headers]))


def wanted(options: BackfillOptions, columns: Sequence[str]) -> ColumnNames:
    """Returns the columns that the options name. Raises UsageError for one that is not there."""
    single = (options.time_column, options.key_column, options.partition_column)
    found = ColumnNames(
        options.value_columns.split(",") if options.value_columns else columns,
        options.header_columns.split(",") if options.header_columns else [],
        list(filter(None, single)),
    )
    for name in found.all:
        if name not in columns:
            raise UsageError(f"the table has no column {name}; it has {', '.join(columns[:30])}")
    return found


def unit_of_times(options: BackfillOptions, kinds: Mapping[str, str]) -> str:
    """Returns the unit of the time column; `kinds` has Spark's names of types. Raises UsageError."""
    name, unit = options.time_column, options.time_unit
    kind = kinds[name]
    if kind in _TIMES:
        if unit is not None:
            raise UsageError(f"column {name} is a {kind}: it needs no --time-unit")
        if kind == "timestamp":
            return "us"
        if options.time_zone is None:
            raise UsageError(
                f"column {name} is a {kind}, a time without a zone: say --time-zone UTC, or that in"
                " which it was written (Europe/Brussels)"
            )
        return LOCAL
    if unit is None:
        raise UsageError(f"column {name} is {kind}: say its --time-unit")
    if unit != "iso" and (kind in {"double", "float"} or kind.startswith("decimal")):
        raise UsageError(
            f"column {name} is {kind}, which is not a whole number of {unit}: cast it first"
        )
    return str(unit)


def check_partitions(name: str, kinds: Mapping[str, str]) -> None:
    """Raises UsageError unless a column contains whole numbers."""
    if kinds[name] not in _WHOLE:
        raise UsageError(
            f"column {name} is {kinds[name]}, which is not a number of a partition: cast it first"
        )
