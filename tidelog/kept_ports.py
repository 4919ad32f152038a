"""Ports of brokers that are down, kept until they start again."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class KeptPorts:
    """Ports of a broker that is down; this process binds them, so that nobody else gets them.

    It does not listen on them, so clients are refused. The broker can still listen, because it uses
    SO_REUSEADDR. Only Linux allows this: elsewhere no ports are kept, and one may be taken when the
    broker restarts.
    """

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        weakref.finalize(self, _close_all, self._descriptors)

    def keep(self, addresses: Iterable[str]) -> None:
        """Binds the ports of some `host:port`, if possible."""
        if self._descriptors or sys.platform != "linux":
            return
        for address in addresses:
            host, _, port = address.rpartition(":")
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.socket(family) as bound, contextlib.suppress(OSError, ValueError):
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                bound.bind((host.strip("[]"), int(port)))
                self._descriptors.append(bound.detach())

    def release(self) -> None:
        """Releases them all."""
        _close_all(self._descriptors)


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
