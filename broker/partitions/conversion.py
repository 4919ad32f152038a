"""What a Fetch version can carry: reads a partition's records, and converts those it cannot.

Versions from 10 on carry every batch as it is stored. Versions 0-1 read format 0, 2-3 formats 0 and
1; newer formats are down-converted. Versions 4-9 do not know zstd: it is compressed again with
gzip. If nothing of a read remains after conversion (control batches), the read continues after it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.partitions.offload import WouldConvert
from tidelog.protocol.errors import (
    KafkaStorageError,
    MessageTooLarge,
    UnpackedTooLarge,
    UnsupportedVersion,
)
from tidelog.protocol.records import convert, kernels
from tidelog.protocol.records.batch import Compression, scan
from tidelog.protocol.records.layout import NEWEST_MAGIC, PREFIX_SIZE
from tidelog.storage.log.large_batch import LargeBatch, large_batch
from tidelog.storage.would_block import NeedsMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidelog.broker.pools import Permit
    from tidelog.protocol.api.fetch import SegmentAppendTimes
    from tidelog.protocol.records.batch import Batch
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.slices import Fetched

AS_STORED_SINCE = 10
_RAW_SINCE = 4
_SOFT_LIMIT_SINCE = 3
_FORMAT_1_SINCE = 2

# The most uncompressed data that is converted on the loop; more, and all compressed data, is
# converted in a thread.
_LOOP_BATCHES = 64
_LOOP_BYTES = 16_384
_UNRESERVED_BYTES = 1 << 20  # what a batch may unpack to where no memory is reserved
_MAGIC_AT = 16  # in a batch, and in a message of the older formats
_HELD_BYTES = 64 << 10  # a first batch beyond the limit is streamed from this size on


class Records(NamedTuple):
    """Records as a version carries them, their bytes, and how many were down-converted."""

    buffers: Sequence[Buffer | LargeBatch]
    size: int
    converted: int
    is_as_stored: bool = True
    append_times: list[SegmentAppendTimes] | None = None  # None: not asked for
    ends_early: bool = (
        False  # where the message format changes: more can be read, by another request
    )


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
    limit: int  # bytes; less than the client's if the whole response must be smaller
    partition_limit: int  # bytes, the client's own for this partition
    upper_offset: int
    version: int
    is_first: bool  # no partition of this request has returned data yet
    permit: Permit

    @property
    def has_hard_limit(self) -> bool:
        """Whether the version has its records cut at the limit, also in the middle of a batch."""
        return self.version < _SOFT_LIMIT_SINCE

    @property
    def is_cut_for_the_client(self) -> bool:
        """Whether a batch that is beyond the limit is also beyond that of the client, which may raise it.

        Versions with a soft limit never get a part of a batch.
        """
        return self.has_hard_limit and self.limit >= self.partition_limit

    def with_room_for(self, size: int) -> Reading:
        """The same with a limit of at least `size` bytes, as far as the client's own allows it."""
        return self._replace(limit=max(self.limit, min(size, self.partition_limit)))

    def fetch(self, offset: int, *, minimum_one: bool) -> Fetched:
        """Reads the log from an offset."""
        return self.partition.read(
            offset,
            max(self.limit, 1),  # the size of the first batch is known then
            upper_offset=self.upper_offset,
            minimum_one=minimum_one,
            may_block=self.permit.may_block,
        )


def read_as_stored(
    partition: Partition,
    offset: int,
    limit: int,
    upper_offset: int,
    *,
    is_first: bool,
    may_block: bool,
) -> Records:
    """Reads whole batches, unchanged, up to `limit` bytes; the first one of a request at any size.

    A first batch that is both beyond the limit and large is not read: it is to be streamed. Raises what
    `Partition.read` raises.
    """
    buffers, size, first_batch_size = partition.read(
        offset,
        max(limit, 1) if is_first else limit,
        upper_offset=upper_offset,
        minimum_one=False,
        may_block=may_block,
    )
    if size >= first_batch_size:
        return _of_one_format(buffers, size)
    if not is_first:  # a batch is returned whole or not at all
        return NO_RECORDS
    if first_batch_size > _HELD_BYTES:
        large = large_batch(partition.state, offset, upper_offset)
        return NO_RECORDS if large is None else Records((large,), len(large), 0)
    buffers, size, _ = partition.read(
        offset, limit, upper_offset=upper_offset, minimum_one=True, may_block=may_block
    )
    return _of_one_format(buffers, size)


def _of_one_format(
    buffers: Sequence[memoryview], size: int, carried: int = NEWEST_MAGIC
) -> Records:
    """Returns what was read up to where its message format changes, newer ones converted to `carried`.

    Clients fail at a second format in one answer (ruby-kafka 696, kafkajs 246).
    """
    has_magic = bool(buffers) and len(buffers[0]) > _MAGIC_AT
    magic = min(buffers[0][_MAGIC_AT], carried) if has_magic else NEWEST_MAGIC
    for number, data in enumerate(buffers):
        end = kernels.find_other_format(data, magic, carried)
        if end < len(data):
            kept = [*buffers[:number], data[:end]] if end else buffers[:number]
            return Records(kept, sum(map(len, kept)), 0, ends_early=True)
    return Records(buffers, size, 0)


def read_for_version(reading: Reading) -> Records:
    """Reads one partition for a version before AS_STORED_SINCE.

    Raises what `Partition.read` raises, WouldConvert on the loop, Abandoned in a thread, and
    UnsupportedVersion if the topic's records are not down-converted.
    """
    if reading.version < _RAW_SINCE:
        return _read_old(reading)
    stored = read_as_stored(
        reading.partition,
        reading.offset,
        reading.limit,
        reading.upper_offset,
        is_first=reading.is_first,
        may_block=reading.permit.may_block,
    )
    batches = _batches(stored.buffers)
    if all(batch.compression is not Compression.ZSTD for batch in batches):
        return stored
    permit = reading.permit
    _check_size(batches, may_block=permit.may_block)
    with _limited(permit):
        held = _held(stored.buffers, permit)
        data = convert.transcode_zstd(
            held, permit.check, permit.unpacked_bytes or _UNRESERVED_BYTES
        )
    return Records((data,), len(data), 0, is_as_stored=False)


def _read_old(reading: Reading) -> Records:
    """Reads for a version without format 2: converts where needed, and always makes progress."""
    hard = reading.has_hard_limit
    magic = carried_by(reading.version)
    if reading.limit <= 0 and (hard or not reading.is_first):
        return NO_RECORDS  # all of it would be truncated
    buffers: Sequence[Buffer | LargeBatch]
    buffers, size, first_batch_size = reading.fetch(reading.offset, minimum_one=False)
    found = _of_one_format(buffers, size, magic)
    buffers, size, ends_early = found.buffers, found.size, found.ends_early
    batches = _batches(buffers)
    if size < first_batch_size:
        if not reading.is_first and not reading.is_cut_for_the_client:
            return NO_RECORDS
        first = large_batch(reading.partition.state, reading.offset, reading.upper_offset)
        if first is None:
            return NO_RECORDS
        batches = [first.batch]
        if not hard or first.batch.magic > magic:
            buffers, size = (first,), len(first)
        elif not reading.is_cut_for_the_client:
            buffers, size, _ = reading.with_room_for(first_batch_size).fetch(
                reading.offset, minimum_one=False
            )
    if any(batch.magic > magic for batch in batches):
        if not reading.partition.config.message_downconversion_enable:
            raise UnsupportedVersion("message.downconversion.enable=false on this topic")
        _check_size(batches, may_block=reading.permit.may_block)
        with _limited(reading.permit):
            stored = _held(buffers, reading.permit)
            data, records, ends_early = _converted(reading, stored, magic, ends_early=ends_early)
        kept = _cut((data,), _cut_at(reading, data)) if hard else (data,)
        size = sum(map(len, kept))
        return Records(kept, size, records, is_as_stored=False, ends_early=ends_early)
    if size <= _HELD_BYTES and not hard:
        buffers = _held(buffers, reading.permit)
    return Records(buffers, size, 0, ends_early=ends_early)


def _cut_at(reading: Reading, data: Buffer) -> int:
    """Returns how many bytes of converted messages a version with a hard limit may have.

    The first message is whole if it is within the client's own limit: else the client would raise an
    error, as if it could not read the message. Then there is nothing, or the message alone.
    """
    if reading.is_cut_for_the_client or len(data) <= reading.limit:
        return reading.limit
    first_size = PREFIX_SIZE + int.from_bytes(data[PREFIX_SIZE - 4 : PREFIX_SIZE], "big")
    if first_size <= reading.limit:
        return reading.limit
    return reading.with_room_for(first_size).limit if reading.is_first else 0


@contextmanager
def _limited(permit: Permit) -> Iterator[None]:
    """Turns records that unpack to too much into a request for more memory, or a refusal."""
    try:
        yield
    except UnpackedTooLarge as error:
        if permit.may_need_more or not permit.unpacked_bytes:
            raise NeedsMemory(error.message) from None
        raise MessageTooLarge(f"{error.message}: see memory.limit.bytes") from None


def _converted(
    reading: Reading, stored: Sequence[Buffer], magic: int, *, ends_early: bool
) -> tuple[Buffer, int, bool]:
    """Down-converts, and reads on past batches of which nothing remains.

    Returns the data, the number of converted records, and whether the read ends early.
    """
    at, permit = reading.offset, reading.permit
    while True:
        converted = convert.down_convert(
            stored,
            target_magic=magic,
            fetch_offset=at,
            check=permit.check,
            most_bytes=permit.unpacked_bytes or _UNRESERVED_BYTES,
        )
        if converted.data or not at < converted.next_offset < reading.upper_offset:
            return converted.data, converted.records, ends_early
        at = converted.next_offset
        buffers, size, _ = reading.fetch(at, minimum_one=True)
        found = _of_one_format(buffers, size, magic)
        stored, ends_early = _held(found.buffers, permit), found.ends_early


def _batches(buffers: Sequence[Buffer | LargeBatch]) -> list[Batch]:
    """Returns the whole batches of what was read."""
    return [
        batch
        for buffer in buffers
        for batch in ((buffer.batch,) if isinstance(buffer, LargeBatch) else scan(buffer))
    ]


def _held(buffers: Sequence[Buffer | LargeBatch], permit: Permit) -> list[Buffer]:
    """Returns what was read, with large batches in memory.

    Raises KafkaStorageError, and UnpackedTooLarge for a batch that unpacks to more than is permitted.
    """
    most_bytes = permit.unpacked_bytes or _UNRESERVED_BYTES
    for buffer in buffers:
        if isinstance(buffer, LargeBatch) and len(buffer) > most_bytes:
            raise UnpackedTooLarge(f"a batch of {len(buffer)} bytes has to be converted")
    try:
        return [
            buffer.read(0, len(buffer)) if isinstance(buffer, LargeBatch) else buffer
            for buffer in buffers
        ]
    except OSError as error:
        raise KafkaStorageError(f"a batch cannot be read: {error}") from error


def _cut(buffers: Sequence[Buffer], limit: int) -> Sequence[Buffer]:
    """Returns the first `limit` bytes: a truncated message makes an old client raise its limit."""
    kept: list[Buffer] = []
    for buffer in buffers:
        if limit <= 0:
            break
        kept.append(buffer if len(buffer) <= limit else bytes(memoryview(buffer)[:limit]))
        limit -= len(buffer)
    return kept
