"""Which record of each key remains when a log is compacted, in plain Python.

This is the twin of the functions in `_kernels.pyx` with the same names, and their documentation.
First the keys are added in the order of the log (`note`). Then `filter_records` decides which records
remain, and `select` writes those. They are copied unchanged, except for the time deltas of format 2,
which may count from another base.

By offset, a record replaces every earlier record of its key. By time, a record replaces the current
one if its record time is as large or larger, or if either has none. No record time counts as more
than the `time_limit` that the caller gives with it. Compacting two logs one after the other gives the
same records as compacting both at once, if the limits are the same.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import InvalidRecord
from tidelog.protocol.records.decode import count_headers, raw_records
from tidelog.protocol.records.encode import put_record
from tidelog.protocol.records.layout import INT64_MAX, NO_TIMESTAMP, PREFIX_SIZE, int64

if TYPE_CHECKING:
    from tidelog.protocol.records.layout import Region

_SIZE = Struct(">i")

MASK_LENGTH = "the records of a batch are not as many as they were"


class Filtered(NamedTuple):
    """Which records of a batch remain, and facts about those."""

    mask: bytes  # a byte for each record: 1 remains, 0 is removed
    kept: int
    has_tombstone: bool  # a remaining record has no value
    largest: int | None  # over the remaining records that have a time
    first: int | None
    has_missing: bool  # a remaining record has no time
    first_offset: int  # of the remaining records; -1 if there are none
    last_offset: int


class KeyMap:
    """For each key, the offset of the record that remains: at most `most` keys."""

    def __init__(self, most: int, by_time: bool) -> None:
        self._most = most
        self._by_time = by_time
        # Offset and time of each key's record, and whether no earlier record may replace it.
        self._entries: dict[bytes, tuple[int, int, bool]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, region: Region, min_offset: int, time_limit: int = INT64_MAX) -> int | None:
        """Adds the keyed records from an offset on; returns the first offset without room."""
        base_offset, stamp = region.base_offset, region.stamp
        entries = self._entries
        for raw in raw_records(region):
            offset = int64(base_offset + raw[0])
            if raw[2] is None or offset < min_offset:
                continue
            key, time = bytes(raw[2]), min(raw[1] if stamp is None else stamp, time_limit)
            known = entries.get(key)
            if known is None:
                if len(entries) >= self._most:
                    return offset
                entries[key] = (offset, time, time == NO_TIMESTAMP)
                continue
            _, other, settled = known
            if self._by_time and time != NO_TIMESTAMP != other and time < other:
                continue
            entries[key] = (offset, time, settled or time == NO_TIMESTAMP)
        return None

    def update_by_time(self, region: Region, min_offset: int, time_limit: int = INT64_MAX) -> None:
        """Replaces entries by earlier records with a larger time; adds no key.

        The records are from before all that was added.
        """
        base_offset, stamp = region.base_offset, region.stamp
        entries = self._entries
        for raw in raw_records(region):
            offset = int64(base_offset + raw[0])
            if raw[2] is None or offset < min_offset:
                continue
            key, time = bytes(raw[2]), min(raw[1] if stamp is None else stamp, time_limit)
            known = entries.get(key)
            if known is None or known[2] or time == NO_TIMESTAMP or time <= known[1]:
                continue
            entries[key] = (offset, time, False)

    def filter_records(self, region: Region, latest_offset: int, keep_tombstones: bool) -> Filtered:
        """Returns which records compaction keeps.

        All records after `latest_offset`, up to which keys were added, remain. Of the others those
        remain that the map holds for their key; tombstones among them only with `keep_tombstones`.
        Records without a key are removed.
        """
        base_offset, stamp = region.base_offset, region.stamp
        mask = bytearray()
        kept = 0
        first_offset = last_offset = -1
        largest = first = None
        has_tombstone = has_missing = False
        for raw in raw_records(region):
            offset = int64(base_offset + raw[0])
            if offset <= latest_offset and not (
                raw[2] is not None
                and self._is_retained(bytes(raw[2]), offset)
                and (keep_tombstones or raw[3] is not None)
            ):
                mask.append(0)
                continue
            mask.append(1)
            if not kept:
                first_offset = offset
            kept += 1
            last_offset = offset
            has_tombstone = has_tombstone or raw[3] is None
            time = raw[1] if stamp is None else stamp
            if time == NO_TIMESTAMP:
                has_missing = True
                continue
            if first is None:
                first = time
            if largest is None or time > largest:
                largest = time
        return Filtered(
            bytes(mask),
            kept,
            has_tombstone,
            largest,
            first,
            has_missing,
            first_offset,
            last_offset,
        )

    def _is_retained(self, key: bytes, offset: int) -> bool:
        known = self._entries.get(key)
        if known is None:
            return True
        return offset == known[0] if self._by_time else offset >= known[0]


def select(region: Region, mask: bytes, new_base_timestamp: int) -> bytes:
    """Returns the records that the mask selects, as they are stored.

    The time deltas of format 2 then count from `new_base_timestamp`. Offsets, and all fields of
    formats 0 and 1, are unchanged: the region's `base_offset` and `stamp` are ignored. Raises
    InvalidRecord as `examine` does.
    """
    out = bytearray()
    data, magic = region.data, region.magic
    number, position = 0, region.start
    for number, raw in enumerate(raw_records(region), 1):
        if number > len(mask):
            raise InvalidRecord(MASK_LENGTH)
        if magic < 2:
            (size,) = _SIZE.unpack_from(data, position + 8)
            following = position + PREFIX_SIZE + size
            if mask[number - 1]:
                out += data[position:following]
            position = following
        elif mask[number - 1]:
            offset, time, key, value, (headers, stop), _ = raw
            encoded = data[headers:stop]
            headers_count = count_headers(encoded)
            delta = time - new_base_timestamp
            put_record(out, offset, delta, key, value, headers_count, encoded)
    if number != len(mask):
        raise InvalidRecord(MASK_LENGTH)
    return bytes(out)
