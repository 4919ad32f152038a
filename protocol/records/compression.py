"""Compresses and decompresses the records of batches, with a limit on the decompressed size.

The codecs are imported when the first compressed batch comes (`codecs.py`): a broker starts without their
libraries.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from tidelog.protocol.wire import Buffer

# The limit for a stored batch. The broker wrote nothing that exceeds `produce_limit`.
STORED_LIMIT = 1 << 30
_LEAST_LIMIT = 64 << 20


@functools.cache
def _codecs() -> ModuleType:
    from tidelog.protocol.records import codecs

    return codecs


def produce_limit(max_message_bytes: int) -> int:
    """Returns the limit in bytes for a decompressed produced batch: 100 times the largest batch.

    The limit is at least 64 MiB, so that a small `max_message_bytes` does not forbid text that
    compresses well. It is at most STORED_LIMIT, so that every accepted batch can be read again.
    """
    return min(max(_LEAST_LIMIT, 100 * max_message_bytes), STORED_LIMIT)


def decompress(codec: int, data: Buffer, magic: int, limit: int = STORED_LIMIT) -> Buffer:
    """Decompresses the records of a batch of format `magic`; `codec` NONE returns `data` itself.

    Raises CorruptMessage for data that is not of that codec or is truncated, and UnpackedTooLarge
    for data that exceeds `limit` bytes when decompressed. Raises UnsupportedCompressionType for a
    number that is not a codec.
    """
    if not codec:
        return data
    unpacked: Buffer = _codecs().decompress(codec, data, magic, limit)
    return unpacked


def compress(codec: int, data: Buffer, magic: int) -> bytes:
    """Compresses the records of a batch of format `magic`, as Kafka's Java code does.

    Raises UnsupportedCompressionType for an unknown number, and for zstd in formats 0 and 1.
    """
    if not codec:
        return bytes(data)
    packed: bytes = _codecs().compress(codec, data, magic)
    return packed
