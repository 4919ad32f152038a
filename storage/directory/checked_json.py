"""Small files of a log directory that hold one line of JSON with its checksum.

    1                              the version
    crc32 of the third line        8 hexadecimal digits
    {"serial": n, ...}             one line of JSON

An error says what is wrong with the bytes, and the caller which file it is.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

_VERSION = "1"


class CheckedJsonError(ValueError):
    """A file does not hold what its format promises."""


def packed(fields: dict[str, Any]) -> bytes:
    """Returns the bytes of a file."""
    body = json.dumps(fields).encode()
    return b"%s\n%08x\n%s\n" % (_VERSION.encode(), zlib.crc32(body), body)


def unpacked(data: bytes, about: str) -> dict[str, Any]:
    """Returns the fields of a file that is about something; raises CheckedJsonError."""
    lines = data.splitlines()
    if len(lines) != 3 or lines[0].decode(errors="replace") != _VERSION:
        raise CheckedJsonError(f"it is not a file about {about} of version {_VERSION}")
    if lines[1] != b"%08x" % zlib.crc32(lines[2]):
        raise CheckedJsonError("its checksum is wrong")
    try:
        fields: dict[str, Any] = json.loads(lines[2])
    except ValueError as error:
        raise mismatched(error) from error
    return fields


def mismatched(error: Exception) -> CheckedJsonError:
    """Returns the error for fields that are missing, or of another kind."""
    return CheckedJsonError(f"it does not hold what it should: {error!r}")
