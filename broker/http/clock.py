"""Describes the broker's clock, and how far it is trusted, as JSON: routes of `api`.

Also lists the partitions with times that are ahead of the clock, and previews a reset of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.http.answers import time_fields
from tidelog.storage.time.corrections import is_behind
from tidelog.storage.time.timestamp import MIN_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.broker.http.api_query import ApiQuery
    from tidelog.broker.http.services import Services
    from tidelog.broker.logs.maintenance.clock_watch import ClockStatus
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.times.append_clock import ClockReset

TRUSTED, LEAPT, BEHIND = "trusted", "leapt", "behind"


def clock(query: ApiQuery) -> dict[str, Any]:
    """Returns the clock's time, the deletion time, a leap, and the last corrections."""
    return shown(query.services)


def shown(services: Services) -> dict[str, Any]:
    """Returns the clock as JSON; the time since which the clock was behind is null if it is unknown.

    The answer names the broker: other brokers have clocks, and partitions, of their own.
    """
    status = services.clock_watch.status()
    leap, me, image = status.leap, services.metadata.node_id, services.metadata.image
    return {
        "broker": me,
        "other_brokers": sorted({*image.brokers, *image.registrations} - {me}),
        "clock": "manual" if status.is_manual else "system",
        "state": _state(status),
        **time_fields("now", status.now_ms),
        **time_fields("deletion_time", status.deletion_ms),
        "ahead_ms": status.ahead_ms,
        "behind_ms": status.behind_ms,
        "leap": None
        if leap is None
        else {**time_fields("from", leap.from_ms), **time_fields("to", leap.to_ms)},
        "steps": [
            {
                "number": number,
                "shift_ms": step.shift_ms,
                **time_fields("since", None if step.since_ms == MIN_TIMESTAMP else step.since_ms),
                **time_fields("until", step.until_ms),
                **time_fields("to", step.to_ms),
            }
            for number, step in status.steps
        ],
        "steps_back": [
            {**time_fields("from", step.from_ms), **time_fields("to", step.to_ms)}
            for step in status.steps_back
        ],
        "topics_ahead": topics_ahead(services, status.now_ms),
        "clock_start_pause_ms": services.config.clock_start_pause_ms,
    }


def topics_ahead(services: Services, now_ms: int) -> list[str]:
    """Returns the topics whose append times stand still until the clock has caught up, or until a reset.

    Only replicated partitions are counted whose logs this broker leads and has opened.
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


def topic_clock(query: ApiQuery) -> dict[str, Any]:
    """Returns for each partition what a reset would change; null where no time is ahead of the clock.

    The answer names the broker: a reset changes only the partitions that this broker leads.
    """
    return {
        **query.topic_fields(),
        "broker": query.services.metadata.node_id,
        **time_fields("now", query.now_ms),
        "partitions": query.each(partial(_preview, now_ms=query.now_ms)),
    }


def _preview(partition: Partition, now_ms: int) -> dict[str, Any]:
    return {"reset": reset_shown(partition.append_clock.preview_reset(now_ms))}


def reset_shown(reset: ClockReset | None) -> dict[str, Any] | None:
    """Returns a reset as JSON."""
    if reset is None:
        return None
    return {
        "offset": reset.offset,
        **time_fields("last_append_time", reset.last_append_time),
        **time_fields("max_event_time", reset.max_event_time),
        **time_fields("next_max_event_time", reset.next_max_event_time),
    }
