"""When Python's collector may look at all objects: not while long requests are under way.

A full collection visits every object of every request, at once, on the loop. Twenty requests of 45,000
elements are millions of objects, which take 200 ms. They hold no cycles: their memory is free as soon as
they are answered. So full collections wait until then. Where long requests never end, they are allowed
for `ALLOWED_S` after each `HELD_S`, because cycles that others leave must be found in the end. Collections
of young objects are short, and go on.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

HELD_S: Final = 60.0
"""How long full collections wait at most."""
ALLOWED_S: Final = 1.0
"""How long they are allowed after that, while long requests are still under way."""
_YOUNG, _MIDDLE, _FULL = gc.get_threshold()
_NEVER: Final = 1_000_000_000


class Collection:
    """Holds back full collections for as long as anybody asks for it."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s` reads the seconds of the machine."""
        self._now_s = now_s
        self._long = 0  # long requests that are under way
        self._since_s = 0.0
        self.is_held = False

    def hold(self) -> None:
        """Begins a long request."""
        self._long += 1
        if self._long == 1:
            self._since_s = self._now_s()
        self.update()

    def release(self) -> None:
        """Ends a long request."""
        self._long -= 1
        self.update()

    def update(self) -> None:
        """Holds full collections back, or allows them."""
        is_held = self._long > 0
        if is_held:
            is_held = (self._now_s() - self._since_s) % (HELD_S + ALLOWED_S) < HELD_S
        if is_held != self.is_held:
            self.is_held = is_held
            gc.set_threshold(_YOUNG, _MIDDLE, _NEVER if is_held else _FULL)


class Hold:
    """One long request, from when it is known to be long until it ends."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._is_begun = False

    def begin(self) -> None:
        """Holds back full collections, if that has not been done."""
        if not self._is_begun:
            self._is_begun = True
            self._collection.hold()

    def end(self) -> None:
        """Ends what was begun."""
        if self._is_begun:
            self._is_begun = False
            self._collection.release()
