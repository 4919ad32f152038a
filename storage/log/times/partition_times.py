"""`partition.times`: the times of a partition, stored so that a clean start reads no log.

    header    4 bytes "tidp", int32 version (3 to 6), uint32 CRC-32C of what follows; big-endian
    state     int64 largest event time ever, each counted at most as its limit (-1: none)
              int64 last append time (Long.MIN: unknown)
              int64 log start offset
              int64 covered offset: .appendtimes is known to be right before it
              int16 length, and the writing machine's boot id as UTF-8; "offline" if the next start
              has to doubt append times from the covered offset on, as after a power loss
    segments  int32 how many, then for each
              int64 base offset, int64 end offset, int64 size of the .log in bytes
              int64 first, largest record time (-1: none), int64 offset of the largest
              int64 largest event time as above (-1: none)
              int64 largest of min(record time, append time); none where there are no bytes
              int64 first, last append time (Long.MIN: unknown)
              int32 entries of the .index, int32 of .timeindex and .negativetimes
              int8 bit 0: a record has no time; bit 1: batch headers and indexes are true;
              bit 2: the append time of some batch is unknown
              int64 what the clock showed at the first append (Long.MIN: unknown)
              int64 offset of the first adopted batch that Java clients cannot read (-1: none is
              known); only in versions 5 and 6
    adopted   int32 how many, then for each
              int64 end offset, int64 the moment at which batches with unknown append times before
              it, and not before the end offset before, were adopted
    corrected int32 how many, then for each correction (`storage/time/corrections.py`)
              int64 start offset, end offset; int64 first, last append time; int64 shift, bound
    clock     int16 length, and the id of the clock's history as UTF-8
              int64 number of the last step forward in it that the corrections have
              int64 from, to: delete horizons from the one time on count at least from the other
              on (Long.MIN: there are none)
    copies    only in versions 4 to 6
              int8 1: other brokers have copies of the log
              int32 leader epoch, int32 number of the last correction of a leader (0: none)
    behind    only in version 6: what leaders whose clocks were behind have appended
              int64 start offset, end offset (Long.MAX: all that the log has); int64 by how much
              they were behind at most, in milliseconds
    mark      int64 offset of the last reset of the append clock; 0 if there was none
    cut       only in a log that has been truncated, or that went offline with refused records
              int64 recovery point and int64 cleaned offset (-1: none): if the directory's
              checkpoints are beyond them, the checkpoints are older than a truncation
              int64 offset to which a truncation in progress truncates the log (-1: none is)
              int8 1: it restarts the log, empty, at that offset
    gaps      int64 the log may have gaps up to this offset, see `storage/log/recovery/gaps.py`

A log that was always on one broker is written in version 3: its corrections have no number. Only one
with a batch that Java clients cannot read is written in version 5, and only a follower's that has got
batches of a leader whose clock was behind in version 6, until it leads itself or that is corrected. A file
of version 2 has no corrections and no steps of the clock. One of version 1 also has no clock
readings and no moments of adoption; its lines with unknown append times are not used: there the
dates of files stood in. Any file may have no gaps, and no mark where it would be 0 and no cut
follows.

A segment's line describes its first `size` bytes: later appends are read from the log again. The
file is replaced by rename, durably, at flush, close and retention, and once, not durably, when the
partition is created. So it may be older than the log, but never newer than what is durable. A file
that fails its checksum is ignored: then times are read from the log, once, lazily.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.checksum import crc32c
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage import files
from tidelog.storage.segment.segment_line import SegmentLine
from tidelog.storage.time.adoption import Adopted
from tidelog.storage.time.corrections import NO_MARK, Correction, Mark, WrittenBehind
from tidelog.storage.time.segment_times import SegmentTimes

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

    from tidelog.storage.segment.segment import Segment

FILE_NAME = "partition.times"
MAGIC = b"tidp"
VERSION = 6
_WITH_BEHIND = 6
_WITH_UNREADABLE = 5
_WITH_COPIES = 4
_WITH_CORRECTIONS = 3
_WITH_ADOPTIONS = 2  # the first version that has them, and clock readings
UNKNOWN = -(2**63)
_HEAD = struct.Struct(">4siI")
_STATE = struct.Struct(">qqqqH")
_COUNT = struct.Struct(">i")
_ADOPTED = struct.Struct(">qq")
_CORRECTION = struct.Struct(">6q")
_LENGTH = struct.Struct(">H")
_STEPS = struct.Struct(">qqq")
_MARK = struct.Struct(">q")
_CUT = struct.Struct(">qqqb")
_COPIES = struct.Struct(">bii")
_BEHIND = struct.Struct(">qqq")
_GAPS = struct.Struct(">q")
_NONE = -1
_SEGMENT = struct.Struct(">10qiibq")
_SEGMENT_1 = struct.Struct(">10qiib")  # of version 1
_SEGMENT_5 = struct.Struct(">10qiibqq")  # of versions 5 and 6
_HAS_MISSING = 1
_IS_TRUE = 2
_HAS_UNKNOWN = 4


class Cut(NamedTuple):
    """Facts after a truncation, or of one to come: the checkpoints may be older than it."""

    recovery_point: int  # the durable offset, whatever the checkpoint says
    cleaned_offset: int | None  # the compacted offset, likewise; None: never
    offset: int | None = None  # of a truncation in progress; the next start completes it
    begins_anew: bool = False  # it drops every batch, and the log restarts at that offset


class ClockMark(NamedTuple):
    """The steps of the clock that a partition has taken into account."""

    history_id: str = ""  # of the history in which they are numbered; empty: of none
    number: int = 0  # of the last one
    late_horizons: tuple[int, int] | None = None  # see `tombstones.counted_horizon`


class PartitionTimes(NamedTuple):
    """The content of the file."""

    max_event_time: int | None
    last_append_time_ms: int | None
    log_start_offset: int
    covered_offset: int
    boot_id: str
    segments: tuple[SegmentLine, ...]
    back_offset: int = 0  # offset of the last reset of the append clock; 0: none
    cut: Cut | None = None  # None: not truncated since the last clean stop
    gaps_end_offset: int | None = None  # up to which the log may have gaps; None: not recorded
    adopted: tuple[Adopted, ...] = ()  # when batches with unknown append times were adopted
    corrections: tuple[Correction, ...] = ()  # of append times that a wrong clock gave
    clock: ClockMark = ClockMark()
    is_replicated: bool = False  # other brokers have copies
    mark: Mark = NO_MARK  # the last correction that a leader made
    written_behind: WrittenBehind | None = None  # by leaders before, and not corrected


def lines_of(segments: Iterable[Segment], left_out: Container[int]) -> tuple[SegmentLine, ...]:
    """Returns the lines of the segments whose times are all known; nothing is read for it.

    `left_out` has the base offsets of segments that get no line.
    """
    lines = []
    for segment in segments:
        times, size = segment.known.times, segment.known.size
        tail = segment.tail
        if size == tail.size and segment.base_offset not in left_out:
            lines.append(
                SegmentLine(
                    segment.base_offset,
                    *tail,
                    times.copy(),
                    *segment.indexes.entries,
                    segment.indexes.is_true,
                )
            )
    return tuple(lines)


def read(directory: Path) -> PartitionTimes | None:
    """Reads the file; None if it is missing, damaged or of another version. Raises OSError."""
    try:
        data = (directory / FILE_NAME).read_bytes()
    except FileNotFoundError:
        return None
    return parse(data)


def parse(data: bytes) -> PartitionTimes | None:
    """Parses the bytes of the file; None if they are damaged or of another version."""
    if len(data) < _HEAD.size:
        return None
    magic, version, checksum = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if magic != MAGIC or not 1 <= version <= VERSION or checksum != crc32c(body):
        return None
    event, append, start, covered, size = _STATE.unpack_from(body)
    position = _STATE.size + size
    boot_id = str(body[_STATE.size : position], "utf-8")
    (count,) = _COUNT.unpack_from(body, position)
    position += _COUNT.size
    segment = _SEGMENT_1 if version < _WITH_ADOPTIONS else _SEGMENT
    if version >= _WITH_UNREADABLE:
        segment = _SEGMENT_5
    end = position + count * segment.size
    lines = tuple(_line(*fields) for fields in segment.iter_unpack(body[position:end]))
    adopted: tuple[Adopted, ...] = ()
    if version >= _WITH_ADOPTIONS:
        (count,) = _COUNT.unpack_from(body, end)
        position, end = end + _COUNT.size, end + _COUNT.size + count * _ADOPTED.size
        adopted = tuple(Adopted(*each) for each in _ADOPTED.iter_unpack(body[position:end]))
    else:
        lines = tuple(line for line in lines if not line.times.has_unknown)
    corrections: tuple[Correction, ...] = ()
    clock = ClockMark()
    if version >= _WITH_CORRECTIONS:
        corrections, clock, end = _corrected(body, end)
    is_replicated, mark = 0, NO_MARK
    if version >= _WITH_COPIES:
        is_replicated, *numbers = _COPIES.unpack_from(body, end)
        mark, end = Mark(*numbers), end + _COPIES.size
    written_behind = None
    if version >= _WITH_BEHIND:
        written_behind = WrittenBehind(*_BEHIND.unpack_from(body, end))
        end += _BEHIND.size
    return PartitionTimes(
        _or_none(event, NO_TIMESTAMP),
        _or_none(append, UNKNOWN),
        start,
        covered,
        boot_id,
        lines,
        _MARK.unpack_from(body, end)[0] if len(body) > end else 0,
        _cut(body[end + _MARK.size :]),
        _gaps(body[end + _MARK.size :]),
        adopted,
        corrections,
        clock,
        bool(is_replicated),
        mark,
        written_behind,
    )


def pack(times: PartitionTimes) -> bytes:
    """Returns the bytes of the file."""
    boot_id = times.boot_id.encode()
    has_unreadable = any(line.times.unreadable_offset is not None for line in times.segments)
    if times.written_behind is not None:
        version = _WITH_BEHIND
    elif has_unreadable:
        version = _WITH_UNREADABLE
    elif times.is_replicated or times.mark != NO_MARK:
        version = _WITH_COPIES
    else:
        version = _WITH_CORRECTIONS
    has_more = times.cut is not None or times.gaps_end_offset is not None
    body = b"".join(
        (
            _STATE.pack(
                _or(times.max_event_time, NO_TIMESTAMP),
                _or(times.last_append_time_ms, UNKNOWN),
                times.log_start_offset,
                times.covered_offset,
                len(boot_id),
            ),
            boot_id,
            _COUNT.pack(len(times.segments)),
            *(_pack_line(line, version) for line in times.segments),
            _COUNT.pack(len(times.adopted)),
            *(_ADOPTED.pack(*adopted) for adopted in times.adopted),
            _COUNT.pack(len(times.corrections)),
            *(_CORRECTION.pack(*each) for each in times.corrections),
            _pack_clock(times.clock),
            _COPIES.pack(times.is_replicated, *times.mark) if version >= _WITH_COPIES else b"",
            b"" if times.written_behind is None else _BEHIND.pack(*times.written_behind),
            _MARK.pack(times.back_offset) if times.back_offset or has_more else b"",
            b"" if times.cut is None else _pack_cut(times.cut),
            b"" if times.gaps_end_offset is None else _GAPS.pack(times.gaps_end_offset),
        )
    )
    return _HEAD.pack(MAGIC, version, crc32c(body)) + body


def write(directory: Path, data: bytes, *, durable: bool, losable: bool = False) -> None:
    """Replaces the file by packed bytes; see `files.replace`. Raises OSError."""
    files.replace(directory / FILE_NAME, data, durable=durable, losable=losable)


def _corrected(body: memoryview, position: int) -> tuple[tuple[Correction, ...], ClockMark, int]:
    """Returns the corrections, the steps of the clock, and the position behind them."""
    (count,) = _COUNT.unpack_from(body, position)
    position, end = position + _COUNT.size, position + _COUNT.size + count * _CORRECTION.size
    corrections = tuple(Correction(*each) for each in _CORRECTION.iter_unpack(body[position:end]))
    (size,) = _LENGTH.unpack_from(body, end)
    position, end = end + _LENGTH.size, end + _LENGTH.size + size
    number, from_ms, to_ms = _STEPS.unpack_from(body, end)
    late_horizons = None if from_ms == UNKNOWN else (from_ms, to_ms)
    clock = ClockMark(str(body[position:end], "utf-8"), number, late_horizons)
    return corrections, clock, end + _STEPS.size


def _pack_clock(clock: ClockMark) -> bytes:
    history_id = clock.history_id.encode()
    from_ms, to_ms = clock.late_horizons or (UNKNOWN, UNKNOWN)
    return b"".join(
        (_LENGTH.pack(len(history_id)), history_id, _STEPS.pack(clock.number, from_ms, to_ms))
    )


def _pack_cut(cut: Cut) -> bytes:
    return _CUT.pack(
        cut.recovery_point,
        _NONE if cut.cleaned_offset is None else cut.cleaned_offset,
        _NONE if cut.offset is None else cut.offset,
        cut.begins_anew,
    )


def _cut(data: memoryview) -> Cut | None:
    if len(data) < _CUT.size:
        return None
    recovery_point, cleaned_offset, offset, begins_anew = _CUT.unpack_from(data)
    return Cut(
        recovery_point,
        _or_none(cleaned_offset, _NONE),
        _or_none(offset, _NONE),
        bool(begins_anew),
    )


def _gaps(data: memoryview) -> int | None:
    if len(data) % _CUT.size != _GAPS.size:
        return None
    gaps_end_offset: int = _GAPS.unpack(data[-_GAPS.size :])[0]
    return gaps_end_offset


def _pack_line(line: SegmentLine, version: int) -> bytes:
    times = line.times
    packed = _SEGMENT.pack(
        line.base_offset,
        line.end_offset,
        line.size,
        _or(times.first, NO_TIMESTAMP),
        _or(times.largest, NO_TIMESTAMP),
        times.largest_offset,
        _or(times.event, NO_TIMESTAMP),
        _or(times.aging, UNKNOWN),
        _or(times.created, UNKNOWN),
        _or(times.last_append, UNKNOWN),
        line.index_entries,
        line.time_index_entries,
        _HAS_MISSING * times.has_missing
        | _IS_TRUE * line.is_true
        | _HAS_UNKNOWN * times.has_unknown,
        _or(times.created_clock, UNKNOWN),
    )
    if version < _WITH_UNREADABLE:
        return packed
    return packed + _MARK.pack(_or(times.unreadable_offset, _NONE))


def _line(
    base_offset: int,
    end_offset: int,
    size: int,
    first: int,
    largest: int,
    largest_offset: int,
    event: int,
    aging: int,
    created: int,
    last_append: int,
    index_entries: int,
    time_index_entries: int,
    flags: int,
    created_clock: int = UNKNOWN,
    unreadable_offset: int = _NONE,
) -> SegmentLine:
    times = SegmentTimes()
    times.first = _or_none(first, NO_TIMESTAMP)
    times.largest = _or_none(largest, NO_TIMESTAMP)
    times.largest_offset = largest_offset
    times.event = _or_none(event, NO_TIMESTAMP)
    times.aging = aging if size else None
    times.created = _or_none(created, UNKNOWN)
    times.created_clock = _or_none(created_clock, UNKNOWN)
    times.last_append = _or_none(last_append, UNKNOWN)
    times.has_missing = bool(flags & _HAS_MISSING)
    times.has_unknown = bool(flags & _HAS_UNKNOWN)
    times.unreadable_offset = _or_none(unreadable_offset, _NONE)
    return SegmentLine(
        base_offset,
        end_offset,
        size,
        times,
        index_entries,
        time_index_entries,
        bool(flags & _IS_TRUE),
    )


def _or(time: int | None, missing: int) -> int:
    return missing if time is None else time


def _or_none(time: int, missing: int) -> int | None:
    return None if time == missing else time
