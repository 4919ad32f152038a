"""The other files of a segment in `tidelog dump`: its indexes, and append times.

An index is judged by itself, and by the `.log` beside it if there is one: each entry must point to
a batch that agrees with the entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.dump.segments import DumpFinding, Row, base_offset_of, next_base_after, segment_of
from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import scan, summarize
from tidelog.storage import filenames, files
from tidelog.storage.segment import offset_index, time_index, transaction_index
from tidelog.storage.segment.appended.entries import opened
from tidelog.storage.segment.appended.layout import DAMAGED, END, HEADER, UNKNOWN
from tidelog.storage.segment.batch_headers import HEADER_SIZE, batch_size, last_offset_at
from tidelog.storage.segment.named_file import NamedFile
from tidelog.storage.segment.time_index import TimeEntry, TimeIndex
from tidelog.storage.time.append_time import goes_back
from tidelog.storage.time.timestamp import exceeds, or_none
from tidelog.text import some

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tidelog.dump.segments import DumpOptions
    from tidelog.storage.segment.appended.entries import Contents
    from tidelog.storage.segment.appended.layout import AppendTimeEntry, Layout
    from tidelog.storage.segment.log_file import Found


def read_offset_index(path: Path, wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
    """Yields every entry, and whether it points to the batch it means."""
    base_offset, data = base_offset_of(path), path.read_bytes()
    offsets, positions = offset_index.parse(data)
    log = _log_beside(path)
    last_offset, last_position = -1, -1
    for number, (relative_offset, position) in enumerate(zip(offsets, positions, strict=True)):
        offset = base_offset + relative_offset
        yield Row("entry", {"entry": number, "offset": offset, "position": position})
        if relative_offset <= last_offset or position <= last_position:
            yield DumpFinding(f"entry {number}", "offset and position do not both grow")
        last_offset, last_position = relative_offset, position
        if log is not None and not _leads_to(log, position, offset, wanted):
            yield DumpFinding(
                f"entry {number}",
                f"no batch that ends with {offset} is at byte {position} of the log",
            )
    yield from _rest(data, len(offsets) * offset_index.ENTRY_SIZE)


def _log_beside(path: Path) -> files.Descriptor | None:
    try:
        return files.Descriptor(path.with_suffix(filenames.LOG_SUFFIX))
    except FileNotFoundError:
        return None


def _leads_to(log: files.Descriptor, position: int, offset: int, wanted: DumpOptions) -> bool:
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
        limit = wanted.unpack_limit
        return any(summarize(data, batch, limit).base_offset == offset for batch in scan(data))
    except CorruptMessage:
        return False


def _rest(data: bytes, end: int) -> Iterator[Row | DumpFinding]:
    """Judges the bytes after the last entry: zeros are space that Kafka has preallocated."""
    rest = data[end:]
    if any(rest):
        yield _cut(end, len(rest))
    elif rest:
        yield Row("room", {"position": end, "zeros": len(rest)})


def _cut(end: int, count: int) -> DumpFinding:
    return DumpFinding(f"byte {end}", f"cut: {some(count, 'byte')} behind the last whole entry")


def read_append_times(path: Path, _wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
    """Yields every entry (an offset and the append time from there on), and an END entry."""
    base_offset, file = base_offset_of(path), NamedFile(path)
    file.is_damage_logged = True  # it is a finding here
    size = path.stat().st_size
    entries = opened(file, base_offset)
    contents = None if entries is None else entries.contents()
    if entries is None or contents is None or not contents.size:
        if size:
            yield DumpFinding(
                "byte 0", "this is no file of append times that begins at its segment"
            )
        return
    last_offset, last_time = -1, None
    believed = entries if entries.layout.is_checked else entries._replace(size=contents.size)
    for number, entry in enumerate(believed.walk()):
        if number == contents.size and entry.time == END:
            continue
        yield from _judged(number, entry, base_offset, last_offset, last_time)
        if entry is not DAMAGED and entry.time != END:
            last_offset = entry.offset
            last_time = last_time if entry.time == UNKNOWN else entry.time
    yield from _end_of_append_times(path, contents, base_offset, last_offset, entries.layout)
    torn = (size - len(HEADER)) % entries.layout.entry_size
    if torn:
        yield _cut(size - torn, torn)


def _judged(
    number: int, entry: AppendTimeEntry, base_offset: int, last_offset: int, last_time: int | None
) -> Iterator[Row | DumpFinding]:
    """Yields an entry of append times, and what is wrong with it after those before."""
    where, offset = f"entry {number}", base_offset + entry.offset
    if entry is DAMAGED:
        yield DumpFinding(
            where, "its checksum is wrong: append times are unknown up to the next entry"
        )
        return
    if entry.time == END:
        yield DumpFinding(where, "an end before the end: nothing behind it is believed")
        return
    known = None if entry.time == UNKNOWN else entry.time
    yield Row("entry", {"entry": number, "offset": offset, "append_time": known})
    if entry.offset <= last_offset:
        yield DumpFinding(where, f"offset {offset} does not come after the one before")
    if known is not None and last_time is not None and goes_back(last_time, known):
        yield DumpFinding(where, f"append time {known} after {last_time}")


def _end_of_append_times(
    path: Path, contents: Contents, base_offset: int, last_offset: int, layout: Layout
) -> Iterator[Row | DumpFinding]:
    """Yields the END entry, and whether it is where the next segment begins."""
    following = next_base_after(path) if layout.is_checked else None
    if contents.end is None:
        if following is not None:
            yield DumpFinding("end", "it has none: behind the last entry append times are unknown")
        return
    end_offset = base_offset + contents.end
    yield Row("end", {"durable_before": end_offset})
    if contents.end < last_offset:
        yield DumpFinding("end", f"it is at {end_offset}, before the last entry")
    elif following is not None and end_offset != following:
        yield DumpFinding(
            "end", f"it is at {end_offset}, and the next segment begins at {following}"
        )


def read_time_index(path: Path, wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
    """Yields every entry, and whether its time is the largest up to its batch (KIP-33)."""
    index, data = TimeIndex(path, base_offset_of(path)), path.read_bytes()
    index.load()
    entries = index.entries() if any(data) else []  # zeros alone are no entries
    yield from _time_entries(path, entries, wanted)
    end = len(entries) * time_index.ENTRY_SIZE
    if any(data[end:]) and len(data) - end >= time_index.ENTRY_SIZE:
        yield DumpFinding(f"entry {len(entries)}", "time and offset do not both grow; not read on")
    else:
        yield from _rest(data, end)


def read_negative_times(path: Path, wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
    """Yields every entry of the time index below zero, and judges it as `read_time_index` does."""
    base_offset, data = base_offset_of(path), path.read_bytes()
    if not data.startswith(time_index.NEGATIVE_HEADER):
        yield DumpFinding("byte 0", "this is no file of negative times, or one of a newer version")
        return
    columns = zip(*time_index.parse_negatives(data), strict=True)
    entries = [TimeEntry(timestamp, base_offset + offset) for timestamp, offset in columns]
    yield from _time_entries(path, entries, wanted)
    end = len(time_index.NEGATIVE_HEADER) + len(entries) * time_index.ENTRY_SIZE
    if len(data) - end >= time_index.ENTRY_SIZE:
        finding = "time and offset do not both grow below zero; not read on"
        yield DumpFinding(f"entry {len(entries)}", finding)
    elif data[end:]:
        yield _cut(end, len(data) - end)


def _time_entries(
    path: Path, entries: Sequence[TimeEntry], wanted: DumpOptions
) -> Iterator[Row | DumpFinding]:
    faults = _time_faults(path.with_suffix(filenames.LOG_SUFFIX), entries, wanted)
    for number, entry in enumerate(entries):
        fields = {"entry": number, "offset": entry.offset, "timestamp": entry.timestamp}
        yield Row("entry", fields)
        if number in faults:
            yield DumpFinding(f"entry {number}", faults[number])


def _time_faults(log: Path, entries: Sequence[TimeEntry], wanted: DumpOptions) -> dict[int, str]:
    """Returns what is wrong with entries, by their number, from one pass over the log."""
    if not log.exists():
        return {}
    faults: dict[int, str] = {}
    number, largest = 0, None
    try:
        for found in segment_of(log).walk():
            own = _largest(found, wanted.unpack_limit)
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


def _largest(found: Found, unpack_limit: int) -> int | None:
    try:
        return summarize(found.buffer, found.batch, unpack_limit).largest
    except CorruptMessage:
        return or_none(found.batch.max_timestamp)


def read_transaction_index(path: Path, _wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
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
            yield DumpFinding(where, f"version {version}, not {transaction_index.VERSION}")
        if not 0 <= entry.first_offset <= entry.last_offset:
            yield DumpFinding(
                where, f"begins with {entry.first_offset} and ends with {entry.last_offset}"
            )
        if entry.last_offset <= last_offset:
            yield DumpFinding(where, f"offset {last_offset + 1} or a later one belongs here")
        last_offset = max(last_offset, entry.last_offset)
    torn = len(data) % transaction_index.ENTRY_SIZE
    if torn:
        yield _cut(len(data) - torn, torn)
