"""Brokers that are stopped (SIGSTOP) while they hold the lock of the metadata.

All other brokers wait for that lock, and lose their sessions. Nothing but the end of the process frees
it, or that it goes on. Once its lease is over it may be ended: it leads nothing any more. Before, it
may still go on in time. A broker that is stopped without the lock is in nobody's way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.liveness.lock_holders import holders, is_stopped

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Stalls:
    """Watches the processes of brokers; the kernel tells their parent when one stops or goes on."""

    def __init__(self, metadata: Path, lease_s: float) -> None:
        """`metadata` is the file that the brokers share, `lease_s` how long their sessions last."""
        self._metadata, self._lease_s = metadata, lease_s
        self._since_s: dict[int, float] = {}  # when a process was first seen stopped
        self._judged: set[int] = set()  # those that hold no lock, and can take none

    def look(self, pids: Iterable[int], now_s: float) -> list[int]:
        """Returns those of the processes that have to be ended. `now_s` is monotonic."""
        stopped = {pid for pid in pids if is_stopped(pid)}
        self._since_s = {pid: self._since_s.get(pid, now_s) for pid in stopped}
        self._judged &= stopped
        due = [
            pid
            for pid, since_s in self._since_s.items()
            if now_s >= since_s + self._lease_s and pid not in self._judged
        ]
        if not due:
            return []
        self._judged.update(due)
        holding = {each.pid for each in holders(self._metadata)}
        return [pid for pid in due if pid in holding]

    def next_look_s(self) -> float | None:
        """Returns when the lease of a stopped process will be over; None if none is to be looked at."""
        times = [since for pid, since in self._since_s.items() if pid not in self._judged]
        return min(times) + self._lease_s if times else None
