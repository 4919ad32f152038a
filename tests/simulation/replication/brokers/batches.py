"""Batches as producers send them, and as they are read back from a log's bytes.

A produced batch has one record time, and each record has the request's value. Formats 0 and 1 store
each record by itself unless they are compressed; here they always are, so a request is one batch.
"""

from __future__ import annotations

import random
import zlib
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.replication.checking.log import NO_TIME, Batch, key_of
from tidelog.protocol.records import batch as records
from tidelog.protocol.records.batch import Record
from tidelog.protocol.records.layout import Compression
from tidelog.storage.log.replication.received import unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.replication.received import AppendedFrom

VERSION_OF_MESSAGES = 2  # of Produce, for formats 0 and 1
_ALL_BYTES = 1 << 30
_OFFSET = attrgetter("offset")


class Produce(NamedTuple):
    """A batch as a producer sends it."""

    value: int
    count: int
    record_time: int
    producer: int
    producer_epoch: int
    sequence: int


def produced(request: Produce, magic: int, *, has_key: bool, pad: int = 0) -> bytes:
    """Returns the bytes of a request's batch in a format.

    With `pad` the batch is compressed, and so many bytes in its first key make it large.
    """
    time = request.record_time if magic else NO_TIME
    key = b"%d" % key_of(request.value) if has_key else None
    rows = [Record(number, time, key, b"%d" % request.value) for number in range(request.count)]
    compression = Compression.NONE
    if pad:
        rows[0] = rows[0]._replace(key=random.Random(request.value).randbytes(pad))
        compression = Compression.GZIP
    if magic < 2:
        return records.build(rows, magic=magic, compression=Compression.GZIP)
    producer = {}
    if request.producer >= 0:
        producer = {
            "producer_id": request.producer,
            "producer_epoch": request.producer_epoch,
            "base_sequence": request.sequence,
        }
    return records.build(rows, magic=2, compression=compression, **producer)


def stored(partition: Partition, offset: int) -> Iterator[tuple[Batch, int]]:
    """Yields the batches of a log from an offset on, each with its append time, to the log's end.

    Raises the errors of `Reader.read_with_append_times`.
    """
    read, times = partition.reader.read_with_append_times(
        offset, _ALL_BYTES, upper_offset=partition.log_end_offset, minimum_one=True
    )
    entries = unpacked(times)
    for data in read.buffers:
        for batch in parsed(data):
            yield batch, _time_of(entries, batch)


def parsed(data: bytes | memoryview) -> Iterator[Batch]:
    """Yields the whole batches in bytes of a log. Raises CorruptMessage."""
    for header in records.scan(data):
        records.verify(data, header)
        rows = list(records.records(data, header))
        if not rows:
            continue  # compaction has left it: the last one of a producer
        yield Batch(
            rows[0].offset,
            len(rows),
            _value(rows[0].value),
            header.leader_epoch,
            rows[0].timestamp,
            header.max_timestamp if header.is_log_append_time else None,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            zlib.crc32(bytes(data[header.position : header.position + header.size])),
        )


def _value(written: bytes | None) -> int:
    """Returns the value of a record; those that a coordinator has written are no numbers."""
    if written is None:
        return -1
    return int(written) if written.isdigit() else zlib.crc32(written)


def _time_of(entries: Sequence[AppendedFrom], batch: Batch) -> int:
    number = bisect_right(entries, batch.end - 1, key=_OFFSET) - 1
    time = entries[number].time_ms if number >= 0 else None
    return NO_TIME if time is None else time
