"""Compares what a target contains with what a run would write: record times, and CRCs of the rest.

Where other producers write to a partition too, only the log shows where the records of a run are.
Then the batches of the run's producer are searched for from the end of the log backwards, through
at most `MOST_BYTES`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client import EARLIEST, Client, RequestError
from tidelog.pipeline.errors import PipelineError
from tidelog.protocol.checksum import crc32c
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import kernels
from tidelog.protocol.records.batch import scan
from tidelog.protocol.records.columns import ColumnBuffers, RecordSelection, append_set

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COMPARED: Final = 100  # records before the offset at which the run continues
MOST_BYTES: Final = 64 << 20
FIRST_OFFSETS: Final = 2000
_WIDER: Final = 4

Fingerprint = tuple[int, int]


class Stored(NamedTuple):
    """A record in a target."""

    offset: int
    fingerprint: Fingerprint


class Trace(NamedTuple):
    """The result of a search for a producer's last batch.

    `records` are the records of that batch, by their sequences; there are none if no such batch was
    found at or after `searched_from`.
    """

    searched_from: int
    records: Mapping[int, Stored]

    @property
    def reached(self) -> int:
        """The number of records of the producer up to the end of that batch."""
        return max(self.records, default=-1) + 1


class Tail:
    """The last records of the source before an offset, for comparison with the target."""

    def __init__(self, where: str, *, with_time: bool) -> None:
        self._where = where
        self._with_time = with_time
        self._seen: deque[Fingerprint] = deque(maxlen=COMPARED)

    def add(self, columns: ColumnBuffers, end: int) -> None:
        """Adds the last rows before `end`."""
        self._seen.extend(fingerprints(columns, max(0, end - COMPARED), end))

    def compare(self, there: int, stored: Mapping[int, Stored]) -> bool:
        """Compares with the records of the target by record number; returns whether there were any.

        `there` is the number of the record after the last. Raises PipelineError if a record
        differs.
        """
        compared = False
        for number, expected in enumerate(self._seen, there - len(self._seen)):
            found = stored.get(number)
            if found is None:
                continue
            compared = True
            (time_ms, crc), (expected_ms, expected_crc) = found.fingerprint, expected
            if crc != expected_crc or (self._with_time and time_ms != expected_ms):
                raise PipelineError(
                    f"{self._where} has another record at offset {found.offset} than the run would have"
                    f" written there (time {time_ms} there, {expected_ms} here): somebody else has written to"
                    " it, or the source has changed; nothing was written; begin a new run with a topic of its"
                    " own"
                )
        return compared


def fingerprints(columns: ColumnBuffers, start: int, end: int) -> list[Fingerprint]:
    """Returns the time of each row, and a CRC of its key, value and headers."""
    found = []
    for row in range(start, end):
        data, _, timestamp, _ = kernels.encode_rows(columns, row, row + 1, 1)
        found.append((timestamp, crc32c(data)))
    return found


def stored(client: Client, topic: str, partition: int, start: int, end: int) -> list[Stored]:
    """Returns the records that a target has from `start` to before `end`. Raises ClientError."""
    return [
        one
        for data in _sets(client, topic, partition, start, end)
        for one in _records(data, start, end)
    ]


def trace(
    client: Client, topic: str, partition: int, producer_id: int, start: int, end: int
) -> Trace:
    """Searches for the last batch of a producer, from offset `end` back to `start`.

    Raises ClientError.
    """
    earliest = client.list_offsets(topic, {partition: EARLIEST})[partition].offset
    start, high, width, left = max(start, earliest), end, FIRST_OFFSETS, MOST_BYTES
    while high > start and left > 0:
        low = max(start, high - width)
        last: tuple[memoryview, int, int, int] | None = None
        for data in _sets(client, topic, partition, low, high):
            left -= len(data)
            for head in scan(data):
                if head.producer_id == producer_id and not head.is_control:
                    last = data, head.base_offset, head.last_offset, head.base_sequence
        if last is not None:
            data, first, final, sequence = last
            found = _records(data, first, final + 1)
            return Trace(low, {sequence + one.offset - first: one for one in found})
        high, width = low, width * _WIDER
    return Trace(high, {})


def _sets(client: Client, topic: str, partition: int, start: int, end: int) -> Iterator[memoryview]:
    """Yields record sets with the offsets from `start` to before `end`, as far as they exist."""
    offset = start
    while offset < end:
        try:
            data = client.fetch(topic, partition, offset).records
        except RequestError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            earliest = client.list_offsets(topic, {partition: EARLIEST})[partition].offset
            if earliest <= offset:
                return  # the log was truncated
            offset = earliest  # retention has deleted it
            continue
        heads = scan(data)
        if not heads:
            return
        yield data
        offset = heads[-1].last_offset + 1


def _records(data: memoryview, start: int, end: int) -> list[Stored]:
    """Returns the records of a set that lie in the range."""
    columns = ColumnBuffers()
    append_set(data, columns, RecordSelection(low_offset=start, high_offset=end))
    offsets = memoryview(columns.offsets)[: 8 * columns.record_count].cast("q")
    found = fingerprints(columns, 0, columns.record_count)
    return [Stored(*one) for one in zip(offsets.tolist(), found, strict=True)]
