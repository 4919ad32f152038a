"""What happens to the files of a log that is not open: damaged indexes, and another program's hand."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import crc32c

from tidelog.storage.log.times import partition_times

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

INDEXES = {".index", ".timeindex", ".negativetimes"}
TOLD = (-1, 0, 5, 10**6, 2**61, -9)


def indexes(directory: Path, pick: random.Random, *, within_entries: bool = True) -> None:
    """Remove, cut or zero some of the files that can be made again.

    Recovery believes the last entry that was durable, for a crash leaves no half of that one; zeros
    at the end of the last segment's index are what a Kafka that was killed leaves, not we.
    """
    last_index = max(directory.glob("*.log")).with_suffix(".index")
    for path in sorted(directory.glob("*index")):
        data = path.read_bytes()
        cut = pick.randint(0, len(data))
        if not within_entries:
            cut -= cut % (8 if path.suffix == ".index" else 12)
        match pick.randrange(6):
            case 0:
                path.unlink()
            case 1:
                path.write_bytes(data[:cut])
            case 2:
                zeros = 0 if path == last_index and not within_entries else len(data) - cut
                path.write_bytes(data[:cut] + bytes(zeros))


def hand_over(directory: Path, pick: random.Random) -> None:
    """Leave a log as another program would: without our files, and with headers that lie."""
    (directory / partition_times.FILE_NAME).unlink(missing_ok=True)
    for path in sorted(directory.iterdir()):
        if path.suffix == ".appendtimes" or (path.suffix in INDEXES and pick.random() < 0.3):
            path.unlink()
        elif path.suffix == ".log":
            path.write_bytes(lie(path.read_bytes(), pick))


def lie(read: bytes, pick: random.Random) -> bytes:
    """Give batches of formats 1 and 2 another largest time, with a checksum that holds."""
    data = bytearray(read)
    for position, size, magic in list(headers(data)):
        attributes = data[position + 22] if magic == 2 else data[position + 17]
        if attributes & 8 or pick.random() < 0.5:
            continue  # with LogAppendTime the header's time is the records'
        told = pick.choice(TOLD)
        if magic == 2:
            struct.pack_into(">q", data, position + 35, told)
            checksum = crc32c.crc32c(bytes(data[position + 21 : position + size]))
            struct.pack_into(">I", data, position + 17, checksum)
        elif magic == 1 and attributes & 7:
            struct.pack_into(">q", data, position + 18, told)
            checksum = zlib.crc32(bytes(data[position + 16 : position + size]))
            struct.pack_into(">I", data, position + 12, checksum)
    return bytes(data)


def headers(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Walk over whole batches: (position, size, format)."""
    position = 0
    while len(data) - position >= 26:
        size = 12 + struct.unpack_from(">i", data, position + 8)[0]
        if position + size > len(data):
            return
        yield position, size, data[position + 16]
        position += size
