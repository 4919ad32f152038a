"""Numbers with a fraction as texts, as Java writes them (`Double.toString`, `Float.toString`).

Before version 19 Java wrote more digits of some numbers than name them (JDK-4511638), and which
version runs Spark is not known here. So only numbers are written of which all versions write the
same digits, the fewest that name them, as Python and numpy do: those without an exponent, and
doubles of few digits that are not extreme.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

import numpy as np

from tidelog.pipeline.backfill.in_process.errors import NeedsSpark

_PLAIN: Final = (1e-3, 1e7)
"""Java writes these without an exponent."""
_ORDINARY: Final = (1e-20, 1e15)
_FEW_DIGITS: Final = 15
"""Decimals of so many digits are all different doubles."""


def text_of_double(number: float) -> str:
    """Returns a double as Java writes it. Raises NeedsSpark where its versions differ."""
    return _text(number, repr(abs(number)), is_double=True)


def text_of_float(number: float) -> str:
    """Returns a float of 32 bits as Java writes it. Raises NeedsSpark where its versions differ."""
    return _text(number, str(np.float32(abs(number))), is_double=False)


def _text(number: float, shortest: str, *, is_double: bool) -> str:
    """Returns the text of a number; `shortest` is that of its size in the fewest digits."""
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    size = abs(number)
    if math.isnan(number):
        return "NaN"
    if math.isinf(size):
        return f"{sign}Infinity"
    if size == 0:
        return f"{sign}0.0"
    _, figures, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)
    point = len(figures) + exponent  # where the decimal point is among the digits
    digits = "".join(map(str, figures)).rstrip("0")
    if _PLAIN[0] <= size < _PLAIN[1]:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    is_few = is_double and len(digits) <= _FEW_DIGITS
    if not is_few or not _ORDINARY[0] <= size < _ORDINARY[1]:
        raise NeedsSpark(f"versions of Java write {sign}{shortest} differently")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
