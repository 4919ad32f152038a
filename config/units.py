"""Sizes as people write them, and the values of settings that may have a unit.

A size is an int of bytes. Units are of 1024: `64k`, `16MiB`, `1g`. `MB` could mean 1,000,000 or
1,048,576, and is refused. Every refusal is a ValueError of one sentence.
"""

from __future__ import annotations

import re

from tidelog.config.instants import parse_duration

_SIZE = re.compile(r"([0-9]{1,19})\s*([kmgt]?)(i?b)?", re.ASCII | re.IGNORECASE)
_WITH_UNIT = re.compile(r"-?[0-9].*[a-z]", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SPANS_MS = {"ms": 1, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000}
_SIZES = (".bytes", ".bytes.per.second", ".throttled.rate", "_byte_rate")


def parse_size(text: str) -> int:
    """Returns a number of bytes: `1000`, `64k`, `16MiB`, `1g`. Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a size: write 64MiB, or bytes")
    number, unit, suffix = found[1], found[2].lower(), (found[3] or "").lower()
    if unit and suffix == "b":
        raise ValueError(
            f"{text!r}: units of 1000 or of 1024? write {number}{unit.upper()}iB for 1024, or bytes"
        )
    return int(number) << _POWERS[unit]


def in_its_unit(name: str, value: str) -> str:
    """Returns a setting's value as Kafka writes it: `7d` of retention.ms is 604800000.

    A value without a unit stays, and so does every one of a setting whose name says none: what the setting
    expects is said by its own error. Raises ValueError for another unit than that of the setting.
    """
    text = value.strip()
    if not _WITH_UNIT.fullmatch(text):
        return value
    if name.endswith(_SIZES):
        return str(parse_size(text))
    unit = name.rpartition(".")[2]
    if unit not in _SPANS_MS:
        return value
    number, rest_ms = divmod(parse_duration(text), _SPANS_MS[unit])
    if rest_ms:
        raise ValueError(f"{text!r} is not a whole number of {unit}")
    return str(number)
