"""What a consumer sees of record sets, worked out from `recordset`'s plain values: an oracle for columns."""

from __future__ import annotations

from typing import NamedTuple

from tests.oracle.recordset import CONTROL_BIT, LAT_BIT, TRANSACTIONAL_BIT, parse

CREATE_TIME, LOG_APPEND_TIME, NO_TIMES = 0, 1, -1


class Row(NamedTuple):
    """One record; `time_type` as Kafka's TimestampType numbers them."""

    offset: int
    timestamp: int
    time_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    producer_id: int
    is_control: bool = False
    is_transactional: bool = False


def wrapped(number: int) -> int:
    """An int64, as Java would have it."""
    return (number + 2**63) % 2**64 - 2**63


def rows_of(data: bytes) -> list[Row]:
    """Every record of every whole batch, control records too."""
    found, _ = parse(data)
    return [row for fields in found for row in _rows(fields)]


def _rows(fields: dict) -> list[Row]:
    magic, attributes = fields["magic"], fields["attributes"]
    stamped = magic > 0 and bool(attributes & LAT_BIT)
    kind = NO_TIMES if magic == 0 else int(stamped)
    if magic == 2:
        return [
            Row(
                wrapped(one["offset"]),
                wrapped(one["timestamp"]),
                kind,
                one["key"],
                one["value"],
                tuple(one["headers"]),
                fields["producer_id"],
                bool(attributes & CONTROL_BIT),
                bool(attributes & TRANSACTIONAL_BIT),
            )
            for one in fields["records"]
        ]
    if not attributes & 7:
        return [_message(fields, fields["offset"], fields.get("timestamp", -1), kind)]
    inner = fields["inner"]
    base = fields["offset"] - inner[-1]["offset"] if magic else 0
    return [
        _message(
            one,
            base + one["offset"],
            fields["timestamp"] if stamped else one.get("timestamp", -1),
            kind,
        )
        for one in inner
    ]


def _message(fields: dict, offset: int, timestamp: int, kind: int) -> Row:
    return Row(offset, timestamp, kind, fields["key"], fields["value"], (), -1)
