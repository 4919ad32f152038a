"""Maps the records of a source to their offsets in the target, and stores the map as Parquet.

The map consists of runs. A run says that `count` records with consecutive offsets from
`source_offset` on have consecutive offsets from `target_offset` on. The map contains nothing else.
The runs of a partition ascend in both offsets.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

NAME: Final = "offsets.parquet"


class OffsetRange(NamedTuple):
    """A range of consecutive offsets on both sides."""

    source_offset: int
    target_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count


class PartitionMap(NamedTuple):
    """The runs of one partition. `is_complete`: they include every record that is in the target."""

    source_topic: str
    source_partition: int
    target_topic: str
    target_partition: int
    runs: tuple[OffsetRange, ...]
    is_complete: bool = True


class Runs:
    """Collects runs while records are copied."""

    def __init__(self, runs: Iterable[OffsetRange] = ()) -> None:
        self._runs = list(runs)

    def add(self, source_offsets: npt.NDArray[np.int64], target_offset: int) -> None:
        """Adds records with these source offsets.

        Their target offsets are consecutive from `target_offset` on.
        """
        import numpy as np

        if not len(source_offsets):
            return
        breaks = np.flatnonzero(np.diff(source_offsets) != 1) + 1
        firsts = [0, *breaks.tolist()]
        for first, after in zip(firsts, [*firsts[1:], len(source_offsets)], strict=True):
            self._append(
                OffsetRange(int(source_offsets[first]), target_offset + first, after - first)
            )

    def _append(self, run: OffsetRange) -> None:
        if self._runs:
            last = self._runs[-1]
            if (
                last.source_offset + last.count == run.source_offset
                and last.target_offset + last.count == run.target_offset
            ):
                self._runs[-1] = last._replace(count=last.count + run.count)
                return
        self._runs.append(run)

    def taken(self) -> tuple[OffsetRange, ...]:
        """Returns the runs so far."""
        return tuple(self._runs)


def write(path: Path, maps: Sequence[PartitionMap]) -> None:
    """Writes the maps of a run as one Parquet file, by rename."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        (one.source_topic, one.source_partition, one.target_topic, one.target_partition, *run)
        for one in sorted(maps)
        for run in one.runs
    ]
    schema = pa.schema(
        [
            ("source_topic", pa.string()),
            ("source_partition", pa.int32()),
            ("target_topic", pa.string()),
            ("target_partition", pa.int32()),
            ("source_offset", pa.int64()),
            ("target_offset", pa.int64()),
            ("count", pa.int64()),
        ]
    )
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    table = pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)], schema
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    pq.write_table(table, partial)
    partial.rename(path)


def renew(path: Path, maps: Sequence[PartitionMap]) -> None:
    """Writes the maps of a run again; the map of a partition does not get shorter.

    A repeated run that stopped early, or skipped records without reading where they are, knows less
    than the one before.
    """
    before = {}
    with contextlib.suppress(OSError, ValueError):  # there is no such file, or an incomplete one
        before = {one[:4]: one for one in read(path)}
    write(path, [max(one, before.get(one[:4], one), key=_records) for one in maps])


def _records(one: PartitionMap) -> int:
    return sum(run.count for run in one.runs)


def read(path: Path) -> list[PartitionMap]:
    """Returns the maps that `write` wrote."""
    import pyarrow.parquet as pq

    found: dict[tuple[str, int, str, int], list[OffsetRange]] = {}
    for row in pq.read_table(path).to_pylist():
        key = (
            row["source_topic"],
            row["source_partition"],
            row["target_topic"],
            row["target_partition"],
        )
        run = OffsetRange(row["source_offset"], row["target_offset"], row["count"])
        found.setdefault(key, []).append(run)
    return [PartitionMap(*key, tuple(runs)) for key, runs in found.items()]
