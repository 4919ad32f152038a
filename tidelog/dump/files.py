"""Reads the files of a log directory, and says what is wrong with them.

There is one reader for each kind of file. It yields rows (the contents) and findings (what is
impossible, and where). It never writes, so a broker may run meanwhile; then the end of a file that
is being appended to may look torn. Only storage and protocol know the formats; this package judges
the contents:

    .log              every checksum, header against records, offsets that grow, no torn end
    .index            entries grow, and each points to the batch it means
    .timeindex        entries grow, and each time is the largest up to its batch
    .negativetimes    the same, for times below zero
    .txnindex         transactions in order, whose ends are in valid places
    .appendtimes      offsets grow, known times never decrease
    .snapshot         its checksum, and no producer with a batch after its offset
    partition.times   its checksum, segments that grow, and no log shorter than it says
    meta.properties   that it names a broker
    clock-checkpoint  its checksum
    partition.metadata, leader epochs, checkpoints       that they can be read at all

A segment's file with the suffix `.deleted`, `.cleaned`, `.swap`, `.stray` or `-cut` is judged as its
own kind, with the other files of that suffix.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.dump.indexes import (
    read_append_times,
    read_negative_times,
    read_offset_index,
    read_time_index,
    read_transaction_index,
)
from tidelog.dump.segments import DumpFinding, Row, base_offset_of, known, read_segment
from tidelog.storage import checkpoints, filenames
from tidelog.storage.directory import scrub_file
from tidelog.storage.directory.checked_json import CheckedJsonError
from tidelog.storage.directory.clock_file import parse_clock
from tidelog.storage.log.producers import producer_snapshots
from tidelog.storage.log.times import partition_times
from tidelog.storage.time.corrections import NO_END_OFFSET
from tidelog.storage.time.timestamp import MAX_TIMESTAMP, or_none

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.dump.segments import DumpOptions
    from tidelog.storage.segment.segment_line import SegmentLine
    from tidelog.storage.time.corrections import Correction

_FOREVER_MS = 2**62


class Kind(NamedTuple):
    """A kind of file, and the function that reads it: its path, and what is wanted of it."""

    name: str
    reader: Callable[[Path, DumpOptions], Iterator[Row | DumpFinding]]

    def read(self, path: Path, wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
        """Yields the contents and what is wrong with them, also that they cannot be read."""
        try:
            yield from self.reader(path, wanted)
        except _UNREADABLE as error:
            yield DumpFinding("", str(error).removeprefix(f"{path} "))


def kind_of(path: Path) -> Kind | None:
    """Returns the kind of a file by its name, or None if it does not belong in a log directory."""
    waiting = next((one for one in _WAITING if path.name.endswith(one)), "")
    segment_file = filenames.parse_segment_file(path.name.removesuffix(waiting))
    if segment_file is None:
        return _OTHER_FILES.get(path.name)
    kind = _SEGMENT_FILES.get(segment_file.suffix)
    if kind is None or not waiting:
        return kind
    return Kind(f"{kind.name}, {waiting[1:]}", partial(_read_waiting, kind, waiting))


def _read_waiting(
    kind: Kind, waiting: str, path: Path, wanted: DumpOptions
) -> Iterator[Row | DumpFinding]:
    """Reads a segment's file without its suffix, by links to it and to files of the same suffix."""
    base = path.name.split(".", 1)[0]
    with tempfile.TemporaryDirectory(prefix="tidelog-dump-") as links:
        for beside in path.parent.glob(f"{base}.*{waiting}"):
            (Path(links) / beside.name.removesuffix(waiting)).symlink_to(beside.absolute())
        yield from kind.read(Path(links) / path.name.removesuffix(waiting), wanted)


def _read_snapshot(path: Path, _wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
    """Yields every producer; none may have a batch after the snapshot's offset."""
    offset = base_offset_of(path)
    for producer in producer_snapshots.read(path, _FOREVER_MS):
        last = producer.batches[-1] if producer.batches else None
        yield Row(
            "producer",
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": known(producer.last_sequence),
                "first_offset": None if last is None else last.first_offset,
                "last_offset": None if last is None else last.last_offset,
                "append_time": or_none(producer.last_append_time_ms),
                "coordinator_epoch": known(producer.coordinator_epoch),
                "transaction_first_offset": known(producer.transaction_first_offset),
            },
        )
        if last is not None and last.last_offset >= offset:
            where = f"producer {producer.producer_id}"
            yield DumpFinding(
                where, f"its last batch ends with {last.last_offset}, not before {offset}"
            )


def _read_partition_times(path: Path, _wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
    """Yields the times of the partition, and of each segment."""
    times = partition_times.read(path.parent)
    if times is None:
        yield DumpFinding("", "its magic, version or checksum is wrong: it is as good as none")
        return
    yield Row(
        "partition",
        {
            "max_event_time": times.max_event_time,
            "last_append_time": times.last_append_time_ms,
            "log_start_offset": times.log_start_offset,
            "covered_offset": times.covered_offset,
            "back_offset": times.back_offset,
            "boot_id": times.boot_id,
            "clock_history": times.clock.history_id or None,
            "clock_step": times.clock.number,
            "late_horizons": times.clock.late_horizons,
        },
    )
    for end_offset, adopted_ms in times.adopted:
        yield Row("adopted", {"end_offset": end_offset, "adopted_time": adopted_ms})
    for correction in times.corrections:
        yield Row("correction", _correction_fields(correction))
    if times.written_behind is not None:
        start_offset, end_offset, behind_ms = times.written_behind
        fields = {
            "start_offset": start_offset,
            "end_offset": None if end_offset == NO_END_OFFSET else end_offset,
            "behind_ms": behind_ms,
        }
        yield Row("written_behind", fields)
    next_offset = 0
    for line in times.segments:
        yield Row("segment", _segment_fields(line))
        where = f"segment {line.base_offset}"
        if not next_offset <= line.base_offset <= line.end_offset:
            yield DumpFinding(where, f"offset {next_offset} or a later one belongs here")
        next_offset = line.end_offset
        log = path.with_name(filenames.segment_file(line.base_offset, filenames.LOG_SUFFIX))
        size = log.stat().st_size if log.exists() else None
        if size is not None and size < line.size:
            yield DumpFinding(where, f"it says {line.size} bytes, and the log has {size}")


def _correction_fields(correction: Correction) -> dict[str, Any]:
    return {
        "start_offset": correction.start_offset,
        "end_offset": correction.end_offset,
        "since_time": correction.since_ms,
        "until_time": None if correction.until_ms == MAX_TIMESTAMP else correction.until_ms,
        "shift_ms": correction.shift_ms,
        "to_time": correction.to_ms,
    }


def _segment_fields(line: SegmentLine) -> dict[str, Any]:
    times = line.times
    return {
        "base_offset": line.base_offset,
        "end_offset": line.end_offset,
        "size": line.size,
        "first_time": times.first,
        "largest_time": times.largest,
        "largest_offset": known(times.largest_offset),
        "event_time": times.event,
        "aging_time": times.aging,
        "first_append_time": times.created,
        "last_append_time": times.last_append,
        "first_append_clock": times.created_clock,
        "index_entries": line.index_entries,
        "time_index_entries": line.time_index_entries,
        "has_missing": times.has_missing,
        "has_unknown": times.has_unknown,
        "is_true": line.is_true,
    }


# --- checkpoints ---------------------------------------------------------------------------------


def _read_offsets(path: Path, _wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
    if not path.stat().st_size:
        return  # Kafka creates these files empty
    for (topic, index), offset in sorted(checkpoints.read_offsets(path).items()):
        yield Row("offset", {"topic": topic, "partition": index, "offset": offset})
        if index < 0 or offset < 0:
            yield DumpFinding(
                f"{topic}-{index}", f"offset {offset}: numbers here are never negative"
            )


def _read_clock(path: Path, _wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
    stored = parse_clock(path.read_bytes())
    state = stored.state
    yield Row("clock", {"serial": stored.serial, **state.last._asdict()})
    courses = [("trusted", state.course), *(("left", each) for each in state.left)]
    for kind, course in [*courses, *(("leapt", each) for each in state.leapt)]:
        yield Row(kind, course._asdict())
    if state.leap is not None:
        yield Row("leap", state.leap._asdict())
    for number, step in stored.history.steps:
        yield Row("step", {"number": number, **step._asdict()})


def _read_scrubbing(path: Path, _wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
    """Yields how far scrubbing has come, and each damaged segment as a finding."""
    progress = scrub_file.parse_progress(path.read_bytes())
    topic, partition, base_offset = progress.at or (None, None, None)
    yield Row(
        "pass",
        {
            "last_ended_ms": progress.ended_ms,
            "topic": topic,
            "partition": partition,
            "base_offset": base_offset,
        },
    )
    for each in progress.damage:
        yield Row("damage", each._asdict())


def _read_epochs(path: Path, _wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
    for epoch, start_offset in checkpoints.read_epochs(path):
        yield Row("epoch", {"epoch": epoch, "start_offset": start_offset})


def _read_metadata(path: Path, _wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
    topic_id = checkpoints.read_topic_id(path.parent)
    if topic_id is not None:
        yield Row("topic", {"topic_id": checkpoints.format_topic_id(topic_id)})


def _read_meta_properties(path: Path, _wanted: DumpOptions) -> Iterator[Row | DumpFinding]:
    """Yields every property; they must name the broker, in version 0 or 1."""
    properties = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, found, value = (part.strip() for part in line.partition("="))
        if not found:
            yield DumpFinding("", f"'{name}' is no property: it has no '='")
            continue
        properties[name] = value
        yield Row("property", {"name": name, "value": value})
    if properties.get("version") not in _BROKER_IDS:
        yield DumpFinding("", "it names no version, or one that is neither 0 nor 1")
    elif not properties.get(_BROKER_IDS[properties["version"]], "").isdigit():
        yield DumpFinding("", f"it names no {_BROKER_IDS[properties['version']]}")


_UNREADABLE = (CheckedJsonError, checkpoints.CheckpointError, producer_snapshots.SnapshotError)
_BROKER_IDS = {"0": "broker.id", "1": "node.id"}  # by version: with ZooKeeper, and KRaft
_WAITING = (
    filenames.DELETED_SUFFIX,
    filenames.CLEANED_SUFFIX,
    filenames.SWAP_SUFFIX,
    filenames.STRAY_SUFFIX,
    filenames.CUT_SUFFIX,
)
_SEGMENT_FILES = {
    filenames.LOG_SUFFIX: Kind("segment", read_segment),
    filenames.OFFSET_INDEX_SUFFIX: Kind("offset index", read_offset_index),
    filenames.TIME_INDEX_SUFFIX: Kind("time index", read_time_index),
    filenames.NEGATIVE_TIMES_SUFFIX: Kind("negative times", read_negative_times),
    filenames.TXN_INDEX_SUFFIX: Kind("transaction index", read_transaction_index),
    filenames.APPEND_TIMES_SUFFIX: Kind("append times", read_append_times),
    filenames.SNAPSHOT_SUFFIX: Kind("producer snapshot", _read_snapshot),
}
_OTHER_FILES = {
    filenames.RECOVERY_POINT_CHECKPOINT: Kind("checkpoint", _read_offsets),
    filenames.LOG_START_CHECKPOINT: Kind("checkpoint", _read_offsets),
    filenames.HIGH_WATERMARK_CHECKPOINT: Kind("checkpoint", _read_offsets),
    filenames.CLEANER_CHECKPOINT: Kind("checkpoint", _read_offsets),
    filenames.MAX_LATENCY_CHECKPOINT: Kind("checkpoint", _read_offsets),
    filenames.CLOCK_CHECKPOINT: Kind("clock", _read_clock),
    filenames.RECENT_CLOCK_CHECKPOINT: Kind("clock", _read_clock),
    filenames.SCRUB_CHECKPOINT: Kind("scrubbing", _read_scrubbing),
    filenames.META_PROPERTIES_FILE: Kind("broker properties", _read_meta_properties),
    filenames.LEADER_EPOCH_CHECKPOINT: Kind("leader epochs", _read_epochs),
    partition_times.FILE_NAME: Kind("partition times", _read_partition_times),
    filenames.PARTITION_METADATA_FILE: Kind("partition metadata", _read_metadata),
}
