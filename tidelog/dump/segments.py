"""A segment in `tidelog dump`: every batch of a `.log`, checked and described.

It checks checksums, headers against their records, ascending offsets, and the end of the file.
Reading does not stop at a bad batch if its size is plausible: later batches are shown and checked
too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.protocol.errors import CorruptMessage, UnpackedTooLarge
from tidelog.protocol.records.batch import Compression, records, summarize, verify
from tidelog.protocol.records.layout import CODEC_MASK
from tidelog.storage import filenames, files
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.batch_headers import HEADER_SIZE, batch_size
from tidelog.storage.segment.log_file import Tail
from tidelog.storage.segment.named_file import NamedFile
from tidelog.storage.segment.segment import Segment
from tidelog.storage.time.stamping import LOG_APPEND_TIME
from tidelog.storage.time.timestamp import or_none
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tidelog.protocol.records.batch import Batch, Record, Summary
    from tidelog.storage.segment.log_file import Found

    AppendedAt = Callable[[int], int | None]

_ZEROS_BLOCK = 1 << 20
UNPACK_LIMIT: Final = 64 << 20
"""Bytes; with the default of memory.limit.bytes a broker accepts no batch that unpacks to more."""


class DumpOptions(NamedTuple):
    """What is read of files: whether to show records, and to how many bytes a batch may unpack."""

    with_records: bool
    unpack_limit: int = UNPACK_LIMIT


class Row(NamedTuple):
    """One entry of a file; `kind` names its kind, the fields are in display order."""

    kind: str
    fields: dict[str, Any]


class DumpFinding(NamedTuple):
    """One impossible thing: where in the file, and what."""

    where: str
    what: str


def base_offset_of(path: Path) -> int:
    """Returns the offset in the name of a segment's file."""
    segment_file = filenames.parse_segment_file(path.name)
    assert segment_file is not None
    return segment_file.offset


def next_base_after(path: Path) -> int | None:
    """Returns the base offset of the segment after a segment's file, None if there is none."""
    base_offset = base_offset_of(path)
    bases = (base_offset_of(log) for log in path.parent.glob(f"*{filenames.LOG_SUFFIX}"))
    return min((base for base in bases if base > base_offset), default=None)


def segment_of(log: Path) -> Segment:
    """Returns a `.log` as a segment to read; all its bytes belong to it. Raises OSError."""
    base_offset = base_offset_of(log)
    return Segment(log.parent, base_offset, Tail(base_offset, log.stat().st_size))


def known(number: int) -> int | None:
    """Returns None for Kafka's -1, else the number."""
    return None if number == -1 else number


def read_segment(path: Path, wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
    """Yields every batch, checked and described; with its records if asked."""
    segment = segment_of(path)
    size, appended = segment.tail.size, _append_times_beside(path)
    next_offset, position = segment.base_offset, 0
    try:
        for found in segment.walk():
            where, batch = f"byte {found.position}", found.batch
            faults: list[str] = []
            summary = _summary(found, faults, wanted.unpack_limit)
            first_offset = batch.base_offset if summary is None else summary.base_offset
            if summary is not None:
                faults += _lies(batch, summary)
            if _goes_back(first_offset, batch, next_offset):
                shown = batch.last_offset if first_offset < 0 else first_offset
                faults.append(f"offset {shown} where {next_offset} or a later one belongs")
            yield Row("batch", _batch_fields(found, summary, appended, is_bad=bool(faults)))
            yield from (DumpFinding(where, fault) for fault in faults)
            if wanted.with_records and summary is not None:
                yield from _records(found, where, wanted.unpack_limit)
            next_offset = max(next_offset, batch.last_offset + 1)
            position = found.position + batch.size
    except CorruptMessage as error:
        yield DumpFinding(f"byte {position}", _torn(path, position, size, error.message))


def _summary(found: Found, faults: list[str], unpack_limit: int) -> Summary | None:
    """Returns what the records of a batch contain; None, and a fault, if they cannot be read."""
    try:
        verify(found.buffer, found.batch)
        return summarize(found.buffer, found.batch, unpack_limit)
    except UnpackedTooLarge as error:
        faults.append(f"{error.message}: it was not examined (--unpack-limit)")
        return None
    except CorruptMessage as error:
        faults.append(_without_position(error, found.batch))
        return None


def _without_position(error: CorruptMessage, batch: Batch) -> str:
    """Returns an error's text without its position, which is one in the read buffer."""
    return error.message.replace(f"the batch at byte {batch.position}", "the batch")


def _lies(batch: Batch, summary: Summary) -> Iterator[str]:
    """Yields the contradictions between a batch's header and its records."""
    if batch.last_offset != summary.last_offset:
        yield f"the header's offset is {batch.last_offset}, the last record's {summary.last_offset}"
    claimed = or_none(batch.max_timestamp)
    if summary.count and claimed != summary.largest:
        yield (
            f"the header's largest time is {_time(claimed)}, the records' {_time(summary.largest)}"
        )


def _time(timestamp: int | None) -> str:
    return "none" if timestamp is None else str(timestamp)


def _goes_back(first_offset: int, batch: Batch, next_offset: int) -> bool:
    """Returns whether a batch has offsets before `next_offset`; a wrapper may hide its first."""
    return (batch.last_offset if first_offset < 0 else first_offset) < next_offset


def _batch_fields(
    found: Found, summary: Summary | None, appended: AppendedAt, *, is_bad: bool
) -> dict[str, Any]:
    batch = found.batch
    return {
        "position": found.position,
        "size": batch.size,
        "base_offset": batch.base_offset if summary is None else summary.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.count if summary is None else summary.count,
        "magic": batch.magic,
        "compression": _codec(batch),
        "time_type": _time_type(batch),
        "max_timestamp": or_none(batch.max_timestamp),
        "append_time": appended(batch.last_offset),
        "leader_epoch": known(batch.leader_epoch),
        "producer_id": known(batch.producer_id),
        "producer_epoch": known(batch.producer_epoch),
        "base_sequence": known(batch.base_sequence),
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "is_bad": is_bad,
    }


def _codec(batch: Batch) -> str:
    number = batch.attributes & CODEC_MASK
    return Compression(number).name.lower() if number in set(Compression) else f"codec {number}"


def _time_type(batch: Batch) -> str | None:
    if batch.magic == 0:
        return None
    return LOG_APPEND_TIME if batch.is_log_append_time else "CreateTime"


def _records(found: Found, where: str, unpack_limit: int) -> Iterator[Row | DumpFinding]:
    try:
        for record in records(found.buffer, found.batch, unpack_limit):
            yield Row("record", _record_fields(record))
    except CorruptMessage as error:
        yield DumpFinding(where, _without_position(error, found.batch))


def _record_fields(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": or_none(record.timestamp),
        "key": record.key,
        "value": record.value,
        "headers": list(record.headers),
    }


def _append_times_beside(path: Path) -> AppendedAt:
    """Returns a function from an offset to its append time, or None if that is unknown."""
    file = NamedFile(path.with_suffix(filenames.APPEND_TIMES_SUFFIX))
    file.is_damage_logged = True  # its own dump reports it
    times, following = AppendTimes(file, base_offset_of(path)), next_base_after(path)
    if not times.load():
        return lambda _offset: None
    if following is not None:
        times.close_at(following)
    return times.at


def _torn(path: Path, position: int, size: int, reason: str) -> str:
    """Returns a description of bytes that are not a complete batch."""
    descriptor, rest = files.Descriptor(path), size - position
    for start in range(position, size, _ZEROS_BLOCK):
        if any(files.read_at(descriptor, min(_ZEROS_BLOCK, size - start), start)):
            break
    else:
        return f"{some(rest, 'byte')} of zeros up to the end"
    announced = batch_size(files.read_at(descriptor, HEADER_SIZE, position))
    if announced is None:
        return f"cut: {some(rest, 'byte')} up to the end, too few for a batch"
    if announced > rest:
        return f"cut: a batch of {announced} bytes, and {rest} up to the end"
    return f"{reason}; {some(rest, 'byte')} up to the end not read"
