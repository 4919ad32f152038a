"""One share of the memory: bytes are reserved first come, first served.

`take` reserves at once or not at all. `wait` reserves after all earlier waiters, when there is room. `add`
counts bytes that are in memory already, even beyond the limit: its callers keep them few.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class MemoryWait:
    """A waiter for `size_bytes`; `granted` is called once they are reserved."""

    __slots__ = ("granted", "held_bytes", "size_bytes")

    def __init__(self, size_bytes: int, granted: Callable[[], object], held_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.granted = granted
        self.held_bytes = held_bytes


class Share:
    """Bytes of memory for one use, of which at most `limit_bytes` are reserved."""

    __slots__ = (
        "_held_waiting",
        "_largest_waiting",
        "_waiting",
        "limit_bytes",
        "refused",
        "reserved_bytes",
        "waited",
    )

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.reserved_bytes = 0
        self._held_waiting = 0  # bytes that the waiters hold meanwhile
        self._largest_waiting = 0  # the most that one of them has waited for
        self.waited = 0  # the number of reservations that had to wait
        self.refused = 0  # the number of reservations that were refused, or lost the connection
        self._waiting: deque[MemoryWait] = deque()

    @property
    def waiting(self) -> int:
        """The number of waiters."""
        return len(self._waiting)

    @property
    def free_bytes(self) -> int:
        """The bytes that are not reserved."""
        return max(0, self.limit_bytes - self.reserved_bytes)

    def take(self, size_bytes: int) -> bool:
        """Reserves bytes and returns True, unless others wait or there is no room."""
        if self._waiting or self.reserved_bytes + size_bytes > self.limit_bytes:
            return False
        self.reserved_bytes += size_bytes
        return True

    def may_wait(self, size_bytes: int, held_bytes: int) -> bool:
        """Returns whether a waiter for `size_bytes` may hold `held_bytes` meanwhile, without a deadlock.

        Each waiter must fit into the share beside the bytes that all waiters hold.
        """
        largest = max(size_bytes, self._largest_waiting)
        return self._held_waiting + held_bytes + largest <= self.limit_bytes

    def wait(
        self, size_bytes: int, granted: Callable[[], object], *, held_bytes: int = 0
    ) -> MemoryWait:
        """Reserves bytes as soon as there is room, after all earlier waiters, and then calls `granted`.

        The caller holds `held_bytes` of the share until then. Raises ValueError for more bytes than the
        limit, which would wait for ever.
        """
        if size_bytes > self.limit_bytes:
            raise ValueError(f"{size_bytes} bytes are more than the share of {self.limit_bytes}")
        wait = MemoryWait(size_bytes, granted, held_bytes)
        self._waiting.append(wait)
        self._held_waiting += held_bytes
        self._largest_waiting = max(size_bytes, self._largest_waiting)
        self.waited += 1
        return wait

    def leave(self, wait: MemoryWait) -> bool:
        """Cancels a wait, and grants bytes to the waiters behind it.

        Returns False if the bytes were granted already: then they have to be released.
        """
        if wait not in self._waiting:
            return False
        self._waiting.remove(wait)
        self._held_waiting -= wait.held_bytes
        self._grant()
        return True

    def add(self, size_bytes: int) -> None:
        """Counts bytes that are in memory already, whether or not there is room."""
        self.reserved_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Releases bytes, and grants them to the waiters, in their order."""
        self.reserved_bytes -= size_bytes
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            if self.reserved_bytes + first.size_bytes > self.limit_bytes:
                return
            self._waiting.popleft()
            self._held_waiting -= first.held_bytes
            self.reserved_bytes += first.size_bytes
            first.granted()
        self._largest_waiting = 0
