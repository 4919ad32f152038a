"""What is left of a long request once it is answered: its elements are freed in slices, too.

Python frees a list when nobody refers to it any more, and all that is in it, at once: 100,000 elements take
ten milliseconds. So the elements of long lists are kept here until their request is done, and are let go a
few at a time. Nothing of a message is changed, so who still refers to a part of it keeps that.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.protocol.message import Message

LEAST: Final = 2_000
"""Shorter lists are freed at once."""
_AT_ONCE = 200
_SLICE_S = 0.002


class Leftovers:
    """The elements of messages that are done with."""

    def __init__(
        self, now_s: Callable[[], float], join: Callable[[Callable[[], None]], None]
    ) -> None:
        """`now_s` reads the seconds of the machine; `join` queues for a turn of the event loop."""
        self._now_s = now_s
        self._join = join
        self._lists: list[list[Any]] = []

    def take(self, *messages: Message) -> None:
        """Keeps the elements of long lists, until their turn comes to be freed."""
        is_queued = bool(self._lists)
        for message in messages:
            for name in _arrays(type(message)):
                elements = getattr(message, name)
                if type(elements) is list and len(elements) >= LEAST:
                    self._lists.append(elements.copy())
        if self._lists and not is_queued:
            self._join(self._free)

    def _free(self) -> None:
        ends_s = self._now_s() + _SLICE_S
        while self._lists and self._now_s() < ends_s:
            elements = self._lists[-1]
            del elements[-_AT_ONCE:]
            if not elements:
                self._lists.pop()
        if self._lists:
            self._join(self._free)


@cache
def _arrays(kind: type[Message]) -> tuple[str, ...]:
    """Returns the names of the fields that are lists."""
    return tuple(each.name for each in getattr(kind, "declared_fields", ()) if each.is_array)
