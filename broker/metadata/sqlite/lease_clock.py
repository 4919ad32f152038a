"""The clock by which leases end: the same for all processes of one machine, and never set back.

The clock is CLOCK_MONOTONIC, which stands still while the machine is suspended: after a night's sleep no
lease is over that its holder could not renew. A reading is valid on one boot only, so the clock has the
name of the boot. A process in a time namespace sees this clock with an offset (time_namespaces(7)), which
is subtracted.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.clock import SystemClock, machine_boot_id
from tidelog.broker.metadata.store import MetadataError

if TYPE_CHECKING:
    from collections.abc import Callable

_SELF = Path("/proc/self")


class LeaseClock(NamedTuple):
    """Milliseconds since a start, and the name of that start: clocks of one name agree."""

    name: str
    now_ms: Callable[[], int]


def machine_lease_clock() -> LeaseClock:
    """Returns the clock of this machine's leases.

    Raises MetadataError in a process whose offset is unknown, because it has made a time namespace
    for its children.
    """
    offset_ms = _namespace_offset_ms()
    steady_ms = SystemClock().steady_ms
    return LeaseClock(machine_boot_id(), lambda: steady_ms() - offset_ms)


def _namespace_offset_ms() -> int:
    """Returns by how much this process's monotonic clock is ahead of the machine's."""
    try:
        if (_SELF / "ns/time").readlink() != (_SELF / "ns/time_for_children").readlink():
            raise MetadataError("leases need one time namespace for a broker and its children")
        lines = (_SELF / "timens_offsets").read_text().splitlines()
    except OSError:  # a system without time namespaces
        return 0
    for name, seconds, nanoseconds in map(str.split, lines):
        if name == "monotonic":
            return int(seconds) * 1000 + int(nanoseconds) // 1_000_000
    return 0
