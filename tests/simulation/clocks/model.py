"""What a partition may delete and what must be gone, told by true time. Nothing of it is storage's.

A batch has the true moment of its append and the times of its records. Where the broker gives the
record time, the true moment is the record time: a right clock would have given it. `early_ms` and
`ahead_ms` are what `machine.Exemptions` allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class BrokenPromiseError(AssertionError):
    """A promise did not hold; the text says which."""


@dataclass
class Batch:
    """One append."""

    base: int
    end: int
    size: int
    appended: int  # true time; of an adopted batch the moment of adoption
    own: tuple[int | None, ...]  # the producer's time of each record; None: none, or the broker's
    stamped: tuple[int | None, ...]  # what is stored
    is_control: bool = False
    is_stamped: bool = False  # the broker gave the time
    known_from: int = 0  # the last moment at which it can count as written
    largest_segment_ms: int = 0  # of the settings since
    ahead: tuple[int, int] = (0, 0)  # the least and the largest event.time.ahead.max.ms since
    counted_ahead: int | None = None  # that at its append; None: it was adopted, and is read later

    def age(self) -> int:
        """Returns from when on the youngest record of the batch is as old as it is."""
        return max(self.appended if t is None else min(t, self.appended) for t in self.own)

    def events(self) -> list[int]:
        """Returns its event times, which are the record times as they are stored."""
        return [t for t in self.stamped if t is not None]


@dataclass
class Rules:
    """The settings that are in force."""

    retention_ms: int = -1
    retention_bytes: int = -1
    by_append: bool = False
    event_ms: int = -1
    grace_ms: int = 0
    floor_ms: int = 0
    ahead_ms: int = 3_600_000
    segment_ms: int = 0
    min_roll_ms: int = 0
    segment_bytes: int = 0

    @property
    def longest_segment_ms(self) -> int:
        return max(self.segment_ms, self.min_roll_ms)


@dataclass
class Model:
    """The batches of a partition, oldest first, and the rules."""

    rules: Rules
    batches: list[Batch] = field(default_factory=list)
    log_start: int = 0
    largest_event: int | None = None  # ever, as far as any time policy may count it
    deleted: int = 0

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def configure(self, rules: Rules) -> None:
        self.rules = rules
        for batch in self.batches:
            batch.largest_segment_ms = max(batch.largest_segment_ms, rules.longest_segment_ms)
            least, largest = batch.ahead
            batch.ahead = min(least, rules.ahead_ms), max(largest, rules.ahead_ms)

    def append(self, batch: Batch) -> None:
        batch.largest_segment_ms = self.rules.longest_segment_ms
        batch.ahead = self.rules.ahead_ms, self.rules.ahead_ms
        batch.counted_ahead = self.rules.ahead_ms
        batch.known_from = batch.known_from or batch.appended
        self.batches.append(batch)

    def adopt(self, true_ms: int) -> None:
        """Forgets when everything was appended: it counts as appended now."""
        for batch in self.batches:
            batch.appended = batch.known_from = true_ms
            batch.own, batch.is_stamped = batch.stamped, False
            batch.counted_ahead = None

    def corrected(self, true_ms: int, wrong_since_ms: int) -> None:
        """What a wrong clock has stamped, or is in a segment with it, may count as written now."""
        for batch in self.batches:
            if batch.appended + batch.largest_segment_ms >= wrong_since_ms:
                batch.known_from = max(batch.known_from, true_ms)

    def pause_counted(self, off_ms: int) -> None:
        """What was written before the machine was off may count as later, by as long as it was."""
        for batch in self.batches:
            batch.known_from += off_ms

    # --- what may go ------------------------------------------------------------------------------

    def check_deleted(
        self, segments: list[tuple[int, int]], now_ms: int, behind_ms: int | None
    ) -> None:
        """Judges segments (base, end) that a round of retention has just deleted, oldest first.

        `now_ms` is the true time with what is allowed, `behind_ms` how far the clock was behind,
        None if it was never wrong.
        """
        for base, end in segments:
            going = [batch for batch in self.batches if batch.base < end]
            if going and (going[0].base < base or going[-1].end > end):
                raise BrokenPromiseError(f"P1: {base}-{end} are no batches of the log")
            left = sum(batch.size for batch in self.batches[len(going) :])
            reasons = [
                self._not_by_start(end),
                self._not_by_size(left),
                self._not_by_age(going, now_ms),
                self._not_by_event(going, now_ms, behind_ms),
            ]
            if going and all(reasons):
                said = "; ".join(reason for reason in reasons if reason)
                raise BrokenPromiseError(f"P1/P2: {base}-{end} were deleted too early: {said}")
            del self.batches[: len(going)]
            self.log_start = max(self.log_start, end)
            self.deleted += len(going)

    def _not_by_start(self, end: int) -> str:
        return "" if end <= self.log_start else f"the log starts at {self.log_start}"

    def _not_by_size(self, left: int) -> str:
        limit = self.rules.retention_bytes
        return "" if 0 <= limit <= left else f"{left} bytes are left, of {limit}"

    def _not_by_age(self, going: list[Batch], now_ms: int) -> str:
        rules = self.rules
        if rules.retention_ms < 0:
            return "retention.ms is off"
        for batch in going:
            age = batch.appended if rules.by_append else batch.age()
            due = max(age + rules.retention_ms, batch.appended + rules.floor_ms)
            if due >= now_ms:
                return f"{batch.base} is due {due - now_ms} ms later by age"
        return ""

    def _not_by_event(self, going: list[Batch], now_ms: int, behind_ms: int | None) -> str:
        rules = self.rules
        if rules.event_ms < 0:
            return "event time is off"
        for batch in going:
            due = batch.appended + max(rules.grace_ms, rules.floor_ms)
            if due >= now_ms:
                return f"{batch.base} is due {due - now_ms} ms later by its grace or floor"
        largest = self._largest_event(now_ms, was_wrong=behind_ms is not None)
        for batch in going:
            events = [min(t, batch.appended + batch.ahead[0]) for t in batch.events()]
            if events and (
                largest is None or max(events) + rules.event_ms - (behind_ms or 0) >= largest
            ):
                return f"the event time {max(events)} of {batch.base} is kept at {largest}"
        return ""

    def _largest_event(self, now_ms: int, *, was_wrong: bool) -> int | None:
        if was_wrong:
            return now_ms + self.rules.ahead_ms
        return self.largest_event

    def count_events(self, early_ms: int) -> None:
        """Counts the event times of all batches that are there."""
        for batch in self.batches:
            ahead = batch.ahead[1] if batch.counted_ahead is None else batch.counted_ahead
            for time in batch.events():
                counted = min(time, batch.appended + ahead + early_ms)
                if self.largest_event is None or counted > self.largest_event:
                    self.largest_event = counted

    # --- what must be gone ------------------------------------------------------------------------

    def check_gone(self, true_ms: int, late_ms: int) -> None:
        """Demands that nothing is left that retention.ms had to delete by now."""
        rules = self.rules
        if rules.retention_ms < 0:
            return
        keep_ms = max(rules.retention_ms, rules.floor_ms)
        latest = None
        for batch in self.batches:
            moment = batch.known_from + batch.largest_segment_ms
            latest = moment if latest is None else max(latest, moment)
            if latest + keep_ms + late_ms < true_ms:
                over = true_ms - latest - keep_ms
                raise BrokenPromiseError(f"P1: {batch.base} is still there, {over} ms too long")
