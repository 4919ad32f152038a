"""Every file and directory name of a log directory is built and parsed here.

The names are Apache Kafka's, so its tools work on our directories. The files of a segment are named
`<base offset, 20 digits><suffix>`, a partition's directory `<topic>-<partition>`, one that waits
for its removal `<topic>-<partition>.<unique>-delete`, and one that belongs to no topic
`<topic>-<partition>.<unique>-stray`. Only `.appendtimes`,
`.negativetimes`, `max-latency-checkpoint`, `registration`, `disk-probe`, `reserve`, `scrub-checkpoint`,
`unread.log` and the checkpoints of the clock are ours.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.protocol.topic_partition import TopicPartition

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
NEGATIVE_TIMES_SUFFIX = ".negativetimes"  # ours: the part of the time index below zero
TXN_INDEX_SUFFIX = ".txnindex"
APPEND_TIMES_SUFFIX = ".appendtimes"
SNAPSHOT_SUFFIX = ".snapshot"
# Without its log, none of them means anything.
INDEX_SUFFIXES = (
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    NEGATIVE_TIMES_SUFFIX,
    TXN_INDEX_SUFFIX,
)

# A crash may leave these files; none of them holds acknowledged data.
DELETED_SUFFIX = ".deleted"
LEFTOVER_SUFFIXES = (".tmp", DELETED_SUFFIX)

# Compaction writes the first and then renames it to the second; see `recovery/leftovers`.
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
STRAY_SUFFIX = ".stray"  # set aside: no broker reads or removes it
CUT_SUFFIX = "-cut"  # so is this, which lay behind the end of a recovered log

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"  # how far compaction has come
MAX_LATENCY_CHECKPOINT = "max-latency-checkpoint"  # ours: the longest delays of records, in ms
CLOCK_CHECKPOINT = "clock-checkpoint"  # ours: what is known about the clock
RECENT_CLOCK_CHECKPOINT = "recent-clock-checkpoint"  # its last reading; a power loss may lose it
REGISTRATION_FILE = "registration"  # ours: by which broker, and how, the directory is used
DISK_PROBE_FILE = "disk-probe"  # ours: what is written to see how fast the disk is
UNREAD_LOG = "unread.log"  # ours: what a broker logs while nobody reads its standard error
SUPERVISORS_UNREAD_LOG = (
    "unread-supervisor.log"  # the same of the supervisor, beside that of broker 1
)
RESERVE_FILE = "reserve"  # ours: room for what must work on a full disk
SCRUB_CHECKPOINT = "scrub-checkpoint"  # ours: how far scrubbing has come, and what it has found
BROKERS_DIRECTORY = "brokers"  # ours: the directories of the other brokers of a machine
META_PROPERTIES_FILE = "meta.properties"  # Kafka's: which broker of which cluster

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"

METADATA_LOG = "__cluster_metadata"  # of a KRaft controller; no topic

_MAX_NAME_LENGTH = 255  # what the file systems allow
_SEGMENT_FILE = re.compile(r"(\d{20})(\.[a-z]+)")
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]+)-(\d{1,10})")
_DELETED_DIRECTORY = re.compile(r".+\.[0-9a-f]{32}-delete")


class SegmentFile(NamedTuple):
    """A file that belongs to an offset: the offset and the suffix."""

    offset: int
    suffix: str


def segment_file(offset: int, suffix: str) -> str:
    """Returns the name of the `suffix` file that begins at (a snapshot: ends before) `offset`."""
    return f"{offset:020d}{suffix}"


def parse_segment_file(name: str) -> SegmentFile | None:
    """Splits a file name; None if it is not a file of a segment."""
    match = _SEGMENT_FILE.fullmatch(name)
    return None if match is None else SegmentFile(int(match[1]), match[2])


def is_leftover(name: str) -> bool:
    """Returns whether a file of a partition's directory was left by an interrupted change."""
    return name.endswith(LEFTOVER_SUFFIXES)


def partition_directory(topic: str, partition: int) -> str:
    """Returns the name of a partition's directory."""
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Returns (topic, partition) of a directory name; None if it is not a partition's.

    A topic name may contain dashes and dots, so the last dash separates. Directories that Kafka has
    renamed (`-delete`, `-future`, `-stray`) do not end in a number.
    """
    match = _PARTITION_DIRECTORY.fullmatch(name)
    return None if match is None else (match[1], int(match[2]))


def deleted_directory(topic: str, partition: int, unique: str) -> str:
    """Returns the name of a partition's directory between its deletion and its removal.

    `unique` is 32 hexadecimal digits, so that a new topic of the same name never meets the old one.
    A long topic name is cut, as Kafka cuts it, to what a file system allows.
    """
    return _renamed_directory(topic, partition, unique, "-delete")


def stray_directory(topic: str, partition: int, unique: str) -> str:
    """Returns the name of a directory that belongs to no topic of this broker, as in Kafka."""
    return _renamed_directory(topic, partition, unique, "-stray")


def _renamed_directory(topic: str, partition: int, unique: str, suffix: str) -> str:
    ending = f"-{partition}.{unique}{suffix}"
    return topic[: _MAX_NAME_LENGTH - len(ending)] + ending


def is_deleted_directory(name: str) -> bool:
    """Returns whether a directory is deleted and waits for its removal."""
    return _DELETED_DIRECTORY.fullmatch(name) is not None


def snapshot_path(directory: Path, offset: int) -> Path:
    """Returns the path of the snapshot of the producers before an offset."""
    return directory / segment_file(offset, SNAPSHOT_SUFFIX)
