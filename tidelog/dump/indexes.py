"""The other files of a segment in `tidelog dump`: the three indexes, and append times.

An index is judged by itself, and by the `.log` beside it if there is one: each entry must point to
a batch that agrees with the entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import CorruptMessage
from protocol.records.batch import scan, summarize
from storage import filenames, files
from storage.segment import offset_index, time_index, transaction_index
from storage.segment.append_entries import END, ENTRY_SIZE, HEADER, UNKNOWN
from storage.segment.append_times import AppendTimes
from storage.segment.batch_headers import HEADER_SIZE, batch_size, last_offset_at
from storage.segment.time_index import TimeIndex
from storage.time.append_time import goes_back
from storage.time.timestamp import exceeds, or_none
from tidelog.dump.segments import Finding, Row, base_offset_of, segment_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from storage.segment.log_file import Found
    from storage.segment.time_index import TimeEntry


def read_offset_index(path: Path, _with_records: bool) -> Iterator[Row | Finding]:
    """Yields every entry, and whether it points to the batch it means."""
    base_offset, data = base_offset_of(path), path.read_bytes()
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
    """Returns whether the batch at a position is the one that an index entry means.

    The batch ends with the offset of the entry; before 0.11 Kafka wrote the offset at which it
    begins.
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
    """Judges the bytes after the last entry: zeros are space that Kafka has preallocated."""
    rest = data[end:]
    if any(rest):
        yield Finding(f"byte {end}", f"cut: {len(rest)} bytes behind the last whole entry")
    elif rest:
        yield Row("room", {"position": end, "zeros": len(rest)})


def read_append_times(path: Path, _with_records: bool) -> Iterator[Row | Finding]:
    """Yields every entry (an offset and the append time from there on), and an END entry."""
    base_offset = base_offset_of(path)
    times = AppendTimes(path, base_offset)
    size = path.stat().st_size
    if not times.load():
        if size:
            yield Finding("byte 0", "this is no file of append times that begins at its segment")
        return
    last_offset, last_time = -1, None
    for number, (time, relative_offset) in enumerate(times.entries()):
        offset = base_offset + relative_offset
        if time == END:
            yield Finding(f"entry {number}", "an end before the end: nothing behind it is believed")
            continue
        known = None if time == UNKNOWN else time
        yield Row("entry", {"entry": number, "offset": offset, "append_time": known})
        if relative_offset <= last_offset:
            yield Finding(f"entry {number}", f"offset {offset} does not come after the one before")
        if known is not None and last_time is not None and goes_back(last_time, known):
            yield Finding(f"entry {number}", f"append time {known} after {last_time}")
        last_offset = relative_offset
        last_time = last_time if known is None else known
    if times.has_end:
        yield Row("end", {"durable_before": times.end_offset})
        if times.end_offset - base_offset < last_offset:
            yield Finding("end", f"it is at {times.end_offset}, before the last entry")
    torn = (size - len(HEADER)) % ENTRY_SIZE
    if torn:
        yield Finding(f"byte {size - torn}", f"cut: {torn} bytes behind the last whole entry")


def read_time_index(path: Path, _with_records: bool) -> Iterator[Row | Finding]:
    """Yields every entry, and whether its time is the largest up to its batch (KIP-33)."""
    index, data = TimeIndex(path, base_offset_of(path)), path.read_bytes()
    index.load()
    entries = index.entries() if any(data) else []  # zeros alone are no entries
    faults = _time_faults(path.with_suffix(filenames.LOG_SUFFIX), entries)
    for number, entry in enumerate(entries):
        fields = {"entry": number, "offset": entry.offset, "timestamp": entry.timestamp}
        yield Row("entry", fields)
        if number in faults:
            yield Finding(f"entry {number}", faults[number])
    end = len(entries) * time_index.ENTRY_SIZE
    if any(data[end:]) and len(data) - end >= time_index.ENTRY_SIZE:
        yield Finding(f"entry {len(entries)}", "time and offset do not both grow; not read on")
    else:
        yield from _rest(data, end)


def _time_faults(log: Path, entries: Sequence[TimeEntry]) -> dict[int, str]:
    """Returns what is wrong with entries, by their number, from one pass over the log."""
    if not log.exists():
        return {}
    faults: dict[int, str] = {}
    number, largest = 0, None
    try:
        for found in segment_of(log).walk():
            own = _largest(found)
            while number < len(entries) and entries[number].offset <= found.batch.last_offset:
                timestamp = entries[number].timestamp
                if timestamp not in {own, found.batch.max_timestamp}:
                    faults[number] = f"the largest time of its batch is {own}"
                elif exceeds(largest, timestamp):
                    faults[number] = f"time {largest} comes before its batch"
                number += 1
            if not found.batch.is_control and exceeds(own, largest):
                largest = own
    except CorruptMessage:  # the log ends here, and its own dump reports that
        pass
    for beyond in range(number, len(entries)):
        faults[beyond] = f"no batch of the log holds offset {entries[beyond].offset}"
    return faults


def _largest(found: Found) -> int | None:
    try:
        return summarize(found.buffer, found.batch).largest
    except CorruptMessage:
        return or_none(found.batch.max_timestamp)


def read_transaction_index(path: Path, _with_records: bool) -> Iterator[Row | Finding]:
    """Yields every aborted transaction, and whether its segment can contain its end."""
    base_offset, data = base_offset_of(path), path.read_bytes()
    last_offset = base_offset - 1
    entries = transaction_index.parse(data)
    for number, entry in enumerate(entries):
        fields = entry._asdict()
        version = fields.pop("version")
        yield Row("transaction", {"entry": number} | fields)
        where = f"entry {number}"
        if version != transaction_index.VERSION:
            yield Finding(where, f"version {version}, not {transaction_index.VERSION}")
        if not 0 <= entry.first_offset <= entry.last_offset:
            yield Finding(
                where, f"begins with {entry.first_offset} and ends with {entry.last_offset}"
            )
        if entry.last_offset <= last_offset:
            yield Finding(where, f"offset {last_offset + 1} or a later one belongs here")
        last_offset = max(last_offset, entry.last_offset)
    torn = len(data) % transaction_index.ENTRY_SIZE
    if torn:
        yield Finding(f"byte {len(data) - torn}", f"cut: {torn} bytes behind the last whole entry")
