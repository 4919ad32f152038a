"""Requests to produce behind one whose records are stored, and whose answer waits for other replicas.

They are served meanwhile, up to `MOST_AHEAD` of them: so followers get the records of several requests by
one fetch. The requests are still taken one after the other, and each answer leaves in its turn. A request
behind one that is not stored yet, and any that is not a Produce, waits as always.
"""

from __future__ import annotations

import asyncio
import logging
from types import CoroutineType
from typing import TYPE_CHECKING, Final

from tidelog.broker.network.context import CloseConnection, Later

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tidelog.broker.network.stream.frames import Frames

log = logging.getLogger("tidelog.connection")

MOST_AHEAD: Final = 8
_PRODUCE = b"\0\0"


class Served(bytes):
    """Takes the place of a frame that was served before its turn: its API key, and how serving it ended."""

    outcome: Any
    """An answer, a coroutine or `Later` of one, or the CloseConnection that serving it has raised."""
    size: int
    """The bytes of the frame, if they may still be in use."""

    @classmethod
    def of(cls, frame: bytes | memoryview, serve: Callable[[Any], Any]) -> Served:
        """Serves a frame."""
        made = cls(_PRODUCE)
        try:
            made.outcome = serve(frame)
        except CloseConnection as reason:
            made.outcome = reason
        if isinstance(made.outcome, CoroutineType):  # it goes on whatever becomes of the connection
            task = asyncio.get_running_loop().create_task(made.outcome)
            task.add_done_callback(_noted)
            made.outcome = Later(task, task.result)
        made.size = 0 if made.is_stored else len(frame)
        return made

    def __len__(self) -> int:
        """Returns how many bytes are counted as held by the connection."""
        return self.size

    @property
    def is_stored(self) -> bool:
        """Whether nothing is left to do but to answer."""
        outcome = self.outcome
        if isinstance(outcome, Later):
            return outcome.is_stored
        return outcome is None or isinstance(outcome, list)

    def take(self) -> Any:
        """Returns the outcome in its turn; the answer, if that is there by now. Raises CloseConnection."""
        outcome = self.outcome
        if isinstance(outcome, CloseConnection):
            raise outcome
        if not (self.is_stored and isinstance(outcome, Later) and outcome.happened.done()):
            return outcome
        try:
            return outcome.finish()
        except CloseConnection:
            raise
        except Exception:
            log.exception("request failed outside its handler")
            raise CloseConnection("internal error while answering") from None


def _noted(task: asyncio.Task[Any]) -> None:
    """Lets an error go unreported that nobody asks for, because the connection has ended."""
    if not task.cancelled():
        task.exception()


def serve_ahead(frames: Frames, serve: Callable[[Any], Any], may_go_on: Callable[[], bool]) -> None:
    """Serves the frames that may be served while the answer to the one before them waits."""
    waiting = frames.waiting
    for number in range(min(len(waiting), MOST_AHEAD)):
        frame = waiting[number]
        if not isinstance(frame, Served):
            if frame[:2] != _PRODUCE or not may_go_on():
                return
            frame = Served.of(frame, serve)
            frames.replace(number, frame)
        if not frame.is_stored:
            return
