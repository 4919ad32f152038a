"""A fast codec for Produce of one record set to one partition, which nearly every request is.

No message object is made: `read` takes the fields from the request's bytes, and `write` packs the
whole frame of the response. The bytes are those of `produce.py`, which handles all other requests.
Versions 3 to 12 (5 log start offset, 8 record errors, 9 flexible); older requests may carry several
batches, newer ones name topics by id.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.wire import Buffer, DecodeError, read_uvarint

if TYPE_CHECKING:
    from collections.abc import Callable

_Request = tuple[int, int, bytes, int, Buffer]  # acks, timeout in ms, topic, partition, records

_FIRST, _LAST = 3, 12
_LOG_START_SINCE, _RECORD_ERRORS_SINCE, _FLEXIBLE_SINCE = 5, 8, 9
_COPY_BYTES = 4096  # records up to this size are copied, which is cheaper than a view

# Transactional id (null), acks, timeout, count of topics, length of the name.
_HEAD = Struct(">hhiih")
_FLEXIBLE_HEAD = Struct(">BhiBB")
# Count of partitions, the partition, length of the records (flexible: a varint, read separately).
_MIDDLE = Struct(">iii")
_FLEXIBLE_MIDDLE = Struct(">Bi")
_NO_TAGS = b"\0\0\0"  # after partition, topic and request
_COUNTED_NAME = Struct(">ih")


def read(frame: bytes | memoryview, position: int, version: int) -> _Request | None:
    """Returns acks, timeout, topic, partition and records of a request whose body is at `position`.

    Returns None for other requests and for damaged ones; `produce.py` decodes those.
    """
    try:
        if _FLEXIBLE_SINCE <= version <= _LAST:
            return _read_flexible(frame, position)
        return _read(frame, position) if _FIRST <= version <= _LAST else None
    except (struct_error, IndexError, DecodeError):
        return None


def _read(frame: bytes | memoryview, position: int) -> _Request | None:
    """Reads the body in versions 3 to 8, if it has one record set."""
    transactional_id, acks, timeout_ms, topics, length = _HEAD.unpack_from(frame, position)
    if transactional_id != -1 or topics != 1 or length < 0:
        return None
    start = position + _HEAD.size
    end = start + length
    partitions, index, size = _MIDDLE.unpack_from(frame, end)
    at = end + _MIDDLE.size
    if partitions != 1 or size < 0 or at + size != len(frame):
        return None
    stop = at + size
    records = frame[at:stop] if size <= _COPY_BYTES else memoryview(frame)[at:stop]
    return acks, timeout_ms, bytes(frame[start:end]), index, records


def _read_flexible(frame: bytes | memoryview, position: int) -> _Request | None:
    """Reads the body in versions 9 to 12, if it has one record set; lengths are one larger."""
    transactional_id, acks, timeout_ms, topics, length = _FLEXIBLE_HEAD.unpack_from(frame, position)
    if transactional_id or topics != 2 or not 0 < length < 128:
        return None
    start = position + _FLEXIBLE_HEAD.size
    end = start + length - 1
    partitions, index = _FLEXIBLE_MIDDLE.unpack_from(frame, end)
    size, at = read_uvarint(frame, end + _FLEXIBLE_MIDDLE.size)
    stop = at + size - 1
    if partitions != 2 or not size or frame[stop:] != _NO_TAGS:
        return None
    records = frame[at:stop] if stop - at <= _COPY_BYTES else memoryview(frame)[at:stop]
    return acks, timeout_ms, bytes(frame[start:end]), index, records


def write(
    version: int,
    correlation_id: int,
    name: bytes,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """Packs the whole frame of the response to a request that `read` returned."""
    shape = _shape(version, name)
    if shape.has_log_start:
        return shape.pack(
            shape.size,
            correlation_id,
            shape.before,
            index,
            0,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            shape.behind,
        )
    return shape.pack(
        shape.size,
        correlation_id,
        shape.before,
        index,
        0,
        base_offset,
        log_append_time_ms,
        shape.behind,
    )


class _Shape(NamedTuple):
    """The bytes that all responses of one version for one topic have in common."""

    pack: Callable[..., bytes]
    size: int  # of the frame, without its length
    before: bytes  # counts and name, between the header and the partition
    behind: bytes  # after the offsets: no record errors, no message, no throttling, no tags
    has_log_start: bool


@lru_cache(maxsize=1024)
def _shape(version: int, name: bytes) -> _Shape:
    flexible = version >= _FLEXIBLE_SINCE
    if flexible:
        before = b"\2" + bytes((len(name) + 1,)) + name + b"\2"
        behind = b"\1" + b"\0" + b"\0\0" + b"\0\0\0\0" + b"\0"
    else:
        before = _COUNTED_NAME.pack(1, len(name)) + name + b"\0\0\0\1"
        behind = b"\0\0\0\0"
        if version >= _RECORD_ERRORS_SINCE:
            behind = b"\0\0\0\0" + b"\xff\xff" + behind
    has_log_start = version >= _LOG_START_SINCE
    packer = Struct(
        f">ii{'x' if flexible else ''}{len(before)}sihqq"
        f"{'q' if has_log_start else ''}{len(behind)}s"
    )
    return _Shape(packer.pack, packer.size - 4, before, behind, has_log_start)
