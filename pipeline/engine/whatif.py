"""Simulates what a retention policy would delete of a log, by the broker's own rules.

`segments_to_delete` decides round by round, as it does in a broker. This module adds the
decisions up and continues with the rest of the log. Nothing is appended meanwhile. A policy can
also follow Apache Kafka's rules. There a segment is as old as its largest record time, or as the
modification time of its file if no record has a time. So a time from the future keeps this segment
and all later ones until that time has come.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tidelog.config import BrokerConfig, ConfigError, topic_config
from tidelog.config.units import in_its_unit
from tidelog.storage.time.lookup import reaches
from tidelog.storage.time.retention import (
    APPEND_BASIS,
    Candidate,
    retention_of,
    segments_to_delete,
    with_inherited_times,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tidelog.config import TopicConfig
    from tidelog.storage.time.retention import Retention
    from tidelog.storage.time.segment_times import SegmentTimes

Rules = Literal["tidelog", "kafka"]

EARLY_MS: Final = 86_400_000
"""Within how long of its append a record that is deleted counts as killed early, where nobody says."""

_BASIS: Final = "retention.time.basis"


class PolicyError(ValueError):
    """An invalid policy; the message says why."""


class Policy(NamedTuple):
    """A name, settings, and whose rules apply: tidelog's or Kafka's."""

    name: str
    config: TopicConfig
    rules: Rules = "tidelog"

    @property
    def retention(self) -> Retention:
        """Returns what the settings mean; Kafka has neither event time nor a basis nor a floor."""
        retention = retention_of(self.config)
        if self.rules == "kafka":
            return retention._replace(by_append=False, event_ms=None, floor_ms=0)
        return retention


class Future(NamedTuple):
    """The record with a segment's largest time, if that time is in the future."""

    offset: int
    timestamp_ms: int
    producer_id: int  # -1: there is none


class LogSegment(NamedTuple):
    """The facts about a segment: what the broker would judge, and its append times."""

    base_offset: int
    end_offset: int
    size: int
    times: SegmentTimes
    appended: tuple[
        tuple[int, int], ...
    ]  # (first offset, append time), ascending in both; see below
    file_ms: int  # the modification time of the file
    future: Future | None = None

    @property
    def is_estimated(self) -> bool:
        """Whether some append time is unknown, and something else stands in for it."""
        return self.times.has_unknown

    def appended_after(self, moment_ms: int) -> int:
        """Returns how many offsets were appended after a moment.

        For offsets without an append time, the modification time of the file counts. `appended` has
        no gaps: everything before its first entry, or all of a segment without entries, has an
        unknown append time.
        """
        if not self.size:
            return 0
        known_from = self.appended[0][0] if self.appended else self.end_offset
        unknown = known_from - self.base_offset if self.file_ms > moment_ms else 0
        number = bisect_right(self.appended, moment_ms, key=lambda entry: entry[1])
        if number == len(self.appended):
            return unknown
        return unknown + self.end_offset - self.appended[number][0]


class SimulatedLog(NamedTuple):
    """One partition as a round of retention would find it."""

    topic: str
    partition: int
    segments: tuple[LogSegment, ...]
    log_start_offset: int
    high_watermark: int
    max_event_time: int | None
    is_sampled: bool = False  # over the wire: sizes and the borders of segments are estimates

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def records(self) -> int:
        """The number of offsets that can be read."""
        return sum(_readable(segment, self.log_start_offset) for segment in self.segments)

    @property
    def is_estimated(self) -> bool:
        """Whether some append time is unknown, or the log was only sampled."""
        return self.is_sampled or any(segment.is_estimated for segment in self.segments)


class Deleted(NamedTuple):
    """A segment that a policy deletes."""

    base_offset: int
    end_offset: int
    size: int
    records: int
    policy: str
    at_ms: int
    killed_early: int  # its records that were appended shortly before


class RetainedLog(NamedTuple):
    """The rest of a log after a round."""

    at_ms: int
    size: int
    records: int
    first_offset: int
    first_time: int | None  # the first record time of the oldest segment that has one
    deleted_size: int  # by all rounds up to here
    deleted_records: int


class Outcome(NamedTuple):
    """The effect of a policy on a log."""

    topic: str
    partition: int
    policy: str
    deleted: tuple[Deleted, ...]
    rounds: tuple[RetainedLog, ...]  # one entry for each moment
    pinned: tuple[Pinned, ...]
    is_estimated: bool


class Pinned(NamedTuple):
    """A segment that a time from the future keeps by Kafka's rules, and what it keeps with it."""

    base_offset: int
    size: int
    future: Future
    until_ms: int
    held_size: int  # this segment and all later ones


# --- policies ------------------------------------------------------------------------------------


def parse_policy(text: str, base: Mapping[str, str] | None = None) -> Policy:
    """Reads `NAME:setting=value,...`; `rules=kafka` among the settings selects Kafka's rules.

    The settings override those in `base`, the topic's own. Spans may be written as `7d`; sizes are
    in bytes. As in the broker, event-time retention without a basis makes retention.ms count from
    append times. Raises PolicyError.
    """
    name, colon, listed = text.partition(":")
    if not colon or not name:
        raise PolicyError(
            f"{text!r} is no policy: write NAME:retention.ms=7d,retention.bytes=1000000"
        )
    own: dict[str, str] = dict(base or {})
    rules: Rules = "tidelog"
    for part in filter(None, (each.strip() for each in listed.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise PolicyError(f"{part!r} in policy {name!r} is no setting: write name=value")
        key, value = key.strip(), value.strip()
        if key == "rules":
            if value not in ("tidelog", "kafka"):
                raise PolicyError(f"rules={value!r} in policy {name!r}: tidelog or kafka")
            rules = "kafka" if value == "kafka" else "tidelog"
            continue
        try:
            own[key] = in_its_unit(key, value)
        except ValueError as error:
            raise PolicyError(f"policy {name!r}: {key}: {error}") from None
    return policy_of(name, own, rules)


def policy_of(name: str, own: Mapping[str, str], rules: Rules = "tidelog") -> Policy:
    """Returns the policy of a topic's own settings. Raises PolicyError."""
    try:
        config = topic_config(BrokerConfig(), own)
        if config.lacks_basis:
            config = topic_config(BrokerConfig(), {**own, _BASIS: APPEND_BASIS})
    except ConfigError as error:
        raise PolicyError(f"policy {name!r}: {error}") from None
    return Policy(name, config, rules)


# --- rounds --------------------------------------------------------------------------------------


def judge(
    log: SimulatedLog,
    policy: Policy,
    moments: Iterable[int],
    *,
    early_ms: int = EARLY_MS,
    margin_ms: int = 0,
) -> Outcome:
    """Returns what rounds of retention at these ascending moments delete, and what remains."""
    left = list(log.segments)
    start = log.log_start_offset
    deleted: list[Deleted] = []
    rounds: list[RetainedLog] = []
    pinned: tuple[Pinned, ...] | None = None
    for now_ms in moments:
        if pinned is None:
            pinned = pinned_by_future(log, policy, now_ms, margin_ms)
        policies = segments_to_delete(
            with_inherited_times(candidate(segment, policy.rules) for segment in left),
            policy.retention,
            now_ms=now_ms,
            log_start_offset=start,
            high_watermark=log.high_watermark,
            max_event_time=log.max_event_time,
        )
        for segment, reason in zip(left, policies, strict=False):
            deleted.append(_deleted(segment, reason, now_ms, start, early_ms))
        if policies:
            start = max(start, left[len(policies) - 1].end_offset)
            left = left[len(policies) :]
        rounds.append(_kept(left, now_ms, start, deleted))
    estimated = log.is_estimated
    return Outcome(
        log.topic,
        log.partition,
        policy.name,
        tuple(deleted),
        tuple(rounds),
        pinned or (),
        estimated,
    )


def candidate(segment: LogSegment, rules: Rules) -> Candidate:
    """Returns a segment in the form that the retention rules judge."""
    times = segment.times if rules == "tidelog" else as_kafka(segment)
    return Candidate(segment.end_offset, segment.size, lambda: times)


def as_kafka(segment: LogSegment) -> SegmentTimes:
    """Returns a segment's times as Apache Kafka sees them: only the largest record time."""
    times = segment.times.copy()
    largest = times.largest
    times.aging = largest if reaches(largest, 0) else segment.file_ms
    return times


def pinned_by_future(
    log: SimulatedLog, policy: Policy, now_ms: int, margin_ms: int
) -> tuple[Pinned, ...]:
    """Returns the segments whose largest time is in the future, and what they keep in Kafka.

    Without retention.ms there are none, because only retention.ms uses these times.
    """
    retention_ms = policy.retention.retention_ms
    if retention_ms is None:
        return ()
    found: list[Pinned] = []
    behind = log.size
    for segment in log.segments:
        future = segment.future
        if future is not None and future.timestamp_ms > now_ms + margin_ms:
            until = future.timestamp_ms + retention_ms + 1
            found.append(Pinned(segment.base_offset, segment.size, future, until, behind))
        behind -= segment.size
    return tuple(found)


def _readable(segment: LogSegment, start: int) -> int:
    return max(segment.end_offset - max(segment.base_offset, start), 0)


def _deleted(segment: LogSegment, reason: str, now_ms: int, start: int, early_ms: int) -> Deleted:
    records = _readable(segment, start)
    return Deleted(
        segment.base_offset,
        segment.end_offset,
        segment.size,
        records,
        reason,
        now_ms,
        min(segment.appended_after(now_ms - early_ms), records),
    )


def _kept(
    left: Sequence[LogSegment], now_ms: int, start: int, deleted: Sequence[Deleted]
) -> RetainedLog:
    return RetainedLog(
        now_ms,
        sum(segment.size for segment in left),
        sum(_readable(segment, start) for segment in left),
        start,
        next((s.times.first for s in left if s.times.first is not None), None),
        sum(each.size for each in deleted),
        sum(each.records for each in deleted),
    )
