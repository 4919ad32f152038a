"""Transaction markers: the control batches that end a transaction in a partition (KIP-98).

A marker is a batch of one record: key int16 version (0), int16 type (0 abort, 1 commit); value int16
version (0), int32 epoch of the coordinator that wrote it. Other types belong to KRaft's logs. The
producer id and epoch are in the header of the batch, and it has no sequence.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.records.batch import build, records
from tidelog.protocol.records.layout import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.protocol.records.layout import Batch
    from tidelog.protocol.wire import Buffer

NO_COORDINATOR_EPOCH = -1
_ABORT, _COMMIT = 0, 1
_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class Marker(NamedTuple):
    """The end of a transaction, as a marker says it."""

    is_commit: bool
    coordinator_epoch: int


def build_marker(producer_id: int, producer_epoch: int, marker: Marker, timestamp: int) -> bytes:
    """Writes a marker as a batch at offset 0, with the bytes that Kafka's broker writes."""
    key = _KEY.pack(0, _COMMIT if marker.is_commit else _ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return build(
        [Record(0, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_marker(buffer: Buffer, batch: Batch) -> Marker | None:
    """Returns the marker in a control batch; None if it is of another type, or empty.

    A value that is too short leaves the coordinator's epoch unknown. Raises CorruptMessage.
    """
    return marker_of(records(buffer, batch))


def marker_of(control_records: Iterable[Record]) -> Marker | None:
    """Returns the marker among the records of a control batch, as `read_marker` does."""
    for record in control_records:
        if record.key is None or len(record.key) < _KEY.size:
            continue
        _, kind = _KEY.unpack_from(record.key)
        if kind not in (_ABORT, _COMMIT):
            return None
        epoch = NO_COORDINATOR_EPOCH
        if record.value is not None and len(record.value) >= _VALUE.size:
            _, epoch = _VALUE.unpack_from(record.value)
        return Marker(kind == _COMMIT, epoch)
    return None
