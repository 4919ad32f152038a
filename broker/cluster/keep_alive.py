"""Renews the lease of a session in a thread beside the event loop.

A loop that is busy for a while keeps its lease. One that hangs for a whole lease loses it, because
`Lease.may_renew` ends the renewals: a leader that hangs must not lead for ever.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.metadata.store import KeyValueStore
    from broker.replication.lease import Lease

log = logging.getLogger("tidelog.cluster")

_RENEWALS = 4  # in each lease


class KeepAlive:
    """The renewals of one lease, from the construction until `end`."""

    def __init__(
        self,
        store: KeyValueStore,
        lease_id: int,
        lease: Lease,
        lease_ms: int,
        now_ms: Callable[[], int],
        ended: Callable[[], None],
    ) -> None:
        """Begins. `ended` is called on the event loop if the store says that the lease is over."""
        self._store, self._lease_id, self._lease = store, lease_id, lease
        self._interval_s = lease_ms / 1000 / _RENEWALS
        self._now_ms = now_ms
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keep-alive", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ends the renewals; one that is under way may still be confirmed."""
        self._stop.set()

    def join(self) -> None:
        """Waits until nothing is under way any more."""
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner() as runner:  # the calls of a store are coroutines
            while not self._stop.wait(self._interval_s):
                if not self._lease.may_renew(self._now_ms()):
                    return
                if not runner.run(self._renew()):
                    return

    async def _renew(self) -> bool:
        """Returns whether the lease goes on, as far as is known."""
        sent_ms = self._now_ms()
        try:
            if await self._store.keep_alive(self._lease_id):
                self._lease.on_renewed(sent_ms)
                return True
        except BrokerError as error:
            if not self._stop.is_set():
                log.warning("the session was not renewed: %s", error.message)
            return True
        self._lease.on_lost()
        if not self._stop.is_set():
            self._loop.call_soon_threadsafe(self._ended)
        return False
