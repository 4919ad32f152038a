"""Cleans one whole log in this process, as the broker's other process does.

`clean` is for a log that is open, `clean_directory` for a partition's directory that is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import CorruptMessage
from tidelog.storage import filenames
from tidelog.storage.compaction.cleaner import Cleaner
from tidelog.storage.log.compactor import DEDUPE_BYTES, LOAD_FACTOR, Compaction
from tidelog.storage.log.partition import Partition

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.config.topic import TopicConfig

_FOREVER_MS = 2**63 - 1


class Done(NamedTuple):
    """The result of a cleaning."""

    first_dirty_offset: int  # the log is clean before this offset
    segments: int  # the number of segments after the cleaning
    bytes_read: int
    bytes_written: int


def clean(
    partition: Partition,
    now_ms: int,
    *,
    asked: bool = True,
    dedupe_bytes: int = DEDUPE_BYTES,
    load_factor: float = LOAD_FACTOR,
) -> Done | None:
    """Clean a log once; return None if there is nothing to clean.

    `asked` ignores min.cleanable.dirty.ratio. Raises KafkaStorageError, CorruptMessage and OSError;
    then the log is as it was, or has the groups that were finished.
    """
    partition.flush()
    job = partition.compactor.begin_cleaning(
        now_ms, asked=asked, dedupe_bytes=dedupe_bytes, load_factor=load_factor
    )
    if job is None:
        return None
    end_offset: int | None = None
    segments = read = written = 0
    error: str | None = "interrupted"
    try:
        cleaner = Cleaner(partition.directory, job)
        for group in cleaner.groups():
            cleaned = cleaner.clean(group)
            if not partition.compactor.take_in(cleaned, now_ms):
                error = "segments were deleted meanwhile"
                return None
            segments += 1
            read += cleaned.bytes_read
            written += cleaned.size
        end_offset, error = cleaner.end_offset, None
        return Done(end_offset, segments, read, written)
    except (CorruptMessage, OSError) as failure:
        error = str(failure)
        raise
    finally:
        if error is not None:
            partition.compactor.discard_cleaned()
        partition.compactor.end_cleaning(end_offset, Compaction(now_ms, read, written, error))


def clean_directory(
    directory: Path, config: TopicConfig, now_ms: int, *, cleaned_offset: int | None = None
) -> Done | None:
    """Clean the log in a partition's directory, `<topic>-<partition>`, that is not open anywhere.

    Cleans up to the last segment, which is active. The log is clean already before
    `cleaned_offset`. It is opened as after a crash, so all of it is checked first. Raises as
    `clean` does.
    """
    name = filenames.parse_partition_directory(directory.name)
    topic, index = (directory.name, 0) if name is None else name
    partition = Partition(
        directory,
        topic,
        index,
        None,
        config,
        now_ms=now_ms,
        cleaned_offset=cleaned_offset,
        producer_id_expiration_ms=_FOREVER_MS,
    )
    try:
        return clean(partition, now_ms)
    finally:
        partition.close()
