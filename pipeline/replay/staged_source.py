"""The staged rows of one partition as a source of the replay engine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.pipeline.archive.layout import buffers_of
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from tidelog.protocol.records.columns import ColumnBuffers

_ROWS: Final = 65_536
_COLUMNS: Final = ["timestamp_ms", "key", "value", "headers"]


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Some rows; their offsets are their positions among the staged rows."""

    count: int
    buffers: ColumnBuffers
    offset: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StagedSource:
    """The rows of these Parquet files, in the order of the files."""

    files: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """The number of bytes to read. Raises OSError."""
        return sum(os.stat(path).st_size for path in self.files)  # noqa: PTH116 - text, of Spark's

    def read(self) -> Iterator[StagedRows]:
        """Yields the rows as columns. Raises OSError."""
        number = 0
        for path in self.files:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_ROWS, columns=_COLUMNS):
                    if not batch.num_rows:
                        continue
                    offsets = np.arange(number, number + batch.num_rows, dtype=np.int64)
                    yield StagedRows(batch.num_rows, buffers_of(_timed(batch)), offsets)
                    number += batch.num_rows


def _timed(batch: Any) -> Any:
    """Returns rows with -1, "no time", for a null time."""
    times = pc.fill_null(batch.column("timestamp_ms"), NO_TIMESTAMP)
    columns = [times, *(batch.column(name) for name in _COLUMNS[1:])]
    return pa.record_batch(columns, names=_COLUMNS)
