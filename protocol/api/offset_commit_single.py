"""A fast codec for OffsetCommit of one offset, which is what a consumer of one partition sends.

No message object is made: `read` takes the fields from the request's bytes, and `write` packs the
whole frame of the response. The bytes are those of `offset_commit.py`, which handles all other
requests. Versions 5 to 9 (6 leader epochs, 7 static members, 8 flexible); older requests carry
times.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as struct_error

# Group, generation, member, instance, topic, partition, offset, leader epoch, note.
_Request = tuple[str, int, str, str | None, bytes, int, int, int, str]

_FIRST = 5
_EPOCHS_SINCE, _INSTANCES_SINCE, _FLEXIBLE_SINCE = 6, 7, 8
_NO_EPOCH = -1

# Each struct ends with the length of the text that follows it.
_LENGTH = Struct(">h")
_MEMBER = Struct(">ih")  # generation
_TOPIC = Struct(">ih")  # count of topics
_OFFSET = Struct(">iiqh")  # count of partitions, the partition, its offset
_OFFSET_AND_EPOCH = Struct(">iiqih")
# The same for flexible versions: lengths and counts are one larger, 0 is null.
_FLEXIBLE_MEMBER = Struct(">iB")
_FLEXIBLE_TOPIC = Struct(">BB")
_FLEXIBLE_OFFSET = Struct(">BiqiB")
_NO_TAGS = b"\0\0\0"  # after partition, topic and request

_HEAD = Struct(">ii").pack  # size of the frame, correlation id
_INDEX = Struct(">i").pack
_COUNTED_NAME = Struct(">ih")
_NO_THROTTLE = b"\0\0\0\0"


def read(frame: bytes | memoryview, position: int, version: int) -> _Request | None:
    """Returns the fields of a request whose body begins at `position`.

    Returns None for other requests and for damaged ones; `offset_commit.py` decodes those.
    """
    if version < _FIRST:
        return None
    try:
        if version >= _FLEXIBLE_SINCE:
            return _read_flexible(frame, position, version)
        return _read(frame, position, version)
    except (struct_error, IndexError, UnicodeDecodeError):
        return None


def write(version: int, correlation_id: int, topic: bytes, index: int) -> bytes:
    """Packs the whole frame of the response to a request that `read` returned."""
    before, behind, size = _shape(topic, flexible=version >= _FLEXIBLE_SINCE)
    return b"".join((_HEAD(size, correlation_id), before, _INDEX(index), behind))


def _read(frame: bytes | memoryview, position: int, version: int) -> _Request | None:
    """Reads the body in versions 5 to 7, if it has one offset."""
    (length,) = _LENGTH.unpack_from(frame, position)
    start = position + 2
    end = start + length
    generation, of_member = _MEMBER.unpack_from(frame, end)
    at = end + 6
    stop = at + of_member
    if length < 0 or of_member < 0:
        return None
    group, member, instance = str(frame[start:end], "utf-8"), str(frame[at:stop], "utf-8"), None
    if version >= _INSTANCES_SINCE:
        (length,) = _LENGTH.unpack_from(frame, stop)
        stop += 2
        if length >= 0:
            instance = str(frame[stop : stop + length], "utf-8")
            stop += length
        elif length != -1:
            return None
    topics, length = _TOPIC.unpack_from(frame, stop)
    start = stop + 6
    end = start + length
    if topics != 1 or length < 0:
        return None
    if version >= _EPOCHS_SINCE:
        partitions, index, offset, leader_epoch, length = _OFFSET_AND_EPOCH.unpack_from(frame, end)
        at = end + _OFFSET_AND_EPOCH.size
    else:
        partitions, index, offset, length = _OFFSET.unpack_from(frame, end)
        at, leader_epoch = end + _OFFSET.size, _NO_EPOCH
    if partitions != 1 or length < -1 or at + max(0, length) != len(frame):
        return None
    topic, note = bytes(frame[start:end]), str(frame[at:], "utf-8")
    return group, generation, member, instance, topic, index, offset, leader_epoch, note


def _read_flexible(frame: bytes | memoryview, position: int, _version: int) -> _Request | None:
    """Reads the body in versions 8 and 9, if it has one offset and no text over 126 bytes."""
    length = frame[position]
    start = position + 1
    end = start + length - 1
    generation, of_member = _FLEXIBLE_MEMBER.unpack_from(frame, end)
    at = end + 5
    stop = at + of_member - 1
    of_instance = frame[stop]
    if not (0 < length < 128 and 0 < of_member < 128 and of_instance < 128):
        return None
    group, member, instance = str(frame[start:end], "utf-8"), str(frame[at:stop], "utf-8"), None
    stop += 1
    if of_instance:
        instance = str(frame[stop : stop + of_instance - 1], "utf-8")
        stop += of_instance - 1
    topics, length = _FLEXIBLE_TOPIC.unpack_from(frame, stop)
    start = stop + 2
    end = start + length - 1
    if topics != 2 or not 0 < length < 128:
        return None
    partitions, index, offset, leader_epoch, of_note = _FLEXIBLE_OFFSET.unpack_from(frame, end)
    at = end + _FLEXIBLE_OFFSET.size
    stop = at + max(0, of_note - 1)
    if partitions != 2 or of_note > 127 or frame[stop:] != _NO_TAGS:
        return None
    topic, note = bytes(frame[start:end]), str(frame[at:stop], "utf-8")
    return group, generation, member, instance, topic, index, offset, leader_epoch, note


@lru_cache(maxsize=1024)
def _shape(topic: bytes, *, flexible: bool) -> tuple[bytes, bytes, int]:
    """Returns the response's bytes before and after the partition index, and the frame's size."""
    if flexible:
        before = b"\0" + _NO_THROTTLE + b"\2" + bytes((len(topic) + 1,)) + topic + b"\2"
        behind = b"\0\0" + _NO_TAGS
    else:
        before = _NO_THROTTLE + _COUNTED_NAME.pack(1, len(topic)) + topic + b"\0\0\0\1"
        behind = b"\0\0"
    return before, behind, 4 + len(before) + 4 + len(behind)
