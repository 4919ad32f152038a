"""A broker process that leaks, each kind of leak a switch: what the rule of `level` has to see."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_S = 0.1
_LEAKED_BYTES = 1 << 20
_kept: list[object] = []


def inject(name: str) -> None:
    """Leaks from now on."""
    threading.Thread(target=_leak, args=[LEAKS[name]], daemon=True).start()


def _leak(take: Callable[[], object]) -> None:
    while True:
        _kept.append(take())
        time.sleep(_PAUSE_S)


def _memory() -> object:
    return os.urandom(_LEAKED_BYTES)


def _descriptor() -> object:
    return os.open(os.devnull, os.O_RDONLY)


def _thread() -> object:
    waiting = threading.Thread(target=threading.Event().wait, daemon=True)
    waiting.start()
    return waiting


LEAKS: dict[str, Callable[[], object]] = {
    "memory_mb": _memory,
    "descriptors": _descriptor,
    "threads": _thread,
}
