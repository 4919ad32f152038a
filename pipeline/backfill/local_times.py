"""Times of a zone as instants, over all of int64 milliseconds.

Python's zoneinfo knows the offsets, from the mean time of a place before there were zones to the rules
that hold today for years to come. Its years end at 1 and 9999; beyond them the offset is that of the
same day some multiples of 400 years nearer, after which the calendar repeats.
"""

from __future__ import annotations

import zoneinfo
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a local time has no zone yet
_PERIOD_MS: Final = 146_097 * 86_400_000  # 400 years
_LOW_MS: Final = -62_135_596_800_000  # year 1
_HIGH_MS: Final = 253_370_764_800_000  # year 9999


def instants_of(local_ms: Iterable[int | None], zone: str) -> list[int | None]:
    """Returns the instants of local times in ms; None stays None.

    Of an hour that occurs twice the first is meant. A time that the clock skipped has the offset from
    before the change, as in Java.
    """
    rules = zoneinfo.ZoneInfo(zone)
    return [None if one is None else one - _offset_ms(one, rules) for one in local_ms]


def _offset_ms(local_ms: int, rules: zoneinfo.ZoneInfo) -> int:
    near_ms = local_ms
    if local_ms < _LOW_MS:
        near_ms += -((local_ms - _LOW_MS) // _PERIOD_MS) * _PERIOD_MS
    elif local_ms >= _HIGH_MS:
        near_ms -= ((local_ms - _HIGH_MS) // _PERIOD_MS + 1) * _PERIOD_MS
    offset = rules.utcoffset(_EPOCH + timedelta(milliseconds=near_ms))
    assert offset is not None
    return offset // timedelta(milliseconds=1)
