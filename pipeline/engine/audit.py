"""Measures the quality of the times in a log, from columns, in pieces whose counts can be added.

An `Auditor` reads one piece (a split) of one partition; `partial_audits.py` adds pieces up. All counts and
all maxima are exact; quantiles come from the histograms of `tables.py`. Five terms:

- missing: the record has no time (-1), in any record format.
- future: its time is more than a margin after its append time, or after the current time if the
  append time is unknown.
- suspect: its time probably has another unit (`timestamps.find_unit_mismatch`, as of the current
  time).
- plausible: none of the three. Only plausible records raise the largest event time and can be late;
  otherwise one absurd time would make all later records late.
- delay: append time minus event time, for CreateTime records whose append time is known. Quantiles
  of the delay leave out suspect records; its minimum and maximum leave out all that are not
  plausible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tidelog.pipeline.engine.lateness import HEAD, HOUR_MS, Lateness, beyond
from tidelog.pipeline.engine.plausible import MARGIN_MS, UNKNOWN, from_the_future, in_other_units
from tidelog.pipeline.engine.tables import Table, buckets_of, count_pairs, magnitude
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.time.arrivals import MISTAKEN_UNITS, usual_range
from tidelog.storage.time.timestamp import earlier, later

if TYPE_CHECKING:
    import numpy.typing as npt

    from tidelog.pipeline.engine.tables import Ints, Magnitudes

    Bools = npt.NDArray[np.bool_]

_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000

BEFORE_LIMITS_MS: Final = (
    *(_MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY, 365 * _DAY),
    315_576_000_000,  # ten years
)
AFTER_LIMITS_MS: Final = (0, 1_000, 10_000, _MINUTE, 10 * _MINUTE, _HOUR, _DAY, 7 * _DAY)
HOUR_COUNTS: Final = ("records", "odd", "future", "suspect", "negative", "log_append", "bytes")


class AuditSettings(NamedTuple):
    """The settings of an audit. The limits ascend."""

    now_ms: int
    margin_ms: int = MARGIN_MS
    before_limits_ms: tuple[int, ...] = BEFORE_LIMITS_MS
    after_limits_ms: tuple[int, ...] = AFTER_LIMITS_MS


class Times(NamedTuple):
    """Columns of records in offset order. An append time may be UNKNOWN, a time may be -1."""

    offset: Ints
    timestamp_ms: Ints
    append_time_ms: Ints
    is_log_append: Bools
    producer_id: Ints
    size: Ints | None = None  # the bytes of a record in the log: its share of the batch

    def where(self, mask: Bools) -> Times:
        """Returns some of the rows."""
        size = None if self.size is None else self.size[mask]
        return Times(
            self.offset[mask],
            self.timestamp_ms[mask],
            self.append_time_ms[mask],
            self.is_log_append[mask],
            self.producer_id[mask],
            size,
        )


class Example(NamedTuple):
    """One record to look at."""

    offset: int
    timestamp_ms: int
    append_time_ms: int  # or UNKNOWN
    producer_id: int


class Counts:
    """Sums over records; `add` adds every attribute."""

    def __init__(self, settings: AuditSettings) -> None:
        """Begins with zeros."""
        self.records = self.bytes = self.missing = self.negative = self.log_append = 0
        self.future = self.plausible = self.append_known = self.delays = 0
        self.suspects = dict.fromkeys(MISTAKEN_UNITS, 0)
        self.before = np.zeros(len(settings.before_limits_ms), np.int64)
        self.after = np.zeros(len(settings.after_limits_ms), np.int64)

    def add(self, other: Counts) -> None:
        """Adds the counts of another object."""
        for name, value in vars(other).items():
            if isinstance(value, dict):
                mine = getattr(self, name)
                for unit, count in value.items():
                    mine[unit] += count
            else:
                setattr(self, name, getattr(self, name) + value)


class Auditor:
    """Audits one piece of one partition, read from its start to its end."""

    def __init__(self, settings: AuditSettings, carry: int | None = None, head: int = HEAD) -> None:
        """Begins a piece; `carry` is the largest plausible time before it, if that is known."""
        self.settings = settings
        self.counts = Counts(settings)
        self.lateness = Lateness(settings.before_limits_ms, carry, head)
        self.hours = Table(1, "+" * len(HOUR_COUNTS) + "<>")  # by event hour; least, largest time
        self.delays = Table(2, "+")  # event hour, signed bucket: records
        self.producers = Table(2, "+")  # producer id, signed bucket: records
        self.least: int | None = None  # records with a time, plausible or not
        self.most: int | None = None
        self.least_plausible: int | None = None
        self.longest_delay: int | None = None  # of plausible records, signed
        self.shortest_delay: int | None = None
        self.examples: dict[str, Example] = {}
        self.newest: Example | None = None  # the last record of the piece that has a time
        self._near = usual_range(settings.now_ms)

    def note(self, times: Times) -> None:
        """Counts records that follow the ones noted before."""
        counts, count = self.counts, len(times.offset)
        if not count:
            return
        counts.records += count
        counts.bytes += 0 if times.size is None else int(times.size.sum())
        stamp = times.timestamp_ms
        least, most = int(stamp.min()), int(stamp.max())
        if least <= NO_TIMESTAMP <= most:
            is_timed = stamp != NO_TIMESTAMP
            timed = int(np.count_nonzero(is_timed))
            counts.missing += count - timed
            if not timed:
                return
            if timed < count:
                times = times.where(is_timed)
                stamp = times.timestamp_ms
                least, most = int(stamp.min()), int(stamp.max())
        self._note_timed(times, least, most)

    def _note_timed(self, times: Times, least: int, most: int) -> None:
        counts, stamp = self.counts, times.timestamp_ms
        self.least, self.most = earlier(least, self.least), later(most, self.most)
        self.newest = _example(times, len(stamp) - 1)
        is_unknown = times.append_time_ms == UNKNOWN
        unknown = int(np.count_nonzero(is_unknown))
        counts.append_known += len(stamp) - unknown
        counts.log_append += int(np.count_nonzero(times.is_log_append))
        if least < 0:
            counts.negative += int(np.count_nonzero(stamp < 0))
        is_suspect = self._suspects(times, least, most)
        is_future = self._future(times, most, is_suspect)
        is_odd = _either(is_future, is_suspect)
        self._note_hours(times, least, most, [is_odd, is_future, is_suspect])
        self._note_delays(times, is_unknown, unknown, is_odd, is_suspect)
        if is_odd is not None:
            is_plausible = ~is_odd
            stamp, is_unknown = stamp[is_plausible], is_unknown[is_plausible]
            if not len(stamp):
                return
            least = int(stamp.min())
        counts.plausible += len(stamp)
        self.least_plausible = earlier(least, self.least_plausible)
        self.lateness.note(stamp, is_unknown)

    # --- not plausible ----------------------------------------------------------------------------

    def _future(self, times: Times, most: int, is_suspect: Bools | None) -> Bools | None:
        """Returns which records come from the future, or None if there are none."""
        stamp, settings = times.timestamp_ms, self.settings
        is_future = from_the_future(
            stamp, times.append_time_ms, settings.now_ms, settings.margin_ms, most
        )
        if is_future is None:
            return None
        self.counts.future += int(np.count_nonzero(is_future))
        shown = is_future if is_suspect is None else is_future & ~is_suspect
        if shown.any():
            stamps = np.where(shown, stamp, UNKNOWN)
            self._keep("future", _example(times, int(stamps.argmax())))
        return is_future

    def _suspects(self, times: Times, least: int, most: int) -> Bools | None:
        """Returns which records' times probably have another unit, or None if there are none."""
        if self._near[0] <= least and most <= self._near[1]:
            return None
        is_suspect: Bools | None = None
        for unit, is_meant in in_other_units(times.timestamp_ms, self.settings.now_ms):
            self.counts.suspects[unit] += int(np.count_nonzero(is_meant))
            self._keep(unit, _example(times, int(is_meant.argmax())))
            is_suspect = is_meant if is_suspect is None else is_suspect | is_meant
        return is_suspect

    def _keep(self, name: str, example: Example) -> None:
        kept = self.examples.get(name)
        self.examples[name] = example if kept is None else better(name, kept, example)

    # --- sums ------------------------------------------------------------------------------------

    def _note_hours(self, times: Times, least: int, most: int, odd: list[Bools | None]) -> None:
        """Adds to the sums by hour of event time."""
        stamp = times.timestamp_ms
        columns: list[Bools | Ints | None] = [*odd, stamp < 0 if least < 0 else None]
        columns += [times.is_log_append if times.is_log_append.any() else None, times.size]
        first_hour = least // HOUR_MS
        if first_hour == most // HOUR_MS:
            starts = np.zeros(1, np.int64)
            hours = np.full(1, first_hour, np.int64)
        else:
            hour = stamp // HOUR_MS
            starts = _starts(hour)
            if len(starts) > 1024 and len(starts) * 8 > len(stamp):
                order = np.argsort(hour, kind="stable")
                stamp, hour = stamp[order], hour[order]
                columns = [None if c is None else c[order] for c in columns]
                starts = _starts(hour)
            hours = hour[starts]
        sums = [
            np.zeros(len(starts), np.int64)
            if column is None
            else np.add.reduceat(column.astype(np.int64, copy=False), starts)
            for column in columns
        ]
        self.hours.add(
            hours,
            np.diff(starts, append=len(stamp)),
            *sums,
            np.minimum.reduceat(stamp, starts),
            np.maximum.reduceat(stamp, starts),
        )

    def _note_delays(
        self,
        times: Times,
        is_unknown: Bools,
        unknown: int,
        is_odd: Bools | None,
        is_suspect: Bools | None,
    ) -> None:
        """Counts delays, and what windows would have refused."""
        is_out = times.is_log_append
        if unknown:
            is_out = is_out | is_unknown
        if is_out.any():
            if is_out.all():
                return
            is_in = ~is_out
            times = times.where(is_in)
            is_odd = None if is_odd is None else is_odd[is_in]
            is_suspect = None if is_suspect is None else is_suspect[is_in]
        stamp, append = times.timestamp_ms, times.append_time_ms
        counts = self.counts
        counts.delays += len(stamp)
        is_ahead = stamp > append
        size = append.view(np.uint64) - stamp.view(np.uint64)  # modulo 2**64: exact if not ahead
        buckets: Ints
        if is_ahead.any():
            size[is_ahead] = magnitude(stamp[is_ahead], append[is_ahead])
            buckets = buckets_of(size)
            buckets[is_ahead] *= -1
            self._note_limits(size[is_ahead], counts.after, self.settings.after_limits_ms)
            self._note_limits(size[~is_ahead], counts.before, self.settings.before_limits_ms)
        else:
            buckets = buckets_of(size)
            self._note_limits(size, counts.before, self.settings.before_limits_ms)
        self._note_extremes(size, is_ahead, is_odd)
        producer = times.producer_id
        if is_suspect is not None:
            is_meant = ~is_suspect
            stamp, buckets, producer = stamp[is_meant], buckets[is_meant], producer[is_meant]
        if len(stamp):
            first_hour = int(stamp.min()) // HOUR_MS
            is_one = first_hour == int(stamp.max()) // HOUR_MS
            hours = first_hour if is_one else stamp // HOUR_MS
            self.delays.add(*count_pairs(hours, buckets))
            self._note_producers(producer, buckets)

    def _note_limits(self, sizes: Magnitudes, counts: Ints, limits: tuple[int, ...]) -> None:
        """Counts how many sizes exceed each limit."""
        if len(sizes) and limits and int(sizes.max()) > limits[0]:
            places = np.searchsorted(np.asarray(limits, np.uint64), sizes, side="left")
            counts += beyond(places, len(limits))

    def _note_producers(self, ids: Ints, buckets: Ints) -> None:
        starts = _starts(ids)
        known, places = np.unique(ids[starts], return_inverse=True)
        if len(known) == 1:
            self.producers.add(*count_pairs(int(known[0]), buckets))
            return
        numbers = np.repeat(places.astype(np.int64), np.diff(starts, append=len(ids)))
        producer, bucket, count = count_pairs(numbers, buckets)
        self.producers.add(known[producer], bucket, count)

    def _note_extremes(self, sizes: Magnitudes, is_ahead: Bools, is_odd: Bools | None) -> None:
        """Updates the longest and the shortest delay of plausible records, exactly."""
        if is_odd is not None:
            sizes, is_ahead = sizes[~is_odd], is_ahead[~is_odd]
        behind, ahead = sizes, sizes[:0]
        if is_ahead.any():
            behind, ahead = sizes[~is_ahead], sizes[is_ahead]
        for sign, found in ((1, behind), (-1, ahead)):
            for size in (found.min(), found.max()) if len(found) else ():
                self.longest_delay = later(sign * int(size), self.longest_delay)
                self.shortest_delay = earlier(sign * int(size), self.shortest_delay)


def better(name: str, one: Example, other: Example) -> Example:
    """Returns which of two examples to show: the later time for "future", else the first."""
    if name == "future":
        return min(one, other, key=lambda each: (-each.timestamp_ms, each.offset))
    return min(one, other)


def _example(times: Times, row: int) -> Example:
    return Example(
        int(times.offset[row]),
        int(times.timestamp_ms[row]),
        int(times.append_time_ms[row]),
        int(times.producer_id[row]),
    )


def _starts(values: Ints) -> Ints:
    """Returns the indexes where runs of the same value begin."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.concatenate([np.zeros(1, np.int64), changes])


def _either(one: Bools | None, other: Bools | None) -> Bools | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other
