"""Records of one partition as columns of numpy (numbers) and Arrow (bytes), without a copy."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tidelog.pipeline.source.append_times import UNKNOWN, AppendTimes, FetchedTimes
from tidelog.protocol.records.layout import LOG_APPEND_TIME_BIT, NO_TIMESTAMP

if TYPE_CHECKING:
    import numpy.typing as npt

    from tidelog.protocol.records.columns import ColumnBuffers

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

# The indexes of the columns in `Columns.batches`.
POSITION: Final = 0
SIZE: Final = 1
BASE_OFFSET: Final = 2
LAST_OFFSET: Final = 3
MAGIC: Final = 4
ATTRIBUTES: Final = 5
LEADER_EPOCH: Final = 6
BASE_TIMESTAMP: Final = 7
MAX_TIMESTAMP: Final = 8
PRODUCER_ID: Final = 9
PRODUCER_EPOCH: Final = 10
BASE_SEQUENCE: Final = 11
COUNT: Final = 12
ROW_END: Final = 13


class Columns:
    """Some records of one partition, in the order of their offsets.

    `batches` has a row of int64 for each batch of the records: the fields of
    `protocol.records.layout.Batch` (`position` in the segment's file; -1 from a broker), and at
    `ROW_END` how many of the records here come from it or from earlier batches. A batch may have
    given none. At depth HEADERS there are only batches, at depth TIMES no keys, values and headers.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        buffers: ColumnBuffers,
        batches: Ints,
        append_times: AppendTimes | FetchedTimes,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.batches = batches
        self.count = buffers.record_count
        self.buffers = buffers  # `protocol.records.column_batches` writes from them
        self._append_times = append_times

    def __len__(self) -> int:
        return self.count

    @cached_property
    def offset(self) -> Ints:
        """The offsets."""
        return np.frombuffer(self.buffers.offsets, np.int64, self.count)

    @cached_property
    def timestamp_ms(self) -> Ints:
        """The times as a consumer sees them: for LogAppendTime the append time; -1: none."""
        return np.frombuffer(self.buffers.timestamps, np.int64, self.count)

    @cached_property
    def has_timestamp(self) -> Bools:
        """Whether each record has a time."""
        present: Bools = self.timestamp_ms != NO_TIMESTAMP
        return present

    @cached_property
    def append_time_ms(self) -> Ints:
        """The append times, UNKNOWN if not known; for LogAppendTime the record times."""
        known = self._append_times.at(self.offset)
        return np.where(self.is_log_append & self.has_timestamp, self.timestamp_ms, known)

    @cached_property
    def timestamp_type(self) -> npt.NDArray[np.int32]:
        """0 CreateTime, 1 LogAppendTime, -1 for format 0, which has no times.

        The numbers are those of Kafka's TimestampType.
        """
        return self.of_batch(self.batch_timestamp_type)

    @cached_property
    def is_log_append(self) -> Bools:
        """Whether the broker set the time of each record."""
        stamped: Bools = self.timestamp_type == 1
        return stamped

    @cached_property
    def producer_id(self) -> Ints:
        """The producer ids, -1 for none."""
        return self.of_batch(self.batches[:, PRODUCER_ID])

    @cached_property
    def size(self) -> Ints:
        """The bytes of each record in the log: its share of its batch.

        The shares of a batch add up.
        """
        ends, counts = self.batches[:, ROW_END], self._counts
        shares: Ints = np.arange(1, self.count + 1)
        shares -= self.of_batch(ends - counts)
        shares *= self.of_batch(self.batches[:, SIZE])
        shares //= self.of_batch(counts)  # the bytes of a batch up to and with each record
        firsts = (ends - counts)[counts > 0]
        whole = shares[firsts]
        shares[1:] -= shares[:-1].copy()
        shares[firsts] = whole
        return shares

    @cached_property
    def key(self) -> Any:
        """The keys: an Arrow array of binary."""
        from tidelog.pipeline.source import arrays

        return arrays.keys(self.buffers)

    @cached_property
    def value(self) -> Any:
        """The values: an Arrow array of binary."""
        from tidelog.pipeline.source import arrays

        return arrays.values(self.buffers)

    @cached_property
    def headers(self) -> Any:
        """The headers: Arrow array of list<struct<key: string, value: binary>>, null for none."""
        from tidelog.pipeline.source import arrays

        return arrays.headers(self.buffers, self._odd_names)

    @cached_property
    def header_names(self) -> Any:
        """The names of headers: Arrow array of list<binary>, null where all names are UTF-8."""
        from tidelog.pipeline.source import arrays

        return arrays.header_names(self.buffers, self._odd_names)

    @cached_property
    def _odd_names(self) -> list[bytes] | None:
        from tidelog.pipeline.source import arrays

        return arrays.odd_names(self.buffers)

    # --- batches ---------------------------------------------------------------------------------

    @cached_property
    def batch_timestamp_type(self) -> npt.NDArray[np.int32]:
        """The time type of each batch: 0 CreateTime, 1 LogAppendTime, -1 in format 0 (no times)."""
        stamped = self.batches[:, ATTRIBUTES] & LOG_APPEND_TIME_BIT != 0
        kinds = np.where(self.batches[:, MAGIC] == 0, -1, stamped)
        return kinds.astype(np.int32)

    @cached_property
    def batch_append_time_ms(self) -> Ints:
        """The append time of each batch, or UNKNOWN; for LogAppendTime its record time."""
        known = self._append_times.at(self.batches[:, LAST_OFFSET])
        times = self.batches[:, MAX_TIMESTAMP]
        stamped = (self.batch_timestamp_type == 1) & (times != NO_TIMESTAMP)
        return np.where(stamped, times, known)

    def of_batch(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns for each record the value of its batch."""
        return np.repeat(values, self._counts)

    @cached_property
    def _counts(self) -> Ints:
        return np.diff(self.batches[:, ROW_END], prepend=0)


NOTHING_KNOWN: Final = AppendTimes(None, 0, 0)

__all__ = ["NOTHING_KNOWN", "UNKNOWN", "Columns"]
