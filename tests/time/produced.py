"""What a producer sends, by the words of a script: right batches, and some that no library would build."""

from __future__ import annotations

import struct
from zlib import crc32

from crc32c import crc32c

from tests.time.scripts import times_in
from tests.time.stored_bytes import CODECS
from tidelog.protocol.records.batch import Record, build


def produced(options):
    """Build what a producer sends."""
    magic, stamps = int(options.get("magic", 2)), times_in(options["ts"])
    headers = ((b"h", b"1"),) if "headers" in options else ()
    key = None if options.get("key") == "null" else b"k"
    key = b"\0\0\0\1" if "control" in options else key  # the end of a transaction
    keys = [key] * len(stamps)
    if "keys" in options:
        keys = [each.encode() for each in options["keys"].strip("[]").split(",")]
    kind = {}
    if options.get("bit") == "LogAppendTime":
        kind = {"timestamp_type": 1, "log_append_time": int(options.get("header", stamps[0]))}
    if "pid" in options:
        kind |= {
            "producer_id": int(options["pid"]),
            "producer_epoch": 0,
            "base_sequence": int(options.get("seq", 0)),
            "is_transactional": "transactional" in options,
            "is_control": "control" in options,
        }
    data = bytearray(
        build(
            [Record(i, t, keys[i], b"v%d" % i, headers) for i, t in enumerate(stamps)],
            magic=magic,
            compression=CODECS[options.get("codec", "none")],
            **kind,
        )
    )
    if "header" in options and magic == 2:
        struct.pack_into(">q", data, 35, int(options["header"]))
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
    if "header" in options and magic == 1:
        struct.pack_into(">q", data, 18, int(options["header"]))
        struct.pack_into(">I", data, 12, crc32(data[16:]))
    return bytes(data)


def with_delta(first, delta):
    """A batch of one record whose time is `first` plus the varint `delta`, however that is written."""
    body = b"\0" + delta + b"\0\x02k\x02v\0"
    record = bytes([2 * len(body)]) + body
    tail = struct.pack(">hiqqqhii", 0, 0, first, first, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail
