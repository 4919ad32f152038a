"""The primitives of every message: functions that the generated codecs call at run time.

Variable-length integers are unsigned, seven bits a byte, lowest first, at most five bytes
(KIP-482). A tag section is a count, then (tag, size, value) for each tag. No length is trusted.
Reading past the end of the buffer is an IndexError or a struct.error, which the codec turns into
`DecodeError`. A length that exceeds the buffer is a `DecodeError` before memory of that size is
allocated.
"""

from __future__ import annotations

from typing import Final, TypeAlias
from uuid import UUID, SafeUUID

Buffer: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID: Final = UUID(int=0)
ELEMENTS_MAX: Final = 1_000_000
"""The limit of array elements in one response; that of a request is declared with its API.

Three bytes on the wire can become an object of 150 bytes, so a frame of 100 MB could otherwise fill
5 GB.
"""
TAGS_MAX: Final = 127
"""The limit of tagged fields in one tag section; each also counts as an array element of its message."""
TAG_BYTES_MAX: Final = 65_536
"""The limit of bytes in one tagged field that is not known."""
STRING_MAX: Final = 32_767
"""The limit of bytes in a string. Flexible versions could carry more, but other versions could not."""
_UUIDS_MAX: Final = 4096


class DecodeError(ValueError):
    """Bytes that are not a valid message: truncated, a wrong length, bad UTF-8 ..."""


class TooMuch(DecodeError):
    """A message that is valid and over a limit: more elements or tagged fields than it may have."""


class EncodeError(ValueError):
    """A message that the version cannot carry: an unknown field, a value out of range."""


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Reads an unsigned varint; returns (value, position after it).

    Raises DecodeError after five bytes without an end, IndexError at the end of the buffer.
    """
    # The loop is unrolled, because a loop takes twice as long and every record set of a flexible
    # request begins with a varint.
    byte = buffer[position]
    if byte < 128:
        return byte, position + 1
    value = byte & 127
    byte = buffer[position + 1]
    if byte < 128:
        return value | byte << 7, position + 2
    value |= (byte & 127) << 7
    byte = buffer[position + 2]
    if byte < 128:
        return value | byte << 14, position + 3
    value |= (byte & 127) << 14
    byte = buffer[position + 3]
    if byte < 128:
        return value | byte << 21, position + 4
    value |= (byte & 127) << 21
    byte = buffer[position + 4]
    if byte < 128:
        return value | byte << 28, position + 5
    raise DecodeError("a varint is longer than 5 bytes")


def write_uvarint(value: int) -> bytes:
    """Returns `value` (0 to 2**32 - 1) as an unsigned varint."""
    if value < 0:
        raise EncodeError(f"{value} cannot be a length")
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    return bytes((value & 127 | 128,)) + write_uvarint(value >> 7)


class Uvarints(dict[int, bytes]):
    """The unsigned varint of any int by subscript; those of one byte are precomputed."""

    def __missing__(self, value: int) -> bytes:
        """Returns a varint that is not precomputed."""
        return write_uvarint(value)


UVARINTS: Final = Uvarints((value, bytes((value,))) for value in range(128))


def skip_tags(buffer: Buffer, position: int, limit: int) -> int:
    """Skips the tag section at `position`; returns the position after it.

    Raises DecodeError for more than TAGS_MAX fields, or one of more than TAG_BYTES_MAX bytes.
    """
    count, position = read_uvarint(buffer, position)
    if count > TAGS_MAX:
        raise too_many_tags(count)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > limit:
            raise DecodeError(f"a tagged field of {size} bytes ends past the buffer")
        if size > TAG_BYTES_MAX:
            raise too_long_tag(size)
    return position


_uuids: dict[bytes, UUID] = {bytes(16): ZERO_UUID}
_set_int = UUID.__dict__["int"].__set__
_set_is_safe = UUID.__dict__["is_safe"].__set__


def read_uuid(data: bytes) -> UUID:
    """Returns the UUID of 16 bytes.

    UUIDs are cached, because a broker sees the same few topic ids again and again. The cache is
    cleared when it is full, so that a client that invents ids cannot grow it. Setting the two slots
    directly takes a third of the time of the constructor.
    """
    known = _uuids.get(data)
    if known is not None:
        return known
    made = object.__new__(UUID)
    _set_int(made, int.from_bytes(data, "big"))
    _set_is_safe(made, SafeUUID.unknown)
    if len(_uuids) >= _UUIDS_MAX:
        _uuids.clear()
    _uuids[data] = made
    return made


def bad_length(field: str, length: int, remaining: int) -> DecodeError:
    """Returns the error for a length or count of `field` that is null, negative or too large."""
    if length == -1:
        return DecodeError(f"{field} is null")
    if length < 0:
        return DecodeError(f"{field} has the length {length}")
    return DecodeError(f"{field} claims {length} but only {remaining} bytes remain")


def too_long(field: str, length: int) -> DecodeError:
    """Returns the error for a string that is too long for versions that are not flexible."""
    return DecodeError(f"{field} has {length} bytes: a string has at most {STRING_MAX}")


def too_many_elements(limit: int) -> DecodeError:
    """Returns the error for a message that would take too much memory."""
    return TooMuch(f"there are more than {limit} array elements")


def too_many_tags(count: int) -> DecodeError:
    """Returns the error for a tag section with more fields than TAGS_MAX."""
    return TooMuch(f"a tag section has {count} fields: it may have {TAGS_MAX}")


def too_long_tag(size: int) -> DecodeError:
    """Returns the error for an unknown tagged field of more bytes than TAG_BYTES_MAX."""
    return TooMuch(f"a tagged field has {size} bytes: it may have {TAG_BYTES_MAX}")


def bad_tag(field: str, size: int) -> DecodeError:
    """Returns the error for a tagged field whose value does not have the stated size."""
    return DecodeError(f"the tagged field {field} does not fill its {size} bytes")


def no_place(message: str, field: str, version: int) -> EncodeError:
    """Returns the error for a set field that the version lacks and that is not ignorable."""
    return EncodeError(f"{message} v{version} has no place for {field}")
