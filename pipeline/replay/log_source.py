"""The splits of one partition as a source of the replay engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.pipeline.source.access import read
from tidelog.pipeline.source.reading import ReadOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.pipeline.source.columns import Columns
    from tidelog.pipeline.source.splits import Selection, Split


@dataclass(frozen=True, slots=True)
class LogSource:
    """Every selected record of these splits, in the order of their offsets."""

    splits: tuple[Split, ...]
    selection: Selection

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes to read."""
        return sum(one.size_bytes for one in self.splits)

    def read(self) -> Iterator[Columns]:
        """Yields the records as columns. Raises SourceError, ClientError and OSError."""
        options = ReadOptions.of(self.selection)
        for split in sorted(self.splits, key=lambda one: one.start_offset):
            yield from read(split, options)
