"""The findings of an audit, in sentences for people who decide on a window or a retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.report.page import ReportFinding
from tidelog.pipeline.report.units import count, moment, rounded_up, setting, share, span
from tidelog.text import are, size_of, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.pipeline.report.page import Numbers

SAFETY: Final = 1.5
"""How much more than what was seen a window should let through."""

LEAST_AFTER_MS: Final = 60_000
AHEAD_MS: Final = 1_000
"""A producer whose median record is this far ahead of its append time has a clock that is wrong."""

BEHIND_MS: Final = 300_000
"""A producer whose median delay is this much more than twice the topic's is behind, or has another clock.

Twice: where a history was written anew, medians of days differ by minutes, and no clock is wrong.
"""

LEAST_RECORDS: Final = 20
"""Of fewer records no median is worth a word."""

FAR_MS: Final = 3_600_000
"""A time from a future no farther than this may be a clock that is a little wrong."""

DISORDER_MS: Final = 60_000
"""Where one record in a hundred is later than this, the order is worth a look."""

_FACTORS: Final = {"seconds": (1000, 1), "microseconds": (1, 1000), "nanoseconds": (1, 1_000_000)}


def safe_windows(summary: Numbers) -> dict[str, Any]:
    """Returns windows that would have accepted every plausible record, or 99.9 %, with a margin.

    They come from delays if append times are known, else from lateness, which is no more than the
    delay. They are None if the broker stamps the records (`basis` is "stamp").
    """
    delay, lateness = summary["delay_ms"], summary["lateness_ms"]
    is_measured = delay["count"] > 0 and delay["max"] is not None
    is_stamped = summary["plausible"] == summary["log_append_time"] > 0
    measured = delay if is_measured else lateness
    longest, most = (None, None) if is_stamped else (measured["max"], measured["p99_9"])
    ahead = -min(delay["min"], 0) if is_measured else None
    return {
        "before_ms": None if longest is None else rounded_up(SAFETY * max(longest, 1_000)),
        "before_most_ms": None if most is None else rounded_up(SAFETY * max(most, 1_000)),
        "after_ms": None if ahead is None else max(rounded_up(SAFETY * ahead), LEAST_AFTER_MS),
        "basis": "delay" if is_measured else "stamp" if is_stamped else "lateness",
    }


def skewed(producers: list[dict[str, Any]], median_ms: int | None) -> list[dict[str, Any]]:
    """Returns the producers whose clock is probably wrong, each with `ahead` or `behind`."""
    found = []
    for each in producers:
        median = each["median_delay_ms"]
        if each["records"] < LEAST_RECORDS or each["producer_id"] < 0:
            continue
        if median <= -AHEAD_MS:
            found.append(each | {"how": "ahead"})
        elif median_ms is not None and median > 2 * max(median_ms, 0) + BEHIND_MS:
            found.append(each | {"how": "behind"})
    return found


def of_topic(topic: Numbers) -> list[ReportFinding]:
    """Returns the findings about one topic."""
    summary = topic["summary"]
    name = topic["topic"]
    if not summary["records"]:
        return [ReportFinding("info", name, "It has no records.", "There is nothing to judge.")]
    parts = (_units, _future, _pinned, _missing, _negative, _clocks, _retention, _order, _arrival)
    found = [
        ReportFinding(level, name, title, text)
        for part in parts
        for level, title, text in part(topic, summary)
    ]
    if not any(each.level in ("bad", "warn") for each in found):
        text = "Windows and a retention by record time can rely on them."
        found.append(ReportFinding("ok", name, "Its times look right.", text))
    return found


_Said = tuple[str, str, str]


def _say(level: str, title: str, *sentences: str) -> _Said:
    return level, title, " ".join(filter(None, sentences))


def _units(_topic: Numbers, summary: Numbers) -> Iterator[_Said]:
    for unit, number in summary["suspects"].items():
        if not number:
            continue
        example = summary["examples"][unit]
        stamp = example["timestamp_ms"]
        factor, divisor = _FACTORS[unit]
        meant = moment(stamp * factor // divisor)
        yield _say(
            "bad",
            f"{_records(number)} look{_s(number)} like {unit} instead of milliseconds.",
            f"The first is {_place(example)}: {stamp} is {moment(stamp)}, and read as {unit} {meant}.",
            "The producer has to be put right: lookups, windows and every retention by time take the",
            "number as it is.",
        )


def _future(_topic: Numbers, summary: Numbers) -> Iterator[_Said]:
    # Records in another unit have a finding already, from the future or not.
    odd = summary["records"] - summary["missing"] - summary["plausible"]
    number = odd - sum(summary["suspects"].values())
    example = summary["examples"].get("future")
    if not number or example is None:
        return
    stamp, append = example["timestamp_ms"], example["append_time_ms"]
    ahead = "" if append is None else f", {span(stamp - append)} after it was appended"
    yield _say(
        "warn" if append is not None and stamp - append <= FAR_MS else "bad",
        f"{_records(number)} ({share(number, summary['records'])}) come{_s(number)} from the future.",
        f"The farthest is {_place(example)}, at {moment(stamp)}{ahead}. Apache Kafka keeps the segment of",
        "such a record, and all behind it, until that time has come and retention.ms is over; tidelog",
        "counts it as written when it was. message.timestamp.after.max.ms refuses them.",
    )


def _pinned(topic: Numbers, _summary: Numbers) -> Iterator[_Said]:
    worst = max(topic["pinned"], key=lambda each: each["held_bytes"], default=None)
    if worst is None:
        return
    producer = worst["producer_id"]
    by = "" if producer < 0 else f" by producer {producer}"
    yield _say(
        "bad",
        f"On Apache Kafka one record would hold {size_of(worst['held_bytes'])} of partition"
        f" {worst['partition']} until {moment(worst['until_ms'])}.",
        f"It is offset {count(worst['offset'])}{by}, at {moment(worst['timestamp_ms'])};",
        f"{some(len(topic['pinned']), 'segment')} of the topic have such a record.",
    )


def _missing(_topic: Numbers, summary: Numbers) -> Iterator[_Said]:
    number = summary["missing"]
    if number:
        have = "has" if number == 1 else "have"
        yield _say(
            "warn",
            f"{_records(number)} ({share(number, summary['records'])}) {have} no time.",
            "They come from producers of before 0.10, or from one that sets -1. No lookup finds them, and",
            "retention by event time does not see them; LogAppendTime gives such records a time.",
        )


def _negative(_topic: Numbers, summary: Numbers) -> Iterator[_Said]:
    number = summary["negative"]
    if number:
        yield _say(
            "info",
            f"{are(number, 'record')} before 1970.",
            f"The earliest is {moment(summary['least_time_ms'])}. Java's clients cannot look such times",
            "up, and Apache Kafka's time index leaves them out (KIP-228).",
        )


def _clocks(topic: Numbers, _summary: Numbers) -> Iterator[_Said]:
    for how, title, words in (
        ("ahead", "with a clock that runs ahead", "after they were appended: no event is that new"),
        (
            "behind",
            "whose records come very late",
            "before they were appended: a clock, or a queue",
        ),
    ):
        found = [each for each in topic["skewed_producers"] if each["how"] == how]
        if not found:
            continue
        worst = max(found, key=lambda each: abs(each["median_delay_ms"]))
        yield _say(
            "warn",
            f"{some(len(found), 'producer')} {title}.",
            f"The worst is producer {worst['producer_id']}: half of its {_records(worst['records'])}",
            f"have a time {span(abs(worst['median_delay_ms']))} or more {words}.",
        )


def _retention(topic: Numbers, summary: Numbers) -> Iterator[_Said]:
    own = topic.get("settings")
    if own is None or own["retention_ms"] is None or own["by_append"]:
        return
    limit = own["retention_ms"]
    expired = sum(e["records"] for e in summary["beyond_before"] if e["limit_ms"] == limit)
    late = sum(e["records"] for e in summary["lateness_beyond"] if e["limit_ms"] == limit)
    if expired or late:
        least = "At least " if late else ""
        yield _say(
            "bad",
            f"{least}{_records(expired + late)} older than retention.ms={setting(limit)} on arrival.",
            "Retention by record time deletes them as soon as nothing younger is in their segment. Keep",
            "longer, or count from the append time: retention.time.basis=append, on Apache Kafka",
            "message.timestamp.type=LogAppendTime.",
        )


def _order(_topic: Numbers, summary: Numbers) -> Iterator[_Said]:
    late, plausible = summary["out_of_order"], summary["plausible"]
    lateness = summary["lateness_ms"]
    if not plausible:
        return
    if not late:
        yield _say(
            "ok", "Every partition is in order.", "No record has a smaller time than one before it."
        )
        return
    yield _say(
        "warn" if (lateness["p99"] or 0) > DISORDER_MS else "info",
        f"{share(late, plausible)} of the records are out of order, by {span(lateness['max'])} at most.",
        f"{count(late)} of {count(plausible)} are behind the largest event time before them in their",
        f"partition; 99 % of all records by at most {span(lateness['p99'])}, 99.9 % by at most",
        f"{span(lateness['p99_9'])}: who waits that long sees 99.9 % of them in order.",
    )


def _arrival(topic: Numbers, summary: Numbers) -> Iterator[_Said]:
    delay, windows = summary["delay_ms"], topic["safe_windows"]
    before, after, most = windows["before_ms"], windows["after_ms"], windows["before_most_ms"]
    if windows["basis"] == "delay":
        yield _say(
            "info",
            f"Half of the records arrive within {span(delay['p50'])}, 99.9 % within {span(delay['p99_9'])};"
            f" the slowest took {span(delay['max'])}.",
            f"message.timestamp.before.max.ms={before} ({setting(before)}) and",
            f"message.timestamp.after.max.ms={after} ({setting(after)}) would have refused no plausible",
            f"record, with half as much again to spare; a before.max.ms of {setting(most)} fewer than one in",
            "a thousand. The slowest is KIP-33's MaxLatencyOfCluster: who",
            "fails over by time goes that far back.",
        )
    elif windows["basis"] == "stamp":
        yield _say(
            "info",
            "Their times are those of the broker (LogAppendTime).",
            "They say when records were written, not when something happened; no window applies to them.",
        )
    elif before is not None:
        yield _say(
            "info",
            "The append times of these records are unknown: windows can only be estimated.",
            f"No record is more than {span(summary['lateness_ms']['max'])} behind one before it, so",
            f"message.timestamp.before.max.ms={before} ({setting(before)}) is the least that makes sense.",
            "tidelog keeps append times of every topic, Apache Kafka those of LogAppendTime topics.",
        )


# --- sentences -----------------------------------------------------------------------------------


def _records(number: int) -> str:
    return some(number, "record")


def _s(number: int) -> str:
    return "s" if number == 1 else ""


def _place(example: Numbers) -> str:
    producer, partition = example["producer_id"], example.get("partition")
    where = "" if partition is None else f" of partition {partition}"
    return f"offset {count(example['offset'])}{where}{'' if producer < 0 else f' by producer {producer}'}"
