"""What lies on the disk, and what a consumer sees, in words: no code of ours takes the bytes apart."""

from __future__ import annotations

import gzip
import struct
import warnings
from zlib import crc32

import lz4.frame
from crc32c import crc32c

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, at import
    from kafka.record import MemoryRecords

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
CODEC_NAMES = {number: name for name, number in CODECS.items()}


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def unpacked(codec, data):
    if codec == 1:
        return gzip.decompress(data)
    if codec == 3:
        return lz4.frame.decompress(bytes(data))
    return data


def shown(timestamp):
    timestamp = (timestamp + 2**63) % 2**64 - 2**63  # base plus delta wraps, as in Java
    return "none" if timestamp == -1 else str(timestamp)


def type_of(attributes):
    return "LogAppendTime" if attributes & 8 else "CreateTime"


def codec_of(attributes):
    return "" if not attributes & 7 else " " + CODEC_NAMES[attributes & 7]


def describe_v2(data, at, size):
    base, _, epoch, _, crc, attributes, delta, first, largest, pid, _, seq, count = (
        struct.unpack_from(">qiibIhiqqqhii", data, at)
    )
    assert crc == crc32c(data[at + 21 : at + size]), "a wrong CRC on disk"
    body, position, own = unpacked(attributes & 7, data[at + 61 : at + size]), 0, []
    for _ in range(count):
        length, position = varint(body, position)
        own.append(shown(first + varint(body, position + 1)[0]))
        position += length
    text = f"{base}-{base + delta} format 2{codec_of(attributes)} {type_of(attributes)}"
    text += f" max={shown(largest)} own=[{', '.join(own)}]"
    if pid >= 0:
        text += f" pid={pid} seq={seq}"
    assert epoch == 0
    return text


def messages(data):
    at = 0
    while at < len(data):
        offset, size = struct.unpack_from(">qi", data, at)
        yield offset, data[at + 12 : at + 12 + size]
        at += 12 + size


def describe_message(offset, message):
    crc, magic, attributes = struct.unpack_from(">IBb", message)
    assert crc == crc32(message[4:]), "a wrong CRC on disk"
    text = f"{offset} format {magic}{codec_of(attributes)}"
    if magic:
        text += f" {type_of(attributes)} {shown(struct.unpack_from('>q', message, 6)[0])}"
    if attributes & 7:
        at = 6 + 8 * magic
        (key_size,) = struct.unpack_from(">i", message, at)
        inner = unpacked(attributes & 7, message[at + 8 + max(key_size, 0) :])
        found = []
        for inner_offset, inner_message in messages(inner):
            time = f": {shown(struct.unpack_from('>q', inner_message, 6)[0])}" if magic else ""
            bit = " bit" if magic and inner_message[5] & 8 else ""
            found.append(f"{inner_offset}{time}{bit}")
        text += f" inside=[{', '.join(found)}]"
    return text


def describe(data):
    at, lines = 0, []
    while at < len(data):
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        if data[at + 16] == 2:
            lines.append(describe_v2(data, at, size))
        else:
            offset = struct.unpack_from(">q", data, at)[0]
            lines.append(describe_message(offset, data[at + 12 : at + size]))
        at += size
    return lines


def consumed(data):
    """What kafka-python's consumer makes of the bytes."""
    lines, found = [], MemoryRecords(bytes(data))
    while (batch := found.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            if record.timestamp is None or record.timestamp_type is None:
                lines.append(f"{record.offset}: none")
            else:
                kind = ("CreateTime", "LogAppendTime")[record.timestamp_type]
                lines.append(f"{record.offset}: {shown(record.timestamp)} {kind}")
    return lines
