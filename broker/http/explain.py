"""Why segments are kept and when they will be deleted, as JSON: a route of `api`.

The answer has for every segment the policy that will delete or compact it and when, or what keeps it, with
the topic's settings or with others given for comparison; and how much of each partition is due now. All
times are compared with the deletion time, which the answer has while the clock has leapt.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.http.answers import HttpError, time_fields
from tidelog.broker.settings import BASIS, topic_changes
from tidelog.config.units import in_its_unit
from tidelog.storage.compaction.explain import CompactionBlocker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.broker.http.api_query import ApiQuery
    from tidelog.broker.http.services import Services
    from tidelog.config import TopicConfig
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.retention.explanation import (
        Going,
        PartitionExplanation,
        SegmentExplanation,
    )
    from tidelog.storage.time.retention import PolicyCondition

_SHOWN_SETTINGS = {
    "cleanup.policy": "cleanup_policy",
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "retention.time.basis": "retention_time_basis",
    "retention.max.eventtime.ms": "retention_max_eventtime_ms",
    "retention.max.eventtime.grace.ms": "retention_max_eventtime_grace_ms",
    "retention.min.append.ms": "retention_min_append_ms",
}


def explain(query: ApiQuery) -> dict[str, Any]:
    """Explains every segment: the policy that will delete it and when, or the reason why it is kept."""
    topic = query.topic
    changes = topic_changes(_changes(query.given.get("set", [])))
    config, brought = query.services.settings.settled(
        topic.name, {**topic.configs, **changes}, changes
    )
    clock = query.services.clock_watch.status()
    look = partial(
        _explained,
        services=query.services,
        now_ms=clock.deletion_ms,
        clock_ms=query.now_ms,
        preview=config if changes else None,
    )
    return {
        **query.topic_fields(),
        **time_fields("now", query.now_ms),
        **({} if clock.leap is None else time_fields("deletion_time", clock.deletion_ms)),
        "preview": _preview(changes, config, has_implied=bool(brought)) if changes else None,
        "settings": _settings(config),
        "basis_from": config.sources.get(BASIS, "default"),
        "partitions": query.each(look),
    }


def _changes(given: list[str]) -> dict[str, str]:
    """Parses the settings to compare with; those in ms also as durations ("7d"). Raises HttpError."""
    changes: dict[str, str] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise HttpError(400, "BAD_REQUEST", f"set={text[:80]}: expected set=NAME=VALUE")
        try:
            value = in_its_unit(name, value)
        except ValueError as error:
            raise HttpError(400, "BAD_REQUEST", f"{name[:80]}: {error}") from None
        if changes.setdefault(name, value) != value:
            raise HttpError(400, "BAD_REQUEST", f"set={text[:80]} contradicts another one")
    return changes


def _preview(changes: dict[str, str], config: TopicConfig, *, has_implied: bool) -> dict[str, str]:
    return {**changes, BASIS: config.retention_time_basis} if has_implied else changes


def _settings(config: TopicConfig) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, attribute in _SHOWN_SETTINGS.items():
        value = getattr(config, attribute)
        shown[name] = value if isinstance(value, str | int) else ",".join(sorted(value))
    return shown


def _explained(
    partition: Partition,
    *,
    services: Services,
    now_ms: int,
    clock_ms: int,
    preview: TopicConfig | None,
) -> dict[str, Any]:
    blocker = _compaction_blocker(services, partition)
    explanation = partition.retainer.explain(now_ms, preview, blocker, clock_ms)
    as_is = explanation if preview is None else partition.retainer.explain(now_ms)
    return {
        "log_start_offset": explanation.log_start_offset,
        "high_watermark": explanation.high_watermark,
        "log_end_offset": explanation.log_end_offset,
        "size": explanation.size,
        **time_fields("max_event_time", explanation.max_event_time),
        **time_fields("last_append_time", explanation.last_append_time),
        "going": _going(explanation.going),
        **({} if preview is None else {"going_as_it_is": _going(as_is.going)}),
        **(
            {}
            if explanation.compacting is None
            else {"compaction": _compacting(explanation, partition)}
        ),
        "segments": list(_segments(explanation)),
    }


def _compaction_blocker(services: Services, partition: Partition) -> CompactionBlocker | None:
    """Returns why no automatic round compacts a log; None if one does."""
    if not services.config.log_cleaner_enable:
        return CompactionBlocker(
            "log.cleaner.enable", "log.cleaner.enable=false: no round compacts it."
        )
    known = services.metrics.compaction.uncleanable.get((partition.topic, partition.index))
    if known is None or known.topic_id != partition.topic_id:
        return None
    return CompactionBlocker(
        known.held_by, f"Compaction leaves the log alone until the next start: {known.reason}."
    )


def _compacting(explanation: PartitionExplanation, partition: Partition) -> dict[str, Any]:
    """Describes what compaction would do to the log, and its last result since the start."""
    assert explanation.compacting is not None
    last = partition.compactor.last_compaction
    shown = {
        **explanation.compacting.dirty_section._asdict(),
        "strategy": explanation.compacting.strategy,
        "last": None,
    }
    if last is not None:
        rest = {name: value for name, value in last._asdict().items() if name != "ended_ms"}
        shown["last"] = {**time_fields("ended", last.ended_ms), **rest}
    return shown


def _going(going: Going) -> dict[str, Any]:
    return going._asdict()


def _segments(explanation: PartitionExplanation) -> Iterator[dict[str, Any]]:
    for segment in explanation.segments:
        yield _segment(segment)


def _segment(segment: SegmentExplanation) -> dict[str, Any]:
    """Returns a segment as JSON, with its times twice."""
    shown: dict[str, Any] = {}
    for name, value in segment._asdict().items():
        if name.endswith("_time"):
            shown |= time_fields(name, value)
        elif name in ("due_ms", "rolls_ms"):
            shown |= time_fields(name.removesuffix("_ms"), value)
        elif name == "conditions":
            shown[name] = [_condition(wait) for wait in value]
        elif name == "compaction" and value is None:
            continue
        else:
            shown[name] = value
    return shown


def _condition(wait: PolicyCondition) -> dict[str, Any]:
    """Returns what one policy needs before it deletes a segment."""
    return {
        "policy": wait.policy,
        **time_fields("due", wait.due_ms),
        **time_fields("event_time", wait.event_time),
        "growth_bytes": wait.growth,
        "is_floored": wait.is_floored,
    }
