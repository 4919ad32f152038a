"""Sizes as people write them, and the values of settings that may have a unit.

A size is an int of bytes. Units are of 1024: `64k`, `16MiB`, `1g`. `MB` could mean 1,000,000 or
1,048,576, and is refused. Every refusal is a ValueError of one sentence.
"""

from __future__ import annotations

import re

from tidelog.config.instants import parse_duration

_SIZE = re.compile(r"([0-9]{1,19})\s*([kmgt]?)(i?b)?", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SPANS_MS = {"ms": 1, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000}
_SIZES = (".bytes", ".bytes.per.second", ".throttled.rate", "_byte_rate")


def parse_size(text: str) -> int:
    """Returns a number of bytes: `1000`, `64k`, `16MiB`, `1g`. Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size: write 64MiB, or bytes")
    number, unit, suffix = found[1], found[2].lower(), (found[3] or "").lower()
    if unit and suffix == "b":
        raise ValueError(
            f"{text!r}: of 1000 or of 1024? write {number}{unit.upper()}iB for 1024, or bytes"
        )
    return int(number) << _POWERS[unit]


def in_its_unit(name: str, value: str) -> str:
    """Returns a setting's value as Kafka writes it: `7d` of retention.ms is 604800000.

    Where the name says no unit, or the value is none of it, the value stays: the error of the setting says
    what it expects.
    """
    try:
        if name.endswith(_SIZES):
            return str(parse_size(value))
        each_ms = _SPANS_MS.get(name.rpartition(".")[2])
        if each_ms is not None and value.strip()[-1:].isalpha():
            number, rest_ms = divmod(parse_duration(value), each_ms)
            return value if rest_ms else str(number)
    except ValueError:
        pass
    return value
