"""A request that was served before its turn, in the place of its frame."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.broker.network.answers import CloseConnection, Pending

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Any

log = logging.getLogger("tidelog.connection")

PRODUCE: Final = b"\0\0"
"""The API key of the only requests that are served so."""


class Served(bytes):
    """Takes the place of a frame that was served before its turn: its API key, and how serving it ended."""

    outcome: Any
    """An answer, a `Pending` of one, or the CloseConnection that serving it has raised."""
    size: int
    """The bytes of the frame, if they may still be in use."""

    @classmethod
    def of(cls, frame: bytes | memoryview, serve: Callable[[Any], Any]) -> Served:
        """Serves a frame."""
        made = cls(PRODUCE)
        try:
            made.outcome = serve(frame)
        except CloseConnection as reason:
            made.outcome = reason
        if isinstance(made.outcome, Pending):  # it goes on whatever becomes of the connection
            made.outcome.happened.add_done_callback(_read_error)
        made.size = 0 if made.is_stored else len(frame)
        return made

    def __len__(self) -> int:
        """Returns how many bytes are counted as held by the connection."""
        return self.size

    @property
    def is_stored(self) -> bool:
        """Whether nothing is left to do but to answer."""
        outcome = self.outcome
        if isinstance(outcome, Pending):
            return outcome.is_stored
        return outcome is None or isinstance(outcome, list)

    def take(self) -> Any:
        """Returns the outcome in its turn; the answer, if that is there by now. Raises CloseConnection."""
        outcome = self.outcome
        if isinstance(outcome, CloseConnection):
            raise outcome
        if not (self.is_stored and isinstance(outcome, Pending) and outcome.happened.done()):
            return outcome
        try:
            return outcome.finish()
        except CloseConnection:
            raise
        except Exception:
            log.exception("request failed outside its handler")
            raise CloseConnection("internal error while answering") from None


def _read_error(happened: asyncio.Future[Any]) -> None:
    """Reads an error that nobody awaits, as the connection has ended: else asyncio logs it."""
    if not happened.cancelled():
        happened.exception()
