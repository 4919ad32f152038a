"""What is in the files of a log directory, and what is wrong with them.

One reader per kind of file. It yields rows (what the file says) and findings (what cannot be, and
where), and never writes, so a broker may run meanwhile: of a file that is being appended to, the end may
then look torn. How a file is laid out is known to storage and protocol alone; here it is judged:

    .log              every checksum, header against records, offsets that grow, no torn end
    .index            entries grow, and each leads to the batch it means
    .timeindex        entries grow, and each time is the largest up to its batch
    .appendtimes      offsets grow, known times never go back
    .snapshot         its checksum, and no producer from behind its offset
    partition.times, partition.metadata, checkpoints       that they can be read at all

An index is judged by the `.log` beside it, if there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from protocol.errors import CorruptMessage
from protocol.records.batch import Compression, records, scan, summarize, verify
from protocol.records.layout import CODEC_MASK
from storage import (
    append_times,
    checkpoints,
    filenames,
    files,
    offset_index,
    snapshots,
    timestamps,
)
from storage.append_times import UNKNOWN, AppendTimes
from storage.headers import HEADER_SIZE, batch_size, last_offset_at
from storage.segment import Segment, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from protocol.records.batch import Batch, Record, Summary
    from storage.segment import Found

    AppendedAt = Callable[[int], int | None]

_FOREVER_MS = 2**62
_ZEROS_BLOCK = 1 << 20


class Row(NamedTuple):
    """One thing that a file says; `kind` names what, fields are in the order to show them."""

    kind: str
    fields: dict[str, Any]


class Finding(NamedTuple):
    """One thing that cannot be: where in the file, and what."""

    where: str
    what: str


class Kind(NamedTuple):
    """A kind of file, and the function that reads one: its path, and whether to show records."""

    name: str
    read: Callable[[Path, bool], Iterator[Row | Finding]]


def kind_of(path: Path) -> Kind | None:
    """Tell by its name what a file is; None for one that is no file of a log directory."""
    segment_file = filenames.parse_segment_file(path.name)
    if segment_file is not None:
        return _SEGMENT_FILES.get(segment_file.suffix)
    return _OTHER_FILES.get(path.name)


def _base_offset(path: Path) -> int:
    segment_file = filenames.parse_segment_file(path.name)
    assert segment_file is not None
    return segment_file.offset


# --- .log ----------------------------------------------------------------------------------------


def _read_segment(path: Path, with_records: bool) -> Iterator[Row | Finding]:
    """Every batch, checked and described; with their records if asked."""
    base_offset, size = _base_offset(path), path.stat().st_size
    segment = Segment(path.parent, base_offset, Tail(base_offset, size))
    appended = _append_times_beside(path)
    next_offset, position = base_offset, 0
    try:
        for found in segment.walk():
            where, batch = f"byte {found.position}", found.batch
            faults: list[str] = []
            summary = _summary(found, faults)
            first_offset = batch.base_offset if summary is None else summary.base_offset
            if summary is not None:
                faults += _lies(batch, summary)
            if _goes_back(first_offset, batch, next_offset):
                shown = batch.last_offset if first_offset < 0 else first_offset
                faults.append(f"offset {shown} where {next_offset} or a later one belongs")
            yield Row("batch", _batch_fields(found, summary, appended, is_bad=bool(faults)))
            yield from (Finding(where, fault) for fault in faults)
            if with_records and summary is not None:
                yield from _records(found, where)
            next_offset = max(next_offset, batch.last_offset + 1)
            position = found.position + batch.size
    except CorruptMessage as error:
        yield Finding(f"byte {position}", _torn(path, position, size, error.message))


def _summary(found: Found, faults: list[str]) -> Summary | None:
    """What the records of a batch say of themselves; None, and a fault, where they cannot be read."""
    try:
        verify(found.buffer, found.batch)
        return summarize(found.buffer, found.batch)
    except CorruptMessage as error:
        faults.append(_without_position(error, found.batch))
        return None


def _without_position(error: CorruptMessage, batch: Batch) -> str:
    """Say an error without its position, which is one in the buffer that was read."""
    return error.message.replace(f"the batch at byte {batch.position}", "the batch")


def _lies(batch: Batch, summary: Summary) -> Iterator[str]:
    """What a batch's header says and its records do not."""
    if batch.last_offset != summary.last_offset:
        yield f"the header's offset is {batch.last_offset}, the last record's {summary.last_offset}"
    claimed = timestamps.or_none(batch.max_timestamp)
    if summary.count and claimed != summary.largest:
        yield (
            f"the header's largest time is {_time(claimed)}, the records' {_time(summary.largest)}"
        )


def _time(timestamp: int | None) -> str:
    return "none" if timestamp is None else str(timestamp)


def _goes_back(first_offset: int, batch: Batch, next_offset: int) -> bool:
    """Tell whether a batch does not come after those before it; a wrapper may hide its first."""
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
        "max_timestamp": timestamps.or_none(batch.max_timestamp),
        "append_time": appended(batch.last_offset),
        "leader_epoch": _known(batch.leader_epoch),
        "producer_id": _known(batch.producer_id),
        "producer_epoch": _known(batch.producer_epoch),
        "base_sequence": _known(batch.base_sequence),
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "is_bad": is_bad,
    }


def _known(number: int) -> int | None:
    """Turn Kafka's -1 into none."""
    return None if number == -1 else number


def _codec(batch: Batch) -> str:
    number = batch.attributes & CODEC_MASK
    return Compression(number).name.lower() if number in set(Compression) else f"codec {number}"


def _time_type(batch: Batch) -> str | None:
    if batch.magic == 0:
        return None
    return timestamps.LOG_APPEND_TIME if batch.is_log_append_time else "CreateTime"


def _records(found: Found, where: str) -> Iterator[Row | Finding]:
    try:
        for record in records(found.buffer, found.batch):
            yield Row("record", _record_fields(record))
    except CorruptMessage as error:
        yield Finding(where, _without_position(error, found.batch))


def _record_fields(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": timestamps.or_none(record.timestamp),
        "key": record.key,
        "value": record.value,
        "headers": list(record.headers),
    }


def _append_times_beside(path: Path) -> AppendedAt:
    """Return a function from an offset to its append time; None where that is unknown."""
    times = AppendTimes(path.with_suffix(filenames.APPEND_TIMES_SUFFIX), _base_offset(path))
    return times.at if times.load() else lambda _offset: None


def _torn(path: Path, position: int, size: int, reason: str) -> str:
    """Say what lies where no whole batch does."""
    descriptor, rest = files.Descriptor(path), size - position
    for start in range(position, size, _ZEROS_BLOCK):
        if any(files.read_at(descriptor, min(_ZEROS_BLOCK, size - start), start)):
            break
    else:
        return f"{rest} bytes of zeros up to the end"
    announced = batch_size(files.read_at(descriptor, HEADER_SIZE, position))
    if announced is None:
        return f"cut: {rest} bytes up to the end, too few for a batch"
    if announced > rest:
        return f"cut: a batch of {announced} bytes, and {rest} up to the end"
    return f"{reason}; {rest} bytes up to the end not read"


# --- what belongs to a segment -------------------------------------------------------------------


def _read_offset_index(path: Path, _with_records: bool) -> Iterator[Row | Finding]:
    """Every entry, and whether it leads to the batch it means."""
    base_offset, data = _base_offset(path), path.read_bytes()
    offsets, positions = offset_index.parse(data)
    log = _log_beside(path)
    last_offset, last_position = -1, -1
    for number, (relative_offset, position) in enumerate(zip(offsets, positions, strict=True)):
        offset = base_offset + relative_offset
        yield Row("entry", {"entry": number, "offset": offset, "position": position})
        if relative_offset <= last_offset or position <= last_position:
            yield Finding(f"entry {number}", "offset and position do not both grow")
        last_offset, last_position = relative_offset, position
        if log is not None and not _leads_to(log, position, offset):
            yield Finding(
                f"entry {number}",
                f"no batch that ends with {offset} is at byte {position} of the log",
            )
    yield from _rest(data, len(offsets) * offset_index.ENTRY_SIZE)


def _log_beside(path: Path) -> files.Descriptor | None:
    try:
        return files.Descriptor(path.with_suffix(filenames.LOG_SUFFIX))
    except FileNotFoundError:
        return None


def _leads_to(log: files.Descriptor, position: int, offset: int) -> bool:
    """Tell whether a batch at a position is the one that an index entry means.

    It ends with the offset; before 0.11 Kafka wrote the offset it begins with.
    """
    if position < 0:
        return False
    head = files.read_at(log, HEADER_SIZE, position)
    if last_offset_at(head) == offset:
        return True
    size = min(batch_size(head) or 0, log.size() - position)
    data = files.read_at(log, max(size, 0), position)
    try:
        return any(summarize(data, batch).base_offset == offset for batch in scan(data))
    except CorruptMessage:
        return False


def _rest(data: bytes, end: int) -> Iterator[Row | Finding]:
    """Judge what lies behind the last entry: zeros are room that Kafka has preallocated."""
    rest = data[end:]
    if any(rest):
        yield Finding(f"byte {end}", f"cut: {len(rest)} bytes behind the last whole entry")
    elif rest:
        yield Row("room", {"position": end, "zeros": len(rest)})


def _read_append_times(path: Path, _with_records: bool) -> Iterator[Row | Finding]:
    """Every entry: from its offset on, batches were appended at its time."""
    base_offset = _base_offset(path)
    times = AppendTimes(path, base_offset)
    size = path.stat().st_size
    if not times.load():
        if size:
            yield Finding("byte 0", "this is no file of append times that begins at its segment")
        return
    last_offset, last_time = -1, None
    for number, (time, relative_offset) in enumerate(times.entries()):
        known = None if time == UNKNOWN else time
        offset = base_offset + relative_offset
        yield Row("entry", {"entry": number, "offset": offset, "append_time": known})
        if relative_offset <= last_offset:
            yield Finding(f"entry {number}", f"offset {offset} does not come after the one before")
        if known is not None and last_time is not None and timestamps.goes_back(last_time, known):
            yield Finding(f"entry {number}", f"append time {known} after {last_time}")
        last_offset = relative_offset
        last_time = last_time if known is None else known
    torn = (size - len(append_times.HEADER)) % append_times.ENTRY_SIZE
    if torn:
        yield Finding(f"byte {size - torn}", f"cut: {torn} bytes behind the last whole entry")


def _read_snapshot(path: Path, _with_records: bool) -> Iterator[Row | Finding]:
    """Every producer; none may have a batch from behind the snapshot's offset."""
    offset = _base_offset(path)
    try:
        producers = snapshots.read(path, _FOREVER_MS)
    except snapshots.SnapshotError as error:
        yield Finding("", _without_path(error, path))
        return
    for producer in producers:
        last = producer.batches[-1] if producer.batches else None
        yield Row(
            "producer",
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": _known(producer.last_sequence),
                "first_offset": None if last is None else last.first_offset,
                "last_offset": None if last is None else last.last_offset,
                "append_time": timestamps.or_none(producer.last_append_time_ms),
                "coordinator_epoch": _known(producer.coordinator_epoch),
                "transaction_first_offset": _known(producer.transaction_first_offset),
            },
        )
        if last is not None and last.last_offset >= offset:
            where = f"producer {producer.producer_id}"
            yield Finding(
                where, f"its last batch ends with {last.last_offset}, not before {offset}"
            )


# --- checkpoints ---------------------------------------------------------------------------------


def _without_path(error: ValueError, path: Path) -> str:
    return str(error).removeprefix(f"{path} ")


def _read_offsets(path: Path, _with_records: bool) -> Iterator[Row | Finding]:
    try:
        offsets = checkpoints.read_offsets(path)
    except checkpoints.CheckpointError as error:
        yield Finding("", _without_path(error, path))
        return
    for (topic, index), offset in sorted(offsets.items()):
        yield Row("offset", {"topic": topic, "partition": index, "offset": offset})
        if index < 0 or offset < 0:
            yield Finding(f"{topic}-{index}", f"offset {offset}: numbers here are never negative")


def _read_epochs(path: Path, _with_records: bool) -> Iterator[Row | Finding]:
    try:
        epochs = checkpoints.read_epochs(path)
    except checkpoints.CheckpointError as error:
        yield Finding("", _without_path(error, path))
        return
    for epoch, start_offset in epochs:
        yield Row("epoch", {"epoch": epoch, "start_offset": start_offset})


def _read_metadata(path: Path, _with_records: bool) -> Iterator[Row | Finding]:
    try:
        topic_id = checkpoints.read_topic_id(path.parent)
    except checkpoints.CheckpointError as error:
        yield Finding("", _without_path(error, path))
        return
    if topic_id is not None:
        yield Row("topic", {"topic_id": checkpoints.format_topic_id(topic_id)})


_SEGMENT_FILES = {
    filenames.LOG_SUFFIX: Kind("segment", _read_segment),
    filenames.OFFSET_INDEX_SUFFIX: Kind("offset index", _read_offset_index),
    filenames.APPEND_TIMES_SUFFIX: Kind("append times", _read_append_times),
    filenames.SNAPSHOT_SUFFIX: Kind("producer snapshot", _read_snapshot),
}
_OTHER_FILES = {
    filenames.RECOVERY_POINT_CHECKPOINT: Kind("checkpoint", _read_offsets),
    filenames.LOG_START_CHECKPOINT: Kind("checkpoint", _read_offsets),
    filenames.HIGH_WATERMARK_CHECKPOINT: Kind("checkpoint", _read_offsets),
    filenames.LEADER_EPOCH_CHECKPOINT: Kind("leader epochs", _read_epochs),
    filenames.PARTITION_METADATA_FILE: Kind("partition metadata", _read_metadata),
}
