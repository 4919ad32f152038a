"""Which broker sends a request, and the proof of it: a tag of ours in the header of flexible versions.

The value of the tag has the sender's id (int32), its broker epoch (int64), and the proof (16 bytes), which
names the receiver too (decision 44). Kafka numbers its own tags 0, 1, 2, ... without a gap; Kafka, and older
versions of tidelog, skip this one.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.protocol.wire import UVARINTS, read_uvarint, skip_tags

if TYPE_CHECKING:
    from tidelog.protocol.wire import Buffer

SENDER_TAG: Final = 0x746C  # the letters "tl"
PROOF_BYTES: Final = 16
NO_TAGS: Final = b"\0"

_VALUE = Struct(f">iq{PROOF_BYTES}s")
_HEAD: Final = b"\1\xec\xe8\1" + UVARINTS[_VALUE.size]  # one tag, its number, and its size


class Sender(NamedTuple):
    """The broker that a request claims to come from, in the session with this broker epoch."""

    broker: int
    epoch: int
    proof: bytes


def written_tags(sender: Sender) -> bytes:
    """Returns the tags of the header of a broker's request."""
    return _HEAD + _VALUE.pack(*sender)


def read_tags(buffer: Buffer, position: int) -> tuple[Sender | None, int]:
    """Returns the sender in the tags at a position, None if there is none, and the position after them.

    Raises DecodeError and IndexError for tags that are not well formed, and TooMuch for too many.
    """
    value_at = position + len(_HEAD)
    end = value_at + _VALUE.size
    if buffer[position:value_at] == _HEAD and end <= len(buffer):  # as brokers write it
        return Sender(*_VALUE.unpack_from(buffer, value_at)), end
    end = skip_tags(buffer, position, len(buffer))
    count, position = read_uvarint(buffer, position)
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        if tag == SENDER_TAG and size == _VALUE.size:
            return Sender(*_VALUE.unpack_from(buffer, position)), end
        position += size
    return None, end
