"""Predicts what happens to old records that will be written: what is refused, what is deleted.

A window refuses records, and retention deletes them. Times are the input and counts the result;
nothing is read or written. `planned` predicts the segments of the log, and `whatif` applies
retention to them at once and for a day.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tidelog.pipeline.engine import planned, whatif
from tidelog.pipeline.engine.planned import Arrival
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.time.timestamp import earlier, later

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tidelog.pipeline.engine.whatif import Policy, Rules

    Ints = npt.NDArray[np.int64]

AS_IS: Final = "as it is"
_ALL: Final = "all"
_LATER_MS: Final = whatif.EARLY_MS - 1
_BASIS: Final = "retention.time.basis"
# Settings that would keep records, the smallest change first; only tidelog knows the first.
_REMEDIES: Final = (
    (_BASIS, "append"),
    ("retention.ms", "-1"),
    ("retention.bytes", "-1"),
    ("retention.max.eventtime.ms", "-1"),
)


class Prediction(NamedTuple):
    """The counts of one partition; `deleted` is within a day, for each policy."""

    records: int
    without_time: int
    too_old: int
    too_new: int
    first_ms: int | None
    last_ms: int | None
    deleted: Mapping[str, int]


class TopicPrediction(NamedTuple):
    """The counts of several partitions together."""

    records: int
    without_time: int
    too_old: int
    too_new: int
    deleted: int
    remedies: tuple[str, ...]  # settings under which nothing is deleted


def policies_of(settings: Mapping[str, str], rules: Rules) -> tuple[Policy, ...]:
    """Returns a topic's policy, and policies that it might have instead. Raises PolicyError."""
    found = [whatif.policy_of(AS_IS, settings, rules)]
    usable = [(name, value) for name, value in _REMEDIES if rules == "tidelog" or name in _KAFKAS]
    for name, value in usable:
        if settings.get(name) != value:
            changed = {**settings, name: value}
            found.append(whatif.policy_of(f"{name}={value}", changed, rules))
    everything = {**settings, **{name: value for name, value in usable if name != _BASIS}}
    return (*found, whatif.policy_of(_ALL, everything, rules))


_KAFKAS: Final = frozenset({"retention.ms", "retention.bytes"})


def predict(
    times: Iterable[Ints],
    policies: Sequence[Policy],
    *,
    window: tuple[int, int],
    record_bytes: int,
    batch_bytes: int,
    now_ms: int,
) -> Prediction:
    """Counts the records with these times, in the order in which they are written."""
    seen = _Seen(window)
    batch = max(1, batch_bytes // max(1, record_bytes))
    arrivals = _arrivals(seen.passing(times), batch, record_bytes)
    log = planned.log_of("", 0, arrivals, policies[0].config, now_ms)
    moments = (now_ms, now_ms + _LATER_MS)
    deleted = {
        policy.name: sum(one.records for one in whatif.judge(log, policy, moments).deleted)
        for policy in policies
    }
    return Prediction(
        seen.records,
        seen.without_time,
        seen.too_old,
        seen.too_new,
        seen.first_ms,
        seen.last_ms,
        deleted,
    )


def combined(found: Sequence[Prediction], policies: Sequence[Policy]) -> TopicPrediction:
    """Adds up the counts of a topic's partitions."""
    sums = {policy.name: sum(one.deleted[policy.name] for one in found) for policy in policies}
    remedies = tuple(name for name, gone in sums.items() if not gone and name not in {AS_IS, _ALL})
    if not remedies and not sums[_ALL]:
        remedies = (" and ".join(p.name for p in policies if p.name not in {AS_IS, _ALL}),)
    return TopicPrediction(
        sum(one.records for one in found),
        sum(one.without_time for one in found),
        sum(one.too_old for one in found),
        sum(one.too_new for one in found),
        sums[AS_IS],
        remedies if sums[AS_IS] else (),
    )


class _Seen:
    """Counts the times that pass through it."""

    def __init__(self, window: tuple[int, int]) -> None:
        self._oldest, self._newest = window
        self.records = self.without_time = self.too_old = self.too_new = 0
        self.first_ms: int | None = None
        self.last_ms: int | None = None

    def passing(self, times: Iterable[Ints]) -> Iterator[Ints]:
        """Counts these times, and yields them unchanged."""
        for some in times:
            self.records += len(some)
            present = some[some != NO_TIMESTAMP]
            self.without_time += len(some) - len(present)
            self.too_old += int(np.count_nonzero(present < self._oldest))
            self.too_new += int(np.count_nonzero(present > self._newest))
            if len(present):
                self.first_ms = earlier(int(present.min()), self.first_ms)
                self.last_ms = later(int(present.max()), self.last_ms)
            yield some


def _arrivals(times: Iterable[Ints], batch: int, record_bytes: int) -> Iterator[Arrival]:
    for some in times:
        for start in range(0, len(some), batch):
            part = some[start : start + batch]
            present = part[part != NO_TIMESTAMP]
            yield Arrival(
                int(present[0]) if len(present) else None,
                int(present.max()) if len(present) else None,
                len(present) < len(part),
                len(part),
                len(part) * record_bytes,
            )
