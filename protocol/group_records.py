"""The records of __consumer_offsets: keys and values as Apache Kafka writes them.

A key begins with its version: 0 and 1 are an offset of a group, 2 is a group. Values have versions
of their own. They are written in version 3, which every Kafka since 2.1 reads; an offset with an
expiry time is written in version 1, the last that has one. Versions up to 4 are read. A value of
None is a tombstone.

The records of nearly every commit are packed without a message object, into the same bytes as the
schemas give.

Source: Kafka's OffsetCommitKey, OffsetCommitValue, GroupMetadataKey and GroupMetadataValue
messages.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

from tidelog.protocol.message import Codec
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.protocol.schema import Bytes, Int32, Int64, Message, String, since
from tidelog.protocol.wire import DecodeError

_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_NEWEST_VALUE: Final = 4
_WRITTEN: Final = 3
_WITH_EXPIRY: Final = 1
_FLEXIBLE_SINCE: Final = 4
_PARTITIONS_KNOWN: Final = 1_000  # of keys; the hash is computed in Python
_LENGTH = Struct(">h").pack
_KEY_HEAD = Struct(">hh").pack  # version, length of the group
_INDEX = Struct(">i").pack
_VALUE_HEAD = Struct(">hqih").pack  # version, offset, leader epoch, length of the metadata
_TIME = Struct(">q").pack


class OffsetCommitKey(Message):
    """The group and the partition of a committed offset."""

    group: String = since(0)
    topic: String = since(0)
    partition: Int32 = since(0)


class OffsetCommitValue(Message):
    """An offset, with its commit time in ms and, if it has one, its expiry time in ms."""

    offset: Int64 = since(0)
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)
    metadata: String = since(0)
    commit_timestamp: Int64 = since(0)
    expire_timestamp: Int64 = since(1, until=1, default=NO_TIMESTAMP, ignorable=True)


class GroupMetadataKey(Message):
    """A group."""

    group: String = since(2)


class MemberMetadata(Message):
    """One member; `subscription` is its metadata for the group's protocol."""

    member_id: String = since(0)
    group_instance_id: String | None = since(3, default=None, ignorable=True)
    client_id: String = since(0)
    client_host: String = since(0)
    rebalance_timeout: Int32 = since(1, default=-1, ignorable=True)
    session_timeout: Int32 = since(0)
    subscription: Bytes = since(0)
    assignment: Bytes = since(0)


class GroupMetadataValue(Message):
    """One generation of a group, with the assignments of its leader."""

    protocol_type: String = since(0)
    generation: Int32 = since(0)
    protocol: String | None = since(0, default=None)
    leader: String | None = since(0, default=None)
    current_state_timestamp: Int64 = since(2, default=NO_TIMESTAMP, ignorable=True)
    members: list[MemberMetadata] = since(0)


_codecs: dict[tuple[type[Message], int], Codec] = {}


def _codec(cls: type[Message], version: int) -> Codec:
    known = _codecs.get((cls, version))
    if known is None:
        known = Codec(cls, version, flexible=version >= _FLEXIBLE_SINCE)
        _codecs[cls, version] = known
    return known


def _written(version: int, message: Message) -> bytes:
    return version.to_bytes(2, "big") + _codec(type(message), version).encode(message)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """Returns the key of a group's offset."""
    try:
        of_group, of_topic = group.encode(), topic.encode()
        head = _KEY_HEAD(_OFFSET_KEY, len(of_group))
        return b"".join((head, of_group, _LENGTH(len(of_topic)), of_topic, _INDEX(partition)))
    except struct_error:  # the codec says what is wrong
        key = OffsetCommitKey(group=group, topic=topic, partition=partition)
        return _written(_OFFSET_KEY, key)


def group_key(group: str) -> bytes:
    """Returns the key of a group."""
    return _written(_GROUP_KEY, GroupMetadataKey(group=group))


def offset_value(value: OffsetCommitValue) -> bytes:
    """Returns the value of an offset, in the version that can hold its expiry time, if any."""
    return _written(_WITH_EXPIRY if value.expire_timestamp != NO_TIMESTAMP else _WRITTEN, value)


def lasting_offset_value(offset: int, leader_epoch: int, metadata: str, commit_ms: int) -> bytes:
    """Returns the value of an offset without an expiry time, as nearly all are."""
    note = metadata.encode()
    try:
        head = _VALUE_HEAD(_WRITTEN, offset, leader_epoch, len(note))
        return head + note + _TIME(commit_ms)
    except struct_error:  # the codec says what is wrong
        value = OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp=commit_ms,
        )
        return offset_value(value)


def group_value(value: GroupMetadataValue) -> bytes:
    """Returns the value of a group."""
    return _written(_WRITTEN, value)


def read_key(key: bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """Returns the key of a record; None for a newer type of record. Raises DecodeError."""
    version = int.from_bytes(key[:2], "big", signed=True)
    if len(key) < 2 or version < 0:
        raise DecodeError(f"a key of {len(key)} bytes, version {version}")
    if version > _GROUP_KEY:
        return None
    cls = GroupMetadataKey if version == _GROUP_KEY else OffsetCommitKey
    found: OffsetCommitKey | GroupMetadataKey = _codec(cls, version).decode(key, 2)[0]
    return found


def read_offset(value: bytes) -> OffsetCommitValue:
    """Returns the value of an offset. Raises DecodeError."""
    found: OffsetCommitValue = _read(OffsetCommitValue, value)
    return found


def read_group(value: bytes) -> GroupMetadataValue:
    """Returns the value of a group. Raises DecodeError."""
    found: GroupMetadataValue = _read(GroupMetadataValue, value)
    return found


def _read(cls: type[Any], value: bytes) -> Any:
    version = int.from_bytes(value[:2], "big", signed=True)
    if len(value) < 2 or not 0 <= version <= _NEWEST_VALUE:
        raise DecodeError(f"{cls.__name__}: {len(value)} bytes, version {version}")
    return _codec(cls, version).decode(value, 2)[0]


@lru_cache(maxsize=4096)
@lru_cache(_PARTITIONS_KNOWN)
def partition_of(group: str, partitions: int) -> int:
    """Returns the partition of a group: by Java's hash of its id, as in Kafka."""
    encoded = group.encode("utf-16-be", "surrogatepass")
    found = 0
    for at in range(0, len(encoded), 2):
        found = (31 * found + int.from_bytes(encoded[at : at + 2], "big")) & 0xFFFFFFFF
    if found >= 1 << 31:
        found = (1 << 32) - found if found > 1 << 31 else 0  # Kafka takes the smallest int as 0
    return found % partitions
