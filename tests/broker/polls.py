"""How long an event loop is held: what is done from one poll of its sockets to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Polls:
    """The longest hold of a loop of asyncio, as `now` measures it: CPU time, or a count of work."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        """Watches from now on; to be called on the loop."""
        self.longest = 0.0
        self.on_longest: Callable[[], None] | None = None
        self.on_poll: Callable[[], None] | None = None
        self._now = now
        self._began: float | None = None
        selector: Any = loop._selector  # type: ignore[attr-defined]
        self._select = selector.select
        selector.select = self._poll

    def forget(self) -> None:
        """Begins again, with this turn of the loop left out."""
        self.longest, self._began = 0.0, None

    def _poll(self, timeout: float | None = None) -> Any:
        if self._began is not None:
            held = self._now() - self._began
            if held > self.longest:
                self.longest = held
                if self.on_longest is not None:
                    self.on_longest()
        found = self._select(timeout)
        if self.on_poll is not None:
            self.on_poll()
        self._began = self._now()
        return found
