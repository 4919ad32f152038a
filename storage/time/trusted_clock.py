"""Which time may delete: the wall clock, but never further than the machine has been running.

A wall clock can leap by decades and come back. The time since the machine started cannot (Linux:
CLOCK_BOOTTIME, which counts while the machine is suspended). So a *course* is kept: a wall time that
was trusted, and how long the machine had been running then. What is deleted is judged by the smaller of
the wall clock and the course. Each reading is judged by the first row that it fits:

| the clock shows | then | changes |
|---|---|---|
| less than at the last reading | it went back: the course goes on from here | `StepBack` |
| what the course says | it is right; a leap has ended, or a delay is made up | a step for the delay |
| what a course that it left says | it is right again, on that course | steps for all it overtakes |
| more; before, all was before the release | no right clock showed that: it is right now | the same |
| less than the course says | it is too slow, or has made up a part | a step for the part |
| more, by as much as before | the leap goes on | |
| more | it has leapt: the course goes on as before | `Leap` |

A difference of up to a tolerance does not count. An operator may accept a leap: then the clock is right.
A course that a step back has left is remembered until the machine restarts. What a leap showed is
remembered too, but never trusted, and so is what a slow clock showed that went back: all of it was
behind if a later time is trusted. After a restart of the machine the clock may be ahead by a pause
(`clock.start.pause.ms`), because nobody knows how long it was off. If a leap comes first, and then ends
on the course, what was stamped by the course meanwhile counts as later by what was missing.

Clocks are adjusted in small steps: the course follows the wall clock by one thousandth of the time
that passes. A clock that is wrong from the first reading on is not detected, and neither is one
that is ahead by less than the tolerance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.time.corrections import TOLERANCE_MS, ForwardStep, step_forward
from tidelog.storage.time.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable

_DRIFT = 1000  # the course follows the clock by 1 ms in so many
_MOST_LEFT = 8
_DOUBT_MS = 3_600_000  # a clock that went back is taken for wrong by append times for so long


class Reading(NamedTuple):
    """What the clocks of a machine show at one moment."""

    wall_ms: int
    elapsed_ms: int  # since the machine started, or since another event that `boot_id` identifies
    boot_id: str

    def at(self, elapsed_ms: int) -> int:
        """Returns what the clock shows later if it goes as time passes."""
        return self.wall_ms + elapsed_ms - self.elapsed_ms


class Course(NamedTuple):
    """A wall time that belongs to a time since the start of the machine."""

    wall_ms: int
    elapsed_ms: int
    began_ms: int = MIN_TIMESTAMP  # the first wall time on it, as far as is known
    pause_ms: int = 0  # by how much more the clock may be ahead, because the machine was off
    behind_ms: int = 0  # the most that it may be behind the right one, by what earlier boots showed

    def at(self, elapsed_ms: int) -> int:
        """Returns the wall time that belongs to a time since the start of the machine."""
        return self.wall_ms + elapsed_ms - self.elapsed_ms

    def ahead(self, reading: Reading) -> int:
        """Returns by how much a reading is ahead of this course."""
        return reading.wall_ms - self.at(reading.elapsed_ms)

    def has(self, reading: Reading) -> bool:
        """Returns whether a reading is on this course."""
        return -TOLERANCE_MS <= self.ahead(reading) <= TOLERANCE_MS + self.pause_ms

    def step(self, shift_ms: int, until_ms: int, reading: Reading) -> ForwardStep:
        """Returns the step forward of what the clock gave on this course."""
        return _step(self.began_ms, until_ms, shift_ms, reading.wall_ms)


class Leap(NamedTuple):
    """The clock went forward, and nothing proves that it is right."""

    from_ms: int  # what the course showed then
    to_ms: int


class StepBack(NamedTuple):
    """The clock went back: what was written later than `to_ms` was written by now."""

    from_ms: int
    to_ms: int


Change = Leap | StepBack | ForwardStep


def as_of(change: Change, now_ms: int) -> Change:
    """Returns a change as it corrects times now: what the clock gave since it went back stays."""
    if isinstance(change, StepBack):
        return change._replace(to_ms=max(change.to_ms, now_ms))
    return change


def corrected_time(change: Change, time_ms: int) -> int:
    """Returns what a time counts as that the clock gave before it changed."""
    if isinstance(change, Leap) or time_ms == NO_TIMESTAMP:
        return time_ms
    if isinstance(change, StepBack):
        return change.to_ms if change.to_ms < time_ms <= change.from_ms else time_ms
    return step_forward(0, 0, change).apply(time_ms)


class ClockState(NamedTuple):
    """All that is known about the clock, to be stored and to go on from."""

    last: Reading
    course: Course
    left: tuple[Course, ...] = ()  # courses that a step back left, and that were further ahead
    leap: Leap | None = None  # the clock is ahead of the course since then
    behind_ms: int = 0  # the most that the clock was behind the course since `behind_from_ms`
    behind_from_ms: int = 0
    leapt: tuple[Course, ...] = ()  # what the clock showed after leaps, until it changed again

    def remembering(self, shown: Course) -> ClockState:
        """Returns the state with one more course that is not trusted.

        Of too many, the two oldest are joined: what they gave was behind by the most that either was.
        """
        leapt = (*self.leapt, shown)
        if len(leapt) > _MOST_LEFT:
            first, last = sorted(leapt[:2], key=lambda each: each.at(shown.elapsed_ms))
            least_ms = first.at(shown.elapsed_ms) - first.behind_ms
            joined = last._replace(
                began_ms=min(first.began_ms, last.began_ms),
                behind_ms=max(last.behind_ms, last.at(shown.elapsed_ms) - least_ms),
            )
            leapt = (joined, *leapt[2:])
        return self._replace(leapt=leapt)

    def without_leap(self, until_ms: int, elapsed_ms: int) -> ClockState:
        """Returns the state after a leap that has ended, if there was one, and was not trusted."""
        if self.leap is None:
            return self
        began_ms = _time(self.leap.to_ms - 2 * TOLERANCE_MS)  # a leap is read within ten seconds
        return self.remembering(Course(until_ms, elapsed_ms, began_ms))._replace(leap=None)

    def without_delay(self, until_ms: int, elapsed_ms: int) -> ClockState:
        """Returns the state after a clock that was too slow, if it was, has gone back."""
        state = self
        if self.behind_ms > TOLERANCE_MS:
            state = self.remembering(Course(until_ms, elapsed_ms, self.behind_from_ms))
        return state._replace(behind_ms=0)

    def caught_up(self, until_ms: int, to_ms: int) -> list[Change]:
        """Returns the step of a clock that has made up its delay; empty if it had none."""
        if self.behind_ms <= TOLERANCE_MS:
            return []
        return [_step(self.behind_from_ms, until_ms, self.behind_ms, to_ms)]

    def overtaken(self, reading: Reading) -> list[ForwardStep]:
        """Returns the steps of all courses that a clock is ahead of now, and that is trusted.

        What the clock gave while it was on one of them was behind. It is not always known on which it
        gave a time. So the largest steps come first: then each time counts as the latest it may be.
        """
        ahead_ms = self.course.ahead(reading)
        until_ms = reading.wall_ms - ahead_ms + TOLERANCE_MS
        steps = _steps_behind(self.leapt, reading.wall_ms, reading)
        steps.append(self.course.step(ahead_ms + max(self.behind_ms, 0), until_ms, reading))
        for each in self.left:
            shift_ms = each.ahead(reading)
            if each.has(reading):  # the machine may have been off
                shift_ms = min(each.behind_ms, shift_ms)
            if shift_ms > TOLERANCE_MS:
                steps.append(each.step(shift_ms, each.wall_ms, reading))
        return _largest_first(steps)

    def trusted(self, reading: Reading, course: Course) -> ClockState:
        """Returns the state after a step forward, to a course, that is trusted."""
        left, leapt = (
            tuple(each for each in courses if each.ahead(reading) < -TOLERANCE_MS)
            for courses in (self.left, self.leapt)
        )
        return ClockState(reading, course, left, leapt=leapt)


class TrustedClock:
    """Follows the readings of a clock. One thread observes; any thread may ask for times."""

    def __init__(self, state: ClockState, *, released_ms: int, pause_ms: int) -> None:
        """Goes on from a stored state.

        Courses before `released_ms`, the release of this program, are wrong. `pause_ms` is how
        long a machine may be off.
        """
        self.state = state
        self._released_ms = released_ms
        self._pause_ms = pause_ms

    @classmethod
    def beginning(cls, reading: Reading, *, released_ms: int, pause_ms: int) -> TrustedClock:
        """Begins with a reading; nothing proves that it is right."""
        state = ClockState(reading, Course(reading.wall_ms, reading.elapsed_ms))
        return cls(state, released_ms=released_ms, pause_ms=pause_ms)

    def deletion_time(self, wall_ms: int, elapsed_ms: int) -> int:
        """Returns the time by which records, offsets and ids may be deleted now.

        Since the last reading it has gone on with the elapsed time at the most: a clock that was behind
        may be right again, and nobody knows yet what it stamped meanwhile.
        """
        state = self.state
        return min(wall_ms, _time(min(state.course.at(elapsed_ms), state.last.at(elapsed_ms))))

    def time_without_step_back(self, reading: Reading) -> int | None:
        """Returns what the clock would show now if it had not gone back; the largest, if it did twice.

        None if it did not, or longer ago than an hour.
        """
        state = self.state
        if not state.left or reading.wall_ms - state.course.began_ms > _DOUBT_MS:
            return None
        return _time(max(each.at(reading.elapsed_ms) for each in state.left))

    def is_steady(self, reading: Reading) -> bool:
        """Returns whether a clock that goes as time passes may show this after the last reading."""
        off_ms = reading.wall_ms - self.state.last.at(reading.elapsed_ms)
        return -TOLERANCE_MS <= off_ms <= TOLERANCE_MS

    @property
    def leap(self) -> Leap | None:
        """The leap that nobody has accepted, None if the clock is trusted."""
        return self.state.leap

    def observe(self, reading: Reading) -> list[Change]:
        """Takes a reading into account; returns how the clock has changed since the last one."""
        last, unread_ms = self.state.last, 0
        if reading.boot_id != last.boot_id or reading.elapsed_ms < last.elapsed_ms:
            self.state = self._in_new_boot(reading)
            unread_ms = TOLERANCE_MS  # the clock may have been used so long after the last reading
        last = self.state.last
        expected_ms = last.at(reading.elapsed_ms) + unread_ms
        judge = self._back if reading.wall_ms < last.wall_ms - TOLERANCE_MS else self._forward
        state, changes = judge(self.state, reading, expected_ms)
        self.state = state._replace(last=reading)
        return changes

    def accept(self, reading: Reading) -> list[ForwardStep]:
        """Trusts the clock although it has leapt; returns the steps, none if it had not."""
        state = self.state
        if state.leap is None:
            return []
        self.state = state.trusted(reading, _moved(state.course, reading))
        return state.overtaken(reading)

    def _in_new_boot(self, reading: Reading) -> ClockState:
        """Returns the state that goes on from the last reading: nobody knows how long the machine was off.

        A course that was left in another boot is not trusted any more. But if the clock was behind one,
        and is ahead now, it may have been behind until now.
        """
        state = self.state
        stopped_ms, course = state.last.elapsed_ms, state.course
        wall_ms = course.at(stopped_ms)
        behind_ms = max((course.behind_ms, *(each.at(stopped_ms) - wall_ms for each in state.left)))
        begun = state._replace(
            last=state.last._replace(elapsed_ms=reading.elapsed_ms, boot_id=reading.boot_id),
            course=Course(wall_ms, reading.elapsed_ms, course.began_ms, self._pause_ms, behind_ms),
            left=(),
            leapt=(),
        )
        left = (each._replace(pause_ms=0, behind_ms=0) for each in state.left)
        for each in (*state.leapt, *left):
            moved = each._replace(wall_ms=each.at(stopped_ms), elapsed_ms=reading.elapsed_ms)
            begun = begun.remembering(moved)
        return begun

    def _back(
        self, state: ClockState, reading: Reading, expected_ms: int
    ) -> tuple[ClockState, list[Change]]:
        """Returns the state after a clock that went back, and the changes."""
        changes: list[Change] = [StepBack(_time(expected_ms), reading.wall_ms)]
        elapsed_ms, course = reading.elapsed_ms, state.course
        course_ms = _time(course.at(elapsed_ms))
        after = state.without_leap(expected_ms, elapsed_ms).without_delay(expected_ms, elapsed_ms)
        if reading.wall_ms < course_ms - TOLERANCE_MS:
            passed_ms = elapsed_ms - state.last.elapsed_ms
            left = (*state.left, course._replace(wall_ms=course_ms, elapsed_ms=elapsed_ms))
            if len(left) > _MOST_LEFT:  # the first is the furthest ahead: it may be right
                after = after.remembering(left[1])
                left = (left[0], *left[2:])
            began = _from(reading, reading.wall_ms - passed_ms - TOLERANCE_MS)
            after = ClockState(reading, began, left, leapt=after.leapt)
        elif course.has(reading):
            after, more = self._on_course(after, reading, course_ms)
            changes += more
        elif state.leap is not None:  # it goes on
            after = after._replace(leap=state.leap._replace(to_ms=reading.wall_ms))
        return after, changes

    def _forward(
        self, state: ClockState, reading: Reading, expected_ms: int
    ) -> tuple[ClockState, list[Change]]:
        """Returns the state after a reading that is not before the last one, and the changes."""
        course, ahead_ms, elapsed_ms = state.course, state.course.ahead(reading), reading.elapsed_ms
        if course.has(reading):
            return self._on_course(
                state.without_leap(expected_ms, elapsed_ms), reading, expected_ms
            )
        returned = next((each for each in state.left if each.has(reading)), None)
        if returned is not None or (ahead_ms > 0 and self._is_impossible(state, reading)):
            state = state.without_leap(expected_ms, elapsed_ms)
            # If it returned, not from the reading: steps within the tolerance would add up.
            right = _moved(course, reading) if returned is None else _followed(returned, reading)
            return state.trusted(reading, right), [*state.overtaken(reading)]
        if ahead_ms < 0:
            return _too_slow(state, reading, expected_ms)
        if state.leap is not None and reading.wall_ms <= expected_ms + TOLERANCE_MS:
            return state, []
        # What it gave while it was behind is deleted by the course, which it has overtaken.
        course_ms = _time(course.at(elapsed_ms))
        caught_up = state.caught_up(min(expected_ms, course_ms), course_ms)
        leap = Leap(course_ms, reading.wall_ms)
        state = state.without_leap(expected_ms, elapsed_ms)
        return state._replace(leap=leap, behind_ms=0), [*caught_up, leap]

    def _on_course(
        self, state: ClockState, reading: Reading, until_ms: int
    ) -> tuple[ClockState, list[Change]]:
        """Returns the state on the course, and the changes; the clock showed `until_ms` last."""
        course = state.course
        course_ms, ahead_ms = course.at(reading.elapsed_ms), course.ahead(reading)
        steps: list[ForwardStep] = []
        behind_ms = course.behind_ms
        if ahead_ms > TOLERANCE_MS:
            # The machine was off, or the clock was behind until now, at most by what it is ahead.
            shift_ms = min(behind_ms, ahead_ms)
            if shift_ms > TOLERANCE_MS:
                steps = _steps_behind(state.leapt, course_ms + shift_ms, reading)
                steps.append(course.step(shift_ms, course_ms + TOLERANCE_MS, reading))
                behind_ms -= shift_ms
            if reading.elapsed_ms > course.elapsed_ms and ahead_ms > shift_ms + TOLERANCE_MS:
                # While a leap lasted, the course lacked the time for which the machine was off.
                since_boot = course._replace(began_ms=course.wall_ms)
                steps.append(since_boot.step(ahead_ms, course_ms + TOLERANCE_MS, reading))
        if course_ms >= self._released_ms and behind_ms > self._pause_ms:
            behind_ms = 0  # a return would be a leap
        followed = _followed(course, reading)._replace(behind_ms=behind_ms)
        caught_up = state.caught_up(until_ms, reading.wall_ms)
        changes = [*caught_up, *_largest_first(steps)]
        return state._replace(course=followed, behind_ms=0), changes

    def _is_impossible(self, state: ClockState, reading: Reading) -> bool:
        """Returns whether the clock has shown what no clock can, and none that is known was right.

        A course that was left in an earlier boot may have been right. The clock must not pass it by
        more than the machine may have been off.
        """
        elapsed_ms, course = reading.elapsed_ms, state.course
        if any(each.at(elapsed_ms) >= self._released_ms for each in (course, *state.left)):
            return False
        most_ms = course.at(elapsed_ms) + course.behind_ms
        reach_ms = most_ms + TOLERANCE_MS + self._pause_ms
        return most_ms < self._released_ms or reading.wall_ms <= reach_ms


def _too_slow(
    state: ClockState, reading: Reading, expected_ms: int
) -> tuple[ClockState, list[Change]]:
    """Returns the state of a clock that shows less than the course, and the step of what it made up."""
    behind_ms = -state.course.ahead(reading)
    began_ms = state.behind_from_ms if state.behind_ms else state.last.wall_ms
    made_up_ms, steps = state.behind_ms - behind_ms, list[Change]()
    if made_up_ms > TOLERANCE_MS and reading.wall_ms > expected_ms + TOLERANCE_MS:
        steps = [_step(began_ms, expected_ms, made_up_ms, reading.wall_ms)]
    else:
        behind_ms = max(state.behind_ms, behind_ms)
    return state._replace(behind_ms=behind_ms, behind_from_ms=began_ms, leap=None), steps


def _steps_behind(courses: Iterable[Course], right_ms: int, reading: Reading) -> list[ForwardStep]:
    """Returns the steps of courses that were behind a time that is right now."""
    shifts = ((each, right_ms - each.at(reading.elapsed_ms) + each.behind_ms) for each in courses)
    return [
        each.step(shift_ms, each.wall_ms, reading)
        for each, shift_ms in shifts
        if shift_ms > TOLERANCE_MS
    ]


def _largest_first(steps: list[ForwardStep]) -> list[ForwardStep]:
    return sorted(steps, key=lambda step: -step.shift_ms)


def _step(since_ms: int, until_ms: int, shift_ms: int, to_ms: int) -> ForwardStep:
    """Returns a step with all its numbers within the range of times."""
    return ForwardStep(_time(since_ms), _time(until_ms), _time(shift_ms), to_ms)


def _time(time_ms: int) -> int:
    """Returns a time within the range of times."""
    return max(MIN_TIMESTAMP, min(time_ms, MAX_TIMESTAMP))


def _from(reading: Reading, began_ms: int) -> Course:
    return Course(reading.wall_ms, reading.elapsed_ms, began_ms)


def _moved(course: Course, reading: Reading) -> Course:
    """Returns a course moved to a reading, so that another step concerns what this one has moved too."""
    began_ms = course.began_ms
    if began_ms != MIN_TIMESTAMP:
        began_ms = _time(began_ms + course.ahead(reading))
    return _from(reading, began_ms)


def _followed(course: Course, reading: Reading) -> Course:
    """Returns a course that follows the clock by as much as clocks are adjusted."""
    expected_ms = course.at(reading.elapsed_ms)
    if course.pause_ms and reading.wall_ms > expected_ms + TOLERANCE_MS:
        return _from(reading, course.began_ms)
    most_ms = (reading.elapsed_ms - course.elapsed_ms) // _DRIFT
    if not most_ms:
        return course._replace(pause_ms=0)
    moved_ms = min(max(reading.wall_ms - expected_ms, -most_ms), most_ms)
    return Course(expected_ms + moved_ms, reading.elapsed_ms, course.began_ms)
