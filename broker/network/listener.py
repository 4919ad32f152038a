"""Where clients connect, and where they are told to connect (KIP-103).

An answer that names this broker gives the address of the listener it was asked by.
"""

from __future__ import annotations

from typing import NamedTuple


class Listener(NamedTuple):
    """One address clients connect to, and the one they are told to connect to."""

    name: str
    host: str
    port: int
    advertised: tuple[str, int]
