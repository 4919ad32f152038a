"""What the broker's clock shows and how far it is trusted, as JSON: routes of `api`.

And which partitions have times that are ahead of it, with what a reset would change there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.http.answers import twice
from tidelog.storage.time.corrections import is_behind
from tidelog.storage.time.timestamp import MIN_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.broker.http.question import Asked
    from tidelog.broker.http.services import Services
    from tidelog.broker.maintenance.clock_watch import ClockStatus
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.times.append_clock import ClockReset

TRUSTED, LEAPT, BEHIND = "trusted", "leapt", "behind"


def clock(asked: Asked) -> dict[str, Any]:
    """Returns the clock's time, the deletion time, a leap, and the last corrections."""
    return shown(asked.services)


def shown(services: Services) -> dict[str, Any]:
    """Returns the clock as JSON; the time since which it was behind is null if it is unknown.

    One of several brokers says which it is: the others have clocks, and partitions, of their own.
    """
    status = services.clock_watch.status()
    leap = status.leap
    return {
        **({} if services.cluster is None else {"broker": services.metadata.node_id}),
        "clock": "manual" if status.is_manual else "system",
        "state": _state(status),
        **twice("now", status.now_ms),
        **twice("deletion_time", status.deletion_ms),
        "ahead_ms": status.ahead_ms,
        "behind_ms": status.behind_ms,
        "leap": None
        if leap is None
        else {**twice("from", leap.from_ms), **twice("to", leap.to_ms)},
        "steps": [
            {
                "number": number,
                "shift_ms": step.shift_ms,
                **twice("since", None if step.since_ms == MIN_TIMESTAMP else step.since_ms),
                **twice("until", step.until_ms),
                **twice("to", step.to_ms),
            }
            for number, step in status.steps
        ],
        "steps_back": [
            {**twice("from", step.from_ms), **twice("to", step.to_ms)} for step in status.steps_back
        ],
        "topics_ahead": topics_ahead(services, status.now_ms),
        "clock_start_pause_ms": services.config.clock_start_pause_ms,
    }


def topics_ahead(services: Services, now_ms: int) -> list[str]:
    """Returns the topics with append times that stand still until the clock is there, or until a reset.

    They are those of which others have copies, as far as this broker leads and has opened their logs.
    """
    return sorted(
        {
            partition.topic
            for partition in services.store.opened()
            if partition.state.leadership.is_replicated
            and not partition.state.is_follower
            and is_behind(partition.last_append_time, now_ms)
        }
    )


def _state(status: ClockStatus) -> str:
    if status.leap is not None:
        return LEAPT
    return BEHIND if status.behind_ms else TRUSTED


def topic_clock(asked: Asked) -> dict[str, Any]:
    """Returns for each partition what a reset would change; null where nothing is ahead.

    A reset changes the partitions that this broker leads: one of several brokers says which it is.
    """
    return {
        **asked.about(),
        **({} if asked.here is None else {"broker": asked.services.metadata.node_id}),
        **twice("now", asked.now_ms),
        "partitions": asked.each(partial(_preview, now_ms=asked.now_ms)),
    }


def _preview(partition: Partition, now_ms: int) -> dict[str, Any]:
    return {"reset": reset_shown(partition.append_clock.preview_reset(now_ms))}


def reset_shown(reset: ClockReset | None) -> dict[str, Any] | None:
    """Returns a reset as JSON."""
    if reset is None:
        return None
    return {
        "offset": reset.offset,
        **twice("last_append_time", reset.last_append_time),
        **twice("max_event_time", reset.max_event_time),
        **twice("next_max_event_time", reset.next_max_event_time),
    }
