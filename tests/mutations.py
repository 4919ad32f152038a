"""Bytes that strangers send: honest ones bent in the ways that find what a reader takes on trust."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tidelog.protocol.wire import write_uvarint

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

EVIL = (
    [struct.pack(">h", value) for value in (-1, -2, 0, 1, 255, 32767, -32768)]
    + [struct.pack(">i", value) for value in (-1, -2, 0, 1, 2, 1000, 2**31 - 1, -(2**31))]
    + [struct.pack(">q", value) for value in (-1, -2, 0, -(2**63), 2**63 - 1)]
    + [write_uvarint(value) for value in (0, 1, 127, 128, 2**14, 2**28, 2**32 - 1)]
    + [b"\xff" * 5, b"\xff" * 10, b"\x80" * 10, b"\xc3\x28", b"\x00" * 8]
)


def mutate(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """The data with one to sixteen mutations; some of them bring a part of one of the others in."""
    bent = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(bent) + 1)
        kind = rng.randrange(8)
        if kind == 0:
            bent[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1 and at < len(bent):
            bent[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            evil = rng.choice(EVIL)
            bent[at : at + len(evil)] = evil
        elif kind == 3:
            bent[at:at] = rng.choice(EVIL)
        elif kind == 4:
            del bent[at : at + rng.randrange(1, 20)]
        elif kind == 5:
            del bent[at:]
        elif kind == 6:
            place = rng.randrange(len(bent) + 1)
            bent[place:place] = bent[at : at + rng.randrange(1, 60)]
        else:
            other = rng.choice(others)
            start = rng.randrange(len(other))
            bent[at : at + 30] = other[start : start + rng.randrange(1, 60)]
    return bytes(bent)
