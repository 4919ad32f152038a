"""One log directory: its lock, how the last process left it, and the checkpoints of its logs.

It uses three kinds of Kafka's files. `.lock` keeps a second process out. `.kafka_cleanshutdown`
exists only between a clean stop and the next start. The checkpoints say for each log up to where it
is durable, where it starts, its high watermark, and up to where it is compacted. A checkpoint that
cannot be read is ignored, and then there is more to recover or to compact. A checkpoint of ours
keeps the longest delay with which records of each log arrived.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.storage import checkpoints, filenames, files
from tidelog.storage.lock_file import LockFile, holder_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.lock_file import Holder
    from tidelog.storage.log.partition import Partition

    Offsets = dict[TopicPartition, int]

_log = logging.getLogger("tidelog.storage")

# Not written while they are empty.
_MAY_BE_MISSING = (filenames.CLEANER_CHECKPOINT, filenames.MAX_LATENCY_CHECKPOINT)
_CLEAN_SHUTDOWN = b'{"version":0,"brokerEpoch":-1}'


class LogDirectoryError(Exception):
    """A log directory cannot be used; the message names it and the reason."""


class DirectoryInUse(LogDirectoryError):
    """Another broker has locked a log directory: `holder` is its name, if it is known."""

    def __init__(self, path: Path, holder: Holder | None) -> None:
        super().__init__(
            f"log directory {path} is in use: another broker holds {filenames.LOCK_FILE} there"
        )
        self.path, self.holder = path, holder


class LogDirectory:
    """One log directory, locked for this process."""

    def __init__(self, path: Path) -> None:
        """Only locks the directory; raises LogDirectoryError and OSError."""
        self.path = path
        self._lock = _lock(path)
        self.partitions = 0  # the number of partitions in this directory
        self.was_clean = False
        self._written: dict[str, Offsets] = {}  # the checkpoints, by name, as they are on disk
        self.recovery_points: Offsets = {}
        self.log_start_offsets: Offsets = {}
        self.high_watermarks: Offsets = {}
        self.cleaned_offsets: Offsets = {}
        self.longest_delays_ms: Offsets = {}  # see `Arrivals`
        self.noted: set[TopicPartition] = set()  # the partitions that its checkpoints may name

    def begin(self) -> None:
        """Reads how the last process left the directory, and removes its mark; raises OSError."""
        path = self.path
        marker = path / filenames.CLEAN_SHUTDOWN_FILE
        self.was_clean = marker.exists()
        self.recovery_points = _read(path / filenames.RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = _read(path / filenames.LOG_START_CHECKPOINT)
        self.high_watermarks = _read(path / filenames.HIGH_WATERMARK_CHECKPOINT)
        self.cleaned_offsets = _read(path / filenames.CLEANER_CHECKPOINT)
        self.longest_delays_ms = _read(path / filenames.MAX_LATENCY_CHECKPOINT)
        # An absent file and one without entries read alike; one with entries has to be replaced.
        self._written[filenames.CLEANER_CHECKPOINT] = dict(self.cleaned_offsets)
        self._written[filenames.MAX_LATENCY_CHECKPOINT] = dict(self.longest_delays_ms)
        self.noted = (
            self.recovery_points.keys()
            | self.log_start_offsets.keys()
            | self.high_watermarks.keys()
            | self.cleaned_offsets.keys()
            | self.longest_delays_ms.keys()
        )
        if self.was_clean:
            # From here on the next start must see that there was no clean stop.
            files.unlink(marker)
            files.sync(path)

    def path_of(self, key: TopicPartition) -> Path:
        """Returns the path of a partition that is in this directory or is to be created in it."""
        return self.path / filenames.partition_directory(*key)

    def release(self) -> None:
        """Unlocks the directory."""
        self._lock.release()

    def note_stopping(self) -> None:
        """Notes in the lock file that this process is about to end."""
        self._lock.note_stopping()

    def sync_file_system(self) -> None:
        """Makes all that was written durable, as `files.sync_file_system` does; raises OSError.

        The lock was opened before anything was written.
        """
        files.sync_file_system(self._lock.fileno())

    def mark_clean(self) -> None:
        """Writes the mark of a clean stop; raises OSError."""
        files.replace(self.path / filenames.CLEAN_SHUTDOWN_FILE, _CLEAN_SHUTDOWN)

    def note(self, key: TopicPartition, partition: Partition) -> None:
        """Takes the offsets of an open partition into the next checkpoints."""
        self.recovery_points[key] = partition.recovery_point
        self.high_watermarks[key] = partition.believed_high_watermark
        if partition.log_start_offset > partition.segments[0].base_offset:
            self.log_start_offsets[key] = partition.log_start_offset
        else:
            self.log_start_offsets.pop(key, None)
        if partition.cleaned_offset is not None:
            self.cleaned_offsets[key] = partition.cleaned_offset
        if partition.arrivals.longest_delay_ms is not None:
            self.longest_delays_ms[key] = partition.arrivals.longest_delay_ms

    def delays_ms(self, opened: Mapping[TopicPartition, Partition]) -> Offsets:
        """Returns the longest delays of its logs, as they are now where a log is open."""
        found = dict(self.longest_delays_ms)
        for key, partition in dict(opened).items():
            if partition.arrivals.longest_delay_ms is not None:
                found[key] = partition.arrivals.longest_delay_ms
        return found

    def durable_offset(self, key: TopicPartition) -> int:
        """Returns the offset before which, by the checkpoint on disk, a log is durable."""
        return self._written.get(filenames.RECOVERY_POINT_CHECKPOINT, {}).get(key, 0)

    def forget(self, key: TopicPartition) -> None:
        """Leaves a partition out of the next checkpoints."""
        self.recovery_points.pop(key, None)
        self.log_start_offsets.pop(key, None)
        self.high_watermarks.pop(key, None)
        self.cleaned_offsets.pop(key, None)
        self.longest_delays_ms.pop(key, None)

    def write_checkpoints(
        self, here: Iterable[TopicPartition], opened: Mapping[TopicPartition, Partition]
    ) -> None:
        """Writes the checkpoints that have changed, for the partitions that are `here`.

        A closed partition keeps the high watermark that it had. For one thread at a time. Raises
        OSError.
        """
        here = set(here)
        self.noted |= here  # first: a thread that creates one of these again waits for this one
        points = {key: self.recovery_points.get(key, 0) for key in here}
        starts = {
            key: offset for key, offset in dict(self.log_start_offsets).items() if key in here
        }
        cleaned = {key: offset for key, offset in dict(self.cleaned_offsets).items() if key in here}
        delays = {key: ms for key, ms in dict(self.longest_delays_ms).items() if key in here}
        marks = points | {
            key: offset for key, offset in dict(self.high_watermarks).items() if key in here
        }
        marks |= {
            key: partition.believed_high_watermark
            for key, partition in dict(opened).items()
            if key in here
        }
        for name, offsets in (
            (filenames.RECOVERY_POINT_CHECKPOINT, points),
            (filenames.LOG_START_CHECKPOINT, starts),
            (filenames.HIGH_WATERMARK_CHECKPOINT, marks),
            (filenames.CLEANER_CHECKPOINT, cleaned),
            (filenames.MAX_LATENCY_CHECKPOINT, delays),
        ):
            if self._written.get(name, {} if name in _MAY_BE_MISSING else None) != offsets:
                checkpoints.write_offsets(self.path / name, offsets)
                self._written[name] = offsets
        self.noted &= here


def _lock(path: Path) -> LockFile:
    """Locks a log directory for this process; raises DirectoryInUse when another one holds it."""
    file = path / filenames.LOCK_FILE
    try:
        return LockFile(file, for_java=True)
    except BlockingIOError as error:
        raise DirectoryInUse(path, holder_of(file)) from error


def _read(path: Path) -> Offsets:
    try:
        return checkpoints.read_offsets(path)
    except checkpoints.CheckpointError as error:
        _log.warning("recovery checkpoint ignored", extra={"reason": str(error)})
        return {}
