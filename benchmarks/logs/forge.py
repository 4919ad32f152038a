"""Logs made by the record kernels instead of by producing: a hundred million records in seconds.

`forge` appends prepared batches to a partition in process, through storage as a broker would, with
append times of its own choice. The result is a log that tidelog wrote and closed cleanly. `install`
puts such a log into a topic of a stopped broker, tidelog or Apache Kafka: the same bytes for both
(hard links), each with the files that mark it as written by that broker and stopped cleanly.
`forget_checkpoint` removes the checkpoints, as after a crash long after the last one.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c
from prepared import varint

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tidelog.config import load, topic_config
from tidelog.storage import checkpoints, filenames
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.times import partition_times

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = struct.Struct(">qiibIhiqqqhii")
_TIMES = struct.Struct(">qq")
_CHECKED_AT = 21  # the first byte that the checksum covers
_TIMES_AT = 27
_TEMPLATES = 16
_OURS = (
    filenames.APPEND_TIMES_SUFFIX,
    filenames.NEGATIVE_TIMES_SUFFIX,
    partition_times.FILE_NAME,
)


class Shape(NamedTuple):
    """The properties of a log: one record per millisecond, times out of order up to a bound."""

    records: int
    per_batch: int | tuple[int, int]  # records of each batch; or at least and at most
    value_size: int
    segment_bytes: int
    disorder_ms: int
    first_ms: int


class _Template(NamedTuple):
    """A whole format-2 batch; only its two times and the checksum have to be filled in."""

    data: bytearray
    first_ms: int  # time of its first record, relative to the batch
    largest_ms: int
    times: list[int]


def _template(shape: Shape, chance: random.Random) -> _Template:
    bound = shape.disorder_ms
    per_batch = shape.per_batch
    count = per_batch if isinstance(per_batch, int) else chance.randint(*per_batch)
    times = [at + chance.randint(-bound, bound) for at in range(count)]
    body = bytearray()
    for at, time in enumerate(times):
        value = chance.randbytes(shape.value_size)
        record = b"".join(
            (b"\0", varint(time - times[0]), varint(at), b"\1", varint(len(value)), value, b"\0")
        )
        body += varint(len(record)) + record
    head = _HEADER.pack(
        0, _HEADER.size - 12 + len(body), -1, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count
    )
    return _Template(bytearray(head + body), times[0], max(times), times)


def _batches(shape: Shape) -> Iterator[tuple[int, _Template]]:
    """Iterates over the batches of a log: the number of records before each, and its template."""
    chance = random.Random(0)
    templates = [_template(shape, chance) for _ in range(_TEMPLATES)]
    begins = 0
    while begins < shape.records:
        template = templates[chance.randrange(_TEMPLATES)]
        yield begins, template
        begins += len(template.times)


def times(shape: Shape) -> Iterator[int]:
    """Iterates over the times of the records that `forge` writes, in their order."""
    for begins, template in _batches(shape):
        base_ms = shape.first_ms + begins
        for time in template.times:
            yield base_ms + time


def forge(directory: Path, shape: Shape) -> Path:
    """Makes a log below a directory; returns the partition's. Raises errors of storage."""
    broker = load(None, {}, {"log.dirs": str(directory)})
    settings = {"segment.bytes": str(shape.segment_bytes), "retention.ms": "-1"}
    config = topic_config(broker, settings)
    store = LogStore([directory], default_config=config)
    store.open(shape.first_ms)
    partition = store.create_partition("forged", uuid.uuid4(), 0, config, shape.first_ms)
    for begins, (data, first, largest, own) in _batches(shape):
        base_ms = shape.first_ms + begins
        _TIMES.pack_into(data, _TIMES_AT, base_ms + first, base_ms + largest)
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[_CHECKED_AT:]))
        partition.append(data, now_ms=base_ms + len(own), produce_version=9)
    store.close()
    return directory / filenames.partition_directory("forged", 0)


def size_of(forged: Path) -> int:
    """Returns the bytes of the `.log` files."""
    return sum(path.stat().st_size for path in forged.glob("*.log"))


def install(forged: Path, data: Path, topic: str, end_offset: int, *, ours: bool) -> None:
    """Replaces a topic's only, empty partition by a forged log; the broker must not run.

    `ours` is for tidelog, which has files more than Apache Kafka. Raises OSError.
    """
    target = data / filenames.partition_directory(topic, 0)
    for path in target.iterdir():
        if path.name != filenames.PARTITION_METADATA_FILE:
            path.unlink()
    for path in forged.iterdir():
        if path.name == filenames.PARTITION_METADATA_FILE:
            continue
        if path.suffix == filenames.LOG_SUFFIX:
            os.link(path, target / path.name)  # the file is never written again
        elif ours or not path.name.endswith(_OURS):
            shutil.copyfile(path, target / path.name)
    checkpoint = data / filenames.RECOVERY_POINT_CHECKPOINT
    offsets = checkpoints.read_offsets(checkpoint)
    checkpoints.write_offsets(checkpoint, {**offsets, (topic, 0): end_offset})


def forget_checkpoint(data: Path) -> None:
    """Makes a stopped broker's directory look like a crash before any checkpoint was written."""
    for name in (filenames.CLEAN_SHUTDOWN_FILE, filenames.RECOVERY_POINT_CHECKPOINT):
        (data / name).unlink(missing_ok=True)


def drop_page_cache(data: Path) -> None:
    """Drops the pages of every log and index from the kernel's cache; mapped pages remain."""
    for path in data.rglob("*"):
        if path.suffix in (*filenames.INDEX_SUFFIXES, ".log", ".appendtimes"):
            number = os.open(path, os.O_RDONLY)
            os.fdatasync(number)
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(number)
