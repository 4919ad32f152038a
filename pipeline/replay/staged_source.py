"""The staged rows of one partition as a source of the replay engine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from pipeline.engine.backfill import buffers_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from protocol.records.columns import ColumnBuffers

_ROWS = 65_536


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
                columns = ["timestamp_ms", "key", "value"]
                for batch in file.iter_batches(_ROWS, columns=columns):
                    if not batch.num_rows:
                        continue
                    offsets = np.arange(number, number + batch.num_rows, dtype=np.int64)
                    buffers = buffers_of(*(batch.column(name) for name in columns))
                    yield StagedRows(batch.num_rows, buffers, offsets)
                    number += batch.num_rows
