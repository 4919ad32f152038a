"""Requests to produce behind one whose records are stored, and whose answer waits for other replicas.

They are served meanwhile, up to `MOST_AHEAD` of them: so followers get the records of several requests by
one fetch. The requests are still taken one after the other, and each answer leaves in its turn. A request
behind one that is not stored yet, and any that is not a Produce, waits as always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.network.stream.served import PRODUCE, Served

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tidelog.broker.network.stream.frames import Frames

MOST_AHEAD: Final = 8


def serve_ahead(frames: Frames, serve: Callable[[Any], Any], may_go_on: Callable[[], bool]) -> None:
    """Serves the frames that may be served while the answer to the one before them waits."""
    waiting = frames.waiting
    for number in range(min(len(waiting), MOST_AHEAD)):
        frame = waiting[number]
        if not isinstance(frame, Served):
            if frame[:2] != PRODUCE or not may_go_on():
                return
            frame = Served.of(frame, serve)
            frames.replace(number, frame)
        if not frame.is_stored:
            return
