"""What a Fetch version can carry: reads a partition's records, and converts those it cannot.

Versions from 10 on carry every batch as it is stored. Versions 0-1 read format 0, 2-3 formats 0 and
1; newer formats are down-converted. Versions 4-9 do not know zstd: it is compressed again with
gzip. If nothing of a read remains after conversion (control batches), the read continues after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.partitions.offload import WouldConvert
from protocol.errors import UnsupportedVersion
from protocol.records import convert
from protocol.records.batch import Compression, scan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.pools import Permit
    from protocol.api.fetch import SegmentAppendTimes
    from protocol.records.batch import Batch
    from protocol.wire import Buffer
    from storage.log.partition import Partition
    from storage.log.slices import Fetched

AS_STORED_SINCE = 10
_RAW_SINCE = 4
_SOFT_LIMIT_SINCE = 3
_FORMAT_1_SINCE = 2

# The most uncompressed data that is converted on the loop; more, and all compressed data, is
# converted in a thread.
_LOOP_BATCHES = 64
_LOOP_BYTES = 16_384


class Records(NamedTuple):
    """Records as a version carries them, their bytes, and how many were down-converted."""

    buffers: Sequence[Buffer]
    size: int
    converted: int
    is_as_stored: bool = True
    append_times: list[SegmentAppendTimes] | None = None  # None: not asked for


NO_RECORDS = Records((), 0, 0)


def carried_by(version: int) -> int:
    """Returns the newest message format that a Fetch version carries."""
    return 2 if version >= _RAW_SINCE else 1 if version >= _FORMAT_1_SINCE else 0


def _check_size(batches: Sequence[Batch], *, may_block: bool) -> None:
    """Raises WouldConvert if converting these batches would block the loop for too long.

    The decompressed size of a compressed batch is not known in advance.
    """
    if not may_block and (
        len(batches) > _LOOP_BATCHES
        or any(each.compression or each.size > _LOOP_BYTES for each in batches)
    ):
        raise WouldConvert


def copied_as(
    buffers: Sequence[Buffer], newest_magic: int, check: Callable[[], None], *, may_block: bool
) -> Records:
    """Converts batches for a follower that stores none of a newer format than `newest_magic`.

    Raises WouldConvert without `may_block`, and what `check` raises between the steps.
    """
    batches = _batches(buffers)
    if not any(each.magic > newest_magic and convert.is_convertible(each) for each in batches):
        return Records(buffers, sum(map(len, buffers)), 0)
    _check_size(batches, may_block=may_block)
    data, records, _ = convert.down_convert_copy(buffers, target_magic=newest_magic, check=check)
    return Records((data,), len(data), records)


class Reading(NamedTuple):
    """What to read of one partition, and for which request."""

    partition: Partition
    offset: int
    limit: int
    upper_offset: int
    version: int
    is_first: bool  # no partition of this request has returned data yet
    permit: Permit

    def fetch(self, offset: int, *, minimum_one: bool) -> Fetched:
        """Reads the log from an offset."""
        return self.partition.read(
            offset,
            self.limit,
            upper_offset=self.upper_offset,
            minimum_one=minimum_one,
            may_block=self.permit.may_block,
        )


def read_for_version(reading: Reading) -> Records:
    """Reads one partition for a version before AS_STORED_SINCE.

    Raises what `Partition.read` raises, WouldConvert on the loop, Abandoned in a thread, and
    UnsupportedVersion if the topic's records are not down-converted.
    """
    if reading.version < _RAW_SINCE:
        return _read_old(reading)
    fetched = reading.fetch(reading.offset, minimum_one=reading.is_first)
    if fetched.size < fetched.first_batch_size:
        return NO_RECORDS  # from version 3 on a batch is returned whole or not at all
    batches = _batches(fetched.buffers)
    if all(batch.compression is not Compression.ZSTD for batch in batches):
        return Records(fetched.buffers, fetched.size, 0)
    _check_size(batches, may_block=reading.permit.may_block)
    data = convert.transcode_zstd(fetched.buffers, reading.permit.check)
    return Records((data,), len(data), 0, is_as_stored=False)


def _read_old(reading: Reading) -> Records:
    """Reads for a version without format 2: converts where needed, and always makes progress."""
    hard = reading.version < _SOFT_LIMIT_SINCE
    magic = carried_by(reading.version)
    fetched = reading.fetch(reading.offset, minimum_one=hard or reading.is_first)
    if not fetched.size or (not hard and fetched.size < fetched.first_batch_size):
        return NO_RECORDS
    records, is_as_stored = 0, True
    buffers: Sequence[Buffer] = fetched.buffers
    batches = _batches(buffers)
    if any(batch.magic > magic for batch in batches):
        if not reading.partition.config.message_downconversion_enable:
            raise UnsupportedVersion("message.downconversion.enable=false on this topic")
        if hard and reading.limit <= 0:
            return NO_RECORDS  # all of it would be truncated
        _check_size(batches, may_block=reading.permit.may_block)
        data, records = _converted(reading, fetched, magic)
        buffers, is_as_stored = (data,), False
    if hard:
        buffers = _cut(buffers, reading.limit)
    return Records(buffers, sum(map(len, buffers)), records, is_as_stored)


def _converted(reading: Reading, fetched: Fetched, magic: int) -> tuple[Buffer, int]:
    """Down-converts, and reads on past batches of which nothing remains.

    Returns the data and the number of converted records.
    """
    at = reading.offset
    while True:
        converted = convert.down_convert(
            fetched.buffers,
            target_magic=magic,
            fetch_offset=at,
            check=reading.permit.check,
        )
        if converted.data or not at < converted.next_offset < reading.upper_offset:
            return converted.data, converted.records
        at = converted.next_offset
        fetched = reading.fetch(at, minimum_one=True)


def _batches(buffers: Sequence[Buffer]) -> list[Batch]:
    """Returns the whole batches of what was read."""
    return [batch for buffer in buffers for batch in scan(buffer)]


def _cut(buffers: Sequence[Buffer], limit: int) -> Sequence[Buffer]:
    """Returns the first `limit` bytes: a truncated message makes an old client raise its limit."""
    kept: list[Buffer] = []
    for buffer in buffers:
        if limit <= 0:
            break
        kept.append(buffer if len(buffer) <= limit else memoryview(buffer)[:limit])
        limit -= len(buffer)
    return kept
