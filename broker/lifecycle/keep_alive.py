"""Renews the lease of a session in a thread beside the event loop.

A loop that is busy for a while keeps its lease. One that hangs for a whole lease loses it, because
`Lease.may_renew` ends the renewals: a leader that hangs must not lead for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any

from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.lifecycle.lease import Lease
    from tidelog.broker.metadata.store import KeyValueStore

log = logging.getLogger("tidelog.cluster")

_RENEWALS = 4  # in each lease


class Renewals:
    """The renewals of one lease; a subclass, or a test, calls `renew` at the right times."""

    def __init__(
        self,
        store: KeyValueStore,
        lease_id: int,
        lease: Lease,
        lease_ms: int,
        now_ms: Callable[[], int],
        ended: Callable[[], None],
    ) -> None:
        """`ended` is called on the event loop if the store says that the lease is over."""
        self._store, self._lease_id, self._lease = store, lease_id, lease
        self.interval_s = lease_ms / 1000 / _RENEWALS
        self._now_ms = now_ms
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self.is_over = False
        self.error: str | None = None
        """Why the store did not answer the last renewal, as a sentence; None if it did."""
        self.refusal: str | None = None
        """Why the store accepts no writes though it answers, as a sentence; None if none is known."""

    def may_go_on(self) -> bool:
        """Returns whether the event loop has run recently enough for another renewal."""
        return self._lease.may_renew(self._now_ms())

    async def renew(self) -> bool:
        """Renews the lease once; returns whether the lease goes on, as far as is known."""
        sent_ms = self._now_ms()
        try:
            is_renewed = await self._store.keep_alive(self._lease_id)
            self.error = None
            if is_renewed:
                self._lease.on_renewed(sent_ms)
                return True
        except BrokerError as error:
            self.error = error.message
            if not self.is_over:
                log.warning("broker session not renewed", extra={"reason": error.message})
            return True
        self._lease.on_lost()
        if not self.is_over:
            self._loop.call_soon_threadsafe(self._ended)
        return False

    def end(self) -> None:
        """Ends the renewals; one that is under way may still be confirmed."""
        self.is_over = True

    def join(self) -> None:
        """Waits until nothing is under way any more."""


class KeepAlive(Renewals):
    """Renews a lease in a thread, from the construction until `end`."""

    def __init__(self, *what: Any) -> None:
        """Begins; see `Renewals`."""
        super().__init__(*what)
        self._own_loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="keep-alive", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ends the renewals; one that is under way may still be confirmed."""
        super().end()
        with contextlib.suppress(RuntimeError):  # the thread has ended, and closed its loop
            self._own_loop.call_soon_threadsafe(self._stop.set)

    def join(self) -> None:
        """Waits until nothing is under way any more."""
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._own_loop) as runner:
            runner.run(self._renew_until_end())

    async def _renew_until_end(self) -> None:
        probe: asyncio.Task[None] | None = None
        while not await self._ends_within(self.interval_s) and self.may_go_on():
            if not await self._renew_despite_errors():
                return
            if probe is None or probe.done():  # beside the renewals, which must not wait for it
                probe = asyncio.create_task(self._probe())

    async def _ends_within(self, span_s: float) -> bool:
        try:
            async with asyncio.timeout(span_s):
                return await self._stop.wait()
        except TimeoutError:
            return False

    async def _renew_despite_errors(self) -> bool:
        """Renews the lease as `renew` does; an unexpected error ends no lease."""
        try:
            return await self.renew()
        except Exception as error:
            self.error = f"the session was not renewed: {error!r}"
            log.exception("broker session not renewed")
            return True

    async def _probe(self) -> None:
        """Notes why the store accepts no writes; waits at most a lease for the answer."""
        try:
            async with asyncio.timeout(self.interval_s * _RENEWALS):
                refusal = await self._store.why_no_writes()
        except (BrokerError, TimeoutError):
            return  # `error` says whether the store answers
        except Exception:
            log.exception("metadata store not probed")
            return
        if refusal is not None and self.refusal is None:
            log.error("metadata cannot be changed", extra={"reason": refusal})
        self.refusal = refusal
