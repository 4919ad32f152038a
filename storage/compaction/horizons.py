"""When the next tombstones and markers of a clean section may go, so that a cleaning is due.

In format 2 the horizon is in the batch. Formats 0 and 1 have no place for one: the horizon of their
tombstones is in memory, and after a start it counts from when it was first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.records import survivors
from tidelog.storage.time.timestamp import earlier
from tidelog.storage.time.tombstones import counted_horizon, delete_horizon

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.storage.segment.log_file import Found


class Horizons(NamedTuple):
    """The first horizons that no cleaning has met; None where there is nothing of the kind."""

    stored_ms: int | None = None
    old_formats_ms: int | None = None

    def with_(self, other: Horizons) -> Horizons:
        """Returns the horizons of two parts of the section together."""
        return Horizons(*map(earlier, self, other))

    def counted(self, late: tuple[int, int] | None, delete_retention_ms: int) -> Horizons:
        """Returns what they count as after a clock was behind (`counted_horizon`)."""
        return Horizons(*(counted_horizon(each, late, delete_retention_ms) for each in self))

    @property
    def first_ms(self) -> int | None:
        """The earlier one."""
        return earlier(self.stored_ms, self.old_formats_ms)


NONE = Horizons()


def read(batches: Iterable[Found], now_ms: int, delete_retention_ms: int) -> Horizons:
    """Returns the horizons of a clean section. Raises OSError and CorruptMessage.

    What lies before the others was cleaned no later than they, so the first that is stored is it.
    """
    found = NONE
    for each in batches:
        batch = each.batch
        is_old = batch.magic < 2
        if found[is_old] is not None or not (is_old or batch.delete_horizon_ms is not None):
            continue
        filtered = survivors.look_at_all(each.buffer, batch)[1]
        if is_old and filtered.has_tombstone:
            found = found._replace(old_formats_ms=delete_horizon(now_ms, delete_retention_ms))
        elif filtered.has_tombstone or (batch.is_control and filtered.kept):
            found = found._replace(stored_ms=batch.delete_horizon_ms)
        if None not in found:
            break
    return found
