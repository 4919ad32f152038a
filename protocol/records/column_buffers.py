"""Records as columns: the buffers that `kernels.append_set` fills, and the request it gets.

The buffers are bytearrays in the layout of Apache Arrow: little-endian numbers on the machines we
run on, offsets as n + 1 ends, validity as bits. So a columnar library can use them without a copy.
`batches` has one row for each batch: the fields of `layout.Batch` as int64, then the number of
records up to its end. The other buffers have one row for each record, except at depth `HEADERS`.

A *broken* batch is one with an impossible size, magic, CRC, codec, count or length: `BrokenBatch`
names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# How much of each batch to read.
HEADERS: Final = 0  # batch headers only: nothing is decompressed
TIMES: Final = 1  # offset and time of every record; other fields are skipped
RECORDS: Final = 2  # everything

# Why `append_set` stopped.
MORE: Final = 0  # the rest of the data is not a whole batch
FULL: Final = 1  # `limit` is reached
PAST: Final = 2  # no batch from here on holds an offset below `high_offset`

BATCH_FIELDS: Final = 14  # fields of a row in `batches`: those of layout.Batch, then `ROW_END`
ROW_END: Final = 13

_NUMBERS: Final = 8  # bytes of an int64
_ENDS: Final = 4  # bytes of an int32
_LEAST: Final = 64


class BrokenBatch(Exception):
    """A batch that cannot be read: its position, the offset in its header, and the reason."""

    def __init__(self, position: int, offset: int, reason: str) -> None:
        super().__init__(position, offset, reason)
        self.position = position
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"the batch at byte {self.position} (offset {self.offset}) {self.reason}"


class RecordSelection(NamedTuple):
    """Which records `append_set` appends, and how much of each.

    Records have offsets from `low_offset` to before `high_offset`. With `timed`, only records with
    a time from `low_time` to `high_time`, both inclusive, are appended; a format-2 batch whose
    header has a smaller largest time is skipped without reading it. Control batches give no
    records. `aborted` maps a producer id to the (first, last) offsets of its aborted transactions,
    whose records are skipped. At depth `HEADERS` a batch belongs to the range that holds its last
    offset, and times are those of headers: a batch is skipped only if its header proves that no
    record matches. `limit`: stop after the batch with which the columns reach this many bytes.
    """

    depth: int = RECORDS
    low_offset: int = 0
    high_offset: int = 2**63 - 1
    timed: bool = False
    low_time: int = -(2**63)
    high_time: int = 2**63 - 1
    verify: bool = True
    limit: int = 64 << 20
    aborted: Mapping[int, Sequence[tuple[int, int]]] = {}


class EncodedRows(NamedTuple):
    """Rows encoded as the records of one format-2 batch, uncompressed and without its header.

    `end` is the first row that is not encoded. `largest` is the largest time, or -1 if no row has
    one.
    """

    data: bytes
    end: int
    base_timestamp: int
    largest: int


class ColumnBuffers:
    """Growing columns; the counts say how much of each buffer is used.

    Each `*_ends` buffer uses one entry more than there are rows, and the first entry is 0.
    `header_ends` holds the end of each record's list of headers. The other header buffers have one
    row for each header.
    """

    __slots__ = (
        "batch_count",
        "batches",
        "header_count",
        "header_ends",
        "header_key_bytes",
        "header_key_ends",
        "header_keys",
        "header_value_bytes",
        "header_value_ends",
        "header_value_valid",
        "header_values",
        "key_bytes",
        "key_ends",
        "key_valid",
        "keys",
        "offsets",
        "record_count",
        "timestamps",
        "value_bytes",
        "value_ends",
        "value_valid",
        "values",
    )

    def __init__(self) -> None:
        """Creates empty columns."""
        self.batch_count = self.record_count = self.header_count = 0
        self.key_bytes = self.value_bytes = self.header_key_bytes = self.header_value_bytes = 0
        self.batches = bytearray()
        self.offsets = bytearray()
        self.timestamps = bytearray()
        self.key_ends = bytearray(_ENDS)
        self.key_valid = bytearray()
        self.keys = bytearray()
        self.value_ends = bytearray(_ENDS)
        self.value_valid = bytearray()
        self.values = bytearray()
        self.header_ends = bytearray(_ENDS)
        self.header_key_ends = bytearray(_ENDS)
        self.header_keys = bytearray()
        self.header_value_ends = bytearray(_ENDS)
        self.header_value_valid = bytearray()
        self.header_values = bytearray()

    def filled(self) -> int:
        """Returns approximately how many bytes of the columns are used."""
        return (
            self.batch_count * BATCH_FIELDS * _NUMBERS
            + self.record_count * 32
            + self.key_bytes
            + self.value_bytes
            + self.header_count * 16
            + self.header_key_bytes
            + self.header_value_bytes
        )

    def reserve_batches(self, more: int) -> None:
        """Makes room for rows of batches."""
        _grow(self.batches, (self.batch_count + more) * BATCH_FIELDS * _NUMBERS)

    def reserve_times(self, records: int) -> None:
        """Makes room for offsets and times of records."""
        _grow(self.offsets, (self.record_count + records) * _NUMBERS)
        _grow(self.timestamps, (self.record_count + records) * _NUMBERS)

    def reserve(
        self,
        records: int,
        key_bytes: int,
        value_bytes: int,
        headers: int,
        header_key_bytes: int,
        header_value_bytes: int,
    ) -> None:
        """Makes room for whole records. Raises ValueError if the ends would exceed int32."""
        self.reserve_times(records)
        rows = self.record_count + records
        for ends in (self.key_ends, self.value_ends, self.header_ends):
            _grow(ends, (rows + 1) * _ENDS)
        for bits in (self.key_valid, self.value_valid):
            _grow(bits, rows // 8 + 1)
        _grow_data(self.keys, self.key_bytes + key_bytes)
        _grow_data(self.values, self.value_bytes + value_bytes)
        if headers:
            rows = self.header_count + headers
            _grow(self.header_key_ends, (rows + 1) * _ENDS)
            _grow(self.header_value_ends, (rows + 1) * _ENDS)
            _grow(self.header_value_valid, rows // 8 + 1)
            _grow_data(self.header_keys, self.header_key_bytes + header_key_bytes)
            _grow_data(self.header_values, self.header_value_bytes + header_value_bytes)


def _grow(buffer: bytearray, size: int) -> None:
    """Extends a buffer with zeros to at least `size` bytes."""
    if len(buffer) < size:
        buffer += bytes(max(size + size // 2, _LEAST) - len(buffer))


def _grow_data(buffer: bytearray, size: int) -> None:
    if size >= 2**31:
        raise ValueError(f"a column of {size} bytes is more than its int32 offsets can address")
    _grow(buffer, size)
