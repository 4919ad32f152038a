"""Thresholds of an audit: limits in a file, by which an audit has an exit status.

    [topic."*"]
    future = 0
    out_of_order_share = 0.01
    delay_p99_9 = "10m"

    [topic."orders-*"]
    delay_p99_9 = "1h"

    [group."billing"]
    event_lag = "5m"

The file is TOML. A section names a topic or a group, with `*` and `?` as in a shell. Of several
sections that fit, a later one wins, limit by limit. A value may be as large as its limit, and not
larger; `min_records` is the one lower bound. A span is text (`10m`) or milliseconds. A value that
the audit does not know (a delay without append times, say) breaks its limit: nobody can say that it
holds.
"""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.config.instants import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_QUANTILES: Final = ("p50", "p90", "p99", "p99_9", "p99_99", "max")

COUNT, SHARE, SPAN = "records", "share", "span"
"""What a limit is: a number of records, a share from 0 to 1, or a span in ms."""


class ThresholdError(ValueError):
    """An invalid file of thresholds; the message says why."""


class Measure(NamedTuple):
    """What a limit is compared with: its kind, and how it is found in a topic's or a group's row."""

    kind: str
    of: Callable[[Mapping[str, Any]], float | None]


class Broken(NamedTuple):
    """A limit that is exceeded; `value` is None if the audit does not know it."""

    scope: str  # "topic" or "group"
    subject: str
    name: str
    limit: float
    value: float | None
    kind: str


def _count(name: str) -> Measure:
    return Measure(COUNT, lambda summary: summary[name])


def _share(name: str, whole: str) -> Measure:
    return Measure(SHARE, lambda summary: summary[name] / summary[whole] if summary[whole] else 0.0)


def _quantile(of: str, name: str) -> Measure:
    return Measure(SPAN, lambda summary: summary[of][name])


def _suspects(summary: Mapping[str, Any]) -> float:
    return float(sum(summary["suspects"].values()))


TOPIC_MEASURES: Final[Mapping[str, Measure]] = {
    **{name: _count(name) for name in ("missing", "future", "negative", "out_of_order")},
    "suspect": Measure(COUNT, _suspects),
    "missing_share": _share("missing", "records"),
    "future_share": _share("future", "records"),
    "out_of_order_share": _share("out_of_order", "plausible"),
    **{f"lateness_{name}": _quantile("lateness_ms", name) for name in _QUANTILES},
    **{f"delay_{name}": _quantile("delay_ms", name) for name in _QUANTILES},
    "min_records": _count("records"),
}
"""The limits of a topic by name; docs/pipeline/audit.md explains what they measure."""

GROUP_MEASURES: Final[Mapping[str, Measure]] = {
    "records": _count("records"),
    "event_lag": Measure(SPAN, lambda row: row["event_lag_ms"] if row["records"] else 0),
    "append_lag": Measure(SPAN, lambda row: row["append_lag_ms"] if row["records"] else 0),
}

_MEASURES: Final = {"topic": TOPIC_MEASURES, "group": GROUP_MEASURES}


class Thresholds:
    """The limits of one file."""

    def __init__(self, text: str) -> None:
        """Parses a file. Raises ThresholdError."""
        try:
            sections = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ThresholdError(f"no TOML: {error}") from None
        self._limits: dict[str, dict[str, dict[str, float]]] = {"topic": {}, "group": {}}
        for scope, patterns in sections.items():
            if scope not in _MEASURES or not isinstance(patterns, dict):
                raise ThresholdError(
                    f'[{scope}] is no section: write [topic."NAME"] or [group."NAME"]'
                )
            for pattern, limits in patterns.items():
                if not isinstance(limits, dict):
                    raise ThresholdError(
                        f'[{scope}] has {pattern}: write [{scope}."NAME"] above it'
                    )
                self._limits[scope][pattern] = {
                    name: _limit(scope, pattern, name, value) for name, value in limits.items()
                }

    @property
    def wants_groups(self) -> bool:
        """Whether there are limits of groups."""
        return bool(self._limits["group"])

    def unused(self, report: Mapping[str, Any]) -> list[str]:
        """Returns the sections to which nothing in the report belongs."""
        there = {
            "topic": {topic["topic"] for topic in report["topics"]},
            "group": {row["group"] for row in report["groups"]},
        }
        return [
            f'[{scope}."{pattern}"]'
            for scope, patterns in self._limits.items()
            for pattern in patterns
            if not any(fnmatchcase(name, pattern) for name in there[scope])
        ]

    def broken(self, report: Mapping[str, Any]) -> list[Broken]:
        """Returns the limits that an audit's report exceeds."""
        found: list[Broken] = []
        for topic in report["topics"]:
            found += self._of("topic", topic["topic"], topic["topic"], topic["summary"])
        for row in report["groups"]:
            subject = f"{row['group']} in {row['topic']}-{row['partition']}"
            found += self._of("group", row["group"], subject, row)
        return found

    def _of(
        self, scope: str, name: str, subject: str, numbers: Mapping[str, Any]
    ) -> Iterator[Broken]:
        limits: dict[str, float] = {}
        for pattern, more in self._limits[scope].items():
            if fnmatchcase(name, pattern):
                limits |= more
        for limit_name, limit in limits.items():
            kind, of = _MEASURES[scope][limit_name]
            # Nothing of an empty topic is late, and nothing of it has a delay.
            value = of(numbers)
            if value is None and scope == "topic" and not numbers["plausible"]:
                continue
            is_least = limit_name.startswith("min_")
            if value is None or (value < limit if is_least else value > limit):
                yield Broken(scope, subject, limit_name, limit, value, kind)


def _limit(scope: str, pattern: str, name: str, value: object) -> float:
    where = f'[{scope}."{pattern}"] {name}'
    measure = _MEASURES[scope].get(name)
    if measure is None:
        raise ThresholdError(f"{where}: there is no such limit: {', '.join(_MEASURES[scope])}")
    if measure.kind == SPAN and isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError as error:
            raise ThresholdError(f"{where}: {error}") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        wanted = 'a span ("10m")' if measure.kind == SPAN else "a number from 0 on"
        raise ThresholdError(f"{where} = {value!r}: {wanted} is needed")
    if measure.kind == SHARE and value > 1:
        raise ThresholdError(f"{where} = {value!r}: a share is from 0 to 1")
    return value
