"""`.snapshot` files: the state of producers before an offset, in Kafka's own format.

    int16 version (1), uint32 CRC-32C of what follows, int32 number of entries, then for each
    int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta,
    int64 timestamp, int32 coordinator epoch, int64 first offset of an open transaction or -1

The file's name is an offset: the file has the state after every batch before it. It is written at
each roll and at a clean stop, and replaced by rename. It has only the last batch of each producer;
the others of its last five are read from the log again. The timestamp is the append time of that
batch. A snapshot that fails its checksum is ignored: the producers are then read from an earlier
one and more of the log.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tidelog.protocol.checksum import crc32c
from tidelog.storage import filenames, files
from tidelog.storage.log.producers.producer_state import (
    MAX_SEQUENCE,
    NO_SEQUENCE,
    Producer,
    ProducerBatch,
    Producers,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class SnapshotError(ValueError):
    """A snapshot file whose content does not match its format."""


def write(directory: Path, offset: int, producers: Iterable[Producer]) -> None:
    """Writes the state of producers before `offset`; not made durable here. Raises OSError."""
    entries = [_pack(producer) for producer in producers]
    body = b"".join((_COUNT.pack(len(entries)), *entries))
    path = directory / filenames.segment_file(offset, filenames.SNAPSHOT_SUFFIX)
    files.replace(path, _HEAD.pack(_VERSION, crc32c(body)) + body, losable=True)


def read(path: Path, expiration_ms: int) -> Producers:
    """Reads a snapshot. Raises SnapshotError, and OSError if there is none."""
    return parse(path, path.read_bytes(), expiration_ms)


def parse(path: Path | str, data: bytes, expiration_ms: int) -> Producers:
    """Parses the bytes of a snapshot; `path` is for error texts. Raises SnapshotError."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise SnapshotError(f"{path} is too short for a snapshot")
    version, checksum = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if version != _VERSION or checksum != crc32c(body):
        raise SnapshotError(f"{path} is of version {version}, or its checksum is wrong")
    (count,) = _COUNT.unpack_from(body)
    if count * _ENTRY.size != len(body) - _COUNT.size:
        raise SnapshotError(f"{path} announces {count} producers and has room for others")
    producers = Producers(expiration_ms)
    for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producers.put(_unpack(*fields))
    return producers


def _pack(producer: Producer) -> bytes:
    if producer.batches:
        last = producer.batches[-1]
        last_offset, delta = last.last_offset, last.last_offset - last.first_offset
    else:
        last_offset, delta = -1, 0
    return _ENTRY.pack(
        producer.producer_id,
        producer.epoch,
        producer.last_sequence,
        last_offset,
        delta,
        producer.last_append_time_ms,
        producer.coordinator_epoch,
        producer.transaction_first_offset,
    )


def _unpack(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    delta: int,
    last_append_time_ms: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> Producer:
    producer = Producer(producer_id, epoch)
    if last_offset >= 0:
        first_sequence = last_sequence - delta
        if last_sequence == NO_SEQUENCE:  # offsets of a group, in a transaction
            first_sequence = NO_SEQUENCE
        elif first_sequence < 0:  # the sequence wrapped within the batch
            first_sequence += MAX_SEQUENCE + 1
        producer.batches = (
            ProducerBatch(first_sequence, last_sequence, last_offset - delta, last_offset),
        )
    producer.last_append_time_ms = last_append_time_ms
    producer.coordinator_epoch = coordinator_epoch
    producer.transaction_first_offset = transaction_first_offset
    return producer
