"""Which time may delete: the wall clock, but never further than the machine has been running.

A wall clock can leap by decades and come back. The time since the machine started cannot (Linux:
CLOCK_BOOTTIME, which counts while the machine is suspended). So a course is kept: a wall time that
was trusted, and how long the machine had been running then. What is deleted is judged by the smaller of
the wall clock and the course.

- A clock that is ahead of the course by more than a tolerance has leapt. The course goes on as before.
- A clock that goes back is a correction: the course goes on from there. The course that it left is
  remembered until the machine restarts.
- A leap that is followed by another step is remembered too, but never trusted, and so is a clock
  that was too slow and goes back. What it gave was behind, if a later time is trusted.
- A step forward is trusted if it ends on the course or on a remembered one, if the course was
  before the release of this program, or if an operator accepts it. From before the release, the
  clock must not pass a course that was left in an earlier boot by more than a pause.
- How long a machine was switched off is not known: at the first reading of another boot the clock
  may be ahead by a pause (`clock.start.pause.ms`). If a leap comes first, and then ends on the
  course, what was stamped by the course meanwhile counts as later by what was missing.

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
    from collections.abc import Iterable, Sequence

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

    def has(self, reading: Reading) -> bool:
        """Returns whether a reading is on this course."""
        ahead_ms = reading.wall_ms - self.at(reading.elapsed_ms)
        return -TOLERANCE_MS <= ahead_ms <= TOLERANCE_MS + self.pause_ms


class Leap(NamedTuple):
    """The clock went forward, and nothing says that it is right."""

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
        """Begins with a reading; nothing says whether it is right."""
        course = Course(reading.wall_ms, reading.elapsed_ms)
        state = ClockState(reading, course)
        return cls(state, released_ms=released_ms, pause_ms=pause_ms)

    def deletion_time(self, wall_ms: int, elapsed_ms: int) -> int:
        """Returns the time by which records, offsets and ids may be deleted now.

        Since the last reading it has gone on with the elapsed time at the most: a clock that was behind
        may be right again, and nobody knows yet what it stamped meanwhile.
        """
        state = self.state
        return min(wall_ms, _time(min(state.course.at(elapsed_ms), state.last.at(elapsed_ms))))

    def left_time(self, reading: Reading) -> int | None:
        """Returns what the clock would show now if it had not gone back; the latest, if it did twice.

        None if it did not, or longer ago than an hour.
        """
        state = self.state
        if reading.wall_ms - state.course.began_ms > _DOUBT_MS:
            return None
        left_ms = (each.at(reading.elapsed_ms) for each in state.left)
        latest_ms = max(left_ms, default=None)
        return None if latest_ms is None else _time(latest_ms)

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
        last = self.state.last
        unread_ms = 0  # how long the clock may have been used after the last reading
        if reading.boot_id != last.boot_id or reading.elapsed_ms < last.elapsed_ms:
            self._begin_boot(reading)
            unread_ms = TOLERANCE_MS
        state = self.state
        last, course = state.last, state.course
        passed_ms = reading.elapsed_ms - last.elapsed_ms
        expected_ms = last.at(reading.elapsed_ms) + unread_ms
        changes: list[Change] = []
        if reading.wall_ms < last.wall_ms - TOLERANCE_MS:
            last_ms = _time(course.at(reading.elapsed_ms))
            state = _without_delay(_without_leap(state, expected_ms, reading), expected_ms, reading)
            changes.append(StepBack(_time(expected_ms), reading.wall_ms))
            if reading.wall_ms < last_ms - TOLERANCE_MS:
                began_ms = reading.wall_ms - passed_ms - TOLERANCE_MS
                gone = course._replace(wall_ms=last_ms, elapsed_ms=reading.elapsed_ms)
                left, leapt = (*state.left, gone), state.leapt
                if len(left) > _MOST_LEFT:  # the first is the furthest ahead: it may be right
                    leapt = _with_remembered(leapt, left[1], reading.elapsed_ms)
                    left = (left[0], *left[2:])
                state = ClockState(reading, _from(reading, began_ms), left, leapt=leapt)
            elif course.has(reading):
                state, changed = self._on_course(state, reading, last_ms)
                changes += changed
            elif self.state.leap is not None:
                leap = self.state.leap._replace(to_ms=reading.wall_ms)
                state = state._replace(leap=leap)
        else:
            state, changed = self._forward(state, reading, expected_ms)
            changes += changed
        self.state = state._replace(last=reading)
        return changes

    def accept(self, reading: Reading) -> list[ForwardStep]:
        """Trusts the clock although it has leapt; returns the steps, none if it had not."""
        state = self.state
        if state.leap is None:
            return []
        shift_ms = reading.wall_ms - state.course.at(reading.elapsed_ms)
        self.state = _trusted(state, reading, _shifted(state.course, shift_ms))
        return _overtaken(state, reading)

    def _begin_boot(self, reading: Reading) -> None:
        """Lets the course go on from the last reading: nobody knows how long the machine was off."""
        state = self.state
        last = state.last._replace(elapsed_ms=reading.elapsed_ms, boot_id=reading.boot_id)
        wall_ms = state.course.at(state.last.elapsed_ms)
        # A course that was left in another boot is not trusted any more. But if the clock was
        # behind one, and is ahead now, it may have been behind until now.
        ahead = (each.at(state.last.elapsed_ms) - wall_ms for each in state.left)
        behind_ms = max((*ahead, state.course.behind_ms))
        began_ms = state.course.began_ms
        course = Course(wall_ms, reading.elapsed_ms, began_ms, self._pause_ms, behind_ms)
        leapt: tuple[Course, ...] = ()
        left = (Course(each.wall_ms, each.elapsed_ms, each.began_ms) for each in state.left)
        for each in (*state.leapt, *left):
            wall_ms = each.at(state.last.elapsed_ms)
            moved = each._replace(wall_ms=wall_ms, elapsed_ms=reading.elapsed_ms)
            leapt = _with_remembered(leapt, moved, reading.elapsed_ms)
        self.state = state._replace(last=last, course=course, left=(), leapt=leapt)

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

    def _on_course(
        self, state: ClockState, reading: Reading, until_ms: int
    ) -> tuple[ClockState, Sequence[Change]]:
        """Returns the state on the course, and the changes; the clock showed `until_ms` last."""
        course = state.course
        course_ms = course.at(reading.elapsed_ms)
        ahead_ms = reading.wall_ms - course_ms
        state = _without_leap(state, until_ms, reading)
        steps: list[ForwardStep] = []
        behind_ms = course.behind_ms
        if ahead_ms > TOLERANCE_MS:
            # The machine was off, or the clock was behind until now, at most by what it is ahead.
            shift_ms = min(behind_ms, ahead_ms)
            if shift_ms > TOLERANCE_MS:
                steps = _behind(state.leapt, course_ms + shift_ms, reading)
                steps.append(_step_of(course, shift_ms, course_ms + TOLERANCE_MS, reading))
                behind_ms -= shift_ms
            if reading.elapsed_ms > course.elapsed_ms and ahead_ms > shift_ms + TOLERANCE_MS:
                # While a leap lasted, the course lacked the time for which the machine was off.
                since_boot = course._replace(began_ms=course.wall_ms)
                steps.append(_step_of(since_boot, ahead_ms, course_ms + TOLERANCE_MS, reading))
        if course_ms >= self._released_ms and behind_ms > self._pause_ms:
            behind_ms = 0  # a return would be a leap
        followed = _followed(course, reading)._replace(behind_ms=behind_ms)
        caught_up = _caught_up(state, until_ms, reading.wall_ms)
        changes = [*caught_up, *sorted(steps, key=lambda step: -step.shift_ms)]
        return state._replace(course=followed, behind_ms=0), changes

    def _forward(
        self, state: ClockState, reading: Reading, expected_ms: int
    ) -> tuple[ClockState, Sequence[Change]]:
        """Returns the state after a reading that is not before the last one, and the changes."""
        course = state.course
        ahead_ms = reading.wall_ms - course.at(reading.elapsed_ms)
        if course.has(reading):
            return self._on_course(state, reading, expected_ms)
        returned = next((each for each in state.left if each.has(reading)), None)
        if returned is not None or (ahead_ms > 0 and self._is_impossible(state, reading)):
            began_ms = _shifted(course, ahead_ms) if returned is None else returned.began_ms
            state = _without_leap(state, expected_ms, reading)
            trusted, steps = _trusted(state, reading, began_ms), _overtaken(state, reading)
            if returned is not None:
                # Not from the reading: steps within the tolerance would add up.
                course = _followed(returned._replace(began_ms=began_ms), reading)
                trusted = trusted._replace(course=course)
            return trusted, steps
        if ahead_ms < 0:  # behind: the clock is too slow, or stood still and has made up a part
            began_ms = state.behind_from_ms if state.behind_ms else state.last.wall_ms
            made_up_ms = state.behind_ms + ahead_ms
            if made_up_ms > TOLERANCE_MS and reading.wall_ms > expected_ms + TOLERANCE_MS:
                step = _step(began_ms, expected_ms, made_up_ms, reading.wall_ms)
                return state._replace(behind_ms=-ahead_ms, behind_from_ms=began_ms, leap=None), [
                    step
                ]
            behind_ms = max(state.behind_ms, -ahead_ms)
            return state._replace(behind_ms=behind_ms, behind_from_ms=began_ms, leap=None), []
        if state.leap is not None and reading.wall_ms <= expected_ms + TOLERANCE_MS:
            return state, []
        # What it gave while it was behind is deleted by the course, which it has overtaken.
        to_ms = _time(course.at(reading.elapsed_ms))
        caught_up = _caught_up(state, min(expected_ms, to_ms), to_ms)
        leap = Leap(to_ms, reading.wall_ms)
        state = _without_leap(state, expected_ms, reading)
        return state._replace(leap=leap, behind_ms=0), [*caught_up, leap]


def _overtaken(state: ClockState, reading: Reading) -> list[ForwardStep]:
    """Returns the steps of all courses that a clock is ahead of now, and that is trusted.

    What the clock gave while it was on one of them was behind. It is not always known on which it
    gave a time. So the largest steps come first: then each time counts as the latest it may be.
    """
    course = state.course
    ahead_ms = reading.wall_ms - course.at(reading.elapsed_ms)
    steps = _behind(state.leapt, reading.wall_ms, reading)
    until_ms = course.at(reading.elapsed_ms) + TOLERANCE_MS
    shift_ms = max(ahead_ms, ahead_ms + state.behind_ms)
    steps.append(_step_of(course, shift_ms, until_ms, reading))
    for each in state.left:
        shift_ms = ahead_ms = reading.wall_ms - each.at(reading.elapsed_ms)
        if each.has(reading):  # the machine may have been off
            shift_ms = min(each.behind_ms, ahead_ms)
        if shift_ms > TOLERANCE_MS:
            steps.append(_step_of(each, shift_ms, each.wall_ms, reading))
    return sorted(steps, key=lambda step: -step.shift_ms)


def _behind(courses: Iterable[Course], right_ms: int, reading: Reading) -> list[ForwardStep]:
    """Returns the steps of courses that were behind a time that is right now."""
    steps = []
    for each in courses:
        shift_ms = right_ms - each.at(reading.elapsed_ms) + each.behind_ms
        if shift_ms > TOLERANCE_MS:
            steps.append(_step_of(each, shift_ms, each.wall_ms, reading))
    return steps


def _step_of(course: Course, shift_ms: int, until_ms: int, reading: Reading) -> ForwardStep:
    """Returns the step of a course, for what the clock gave on it."""
    return _step(course.began_ms, until_ms, shift_ms, reading.wall_ms)


def _without_leap(state: ClockState, until_ms: int, reading: Reading) -> ClockState:
    """Returns the state after a leap that has ended, if there was one, and was not trusted.

    Its course is remembered.
    """
    if state.leap is None:
        return state
    began_ms = _time(state.leap.to_ms - 2 * TOLERANCE_MS)  # a leap is read within ten seconds
    leapt = Course(until_ms, reading.elapsed_ms, began_ms)
    remembered = _with_remembered(state.leapt, leapt, reading.elapsed_ms)
    return state._replace(leap=None, leapt=remembered)


def _without_delay(state: ClockState, until_ms: int, reading: Reading) -> ClockState:
    """Returns the state after a clock that was too slow has gone back; what it showed is remembered."""
    if state.behind_ms <= TOLERANCE_MS:
        return state._replace(behind_ms=0)
    slow = Course(until_ms, reading.elapsed_ms, state.behind_from_ms)
    remembered = _with_remembered(state.leapt, slow, reading.elapsed_ms)
    return state._replace(behind_ms=0, leapt=remembered)


def _with_remembered(
    leapt: tuple[Course, ...], course: Course, elapsed_ms: int
) -> tuple[Course, ...]:
    """Returns courses that are not trusted, and one more.

    Of too many, the two oldest are joined: what they gave was behind by the most that either was.
    """
    leapt = (*leapt, course)
    if len(leapt) <= _MOST_LEFT:
        return leapt
    one, other, *rest = leapt
    first, last = sorted((one, other), key=lambda each: each.at(elapsed_ms))
    least_ms = first.at(elapsed_ms) - first.behind_ms
    joined = last._replace(
        began_ms=min(one.began_ms, other.began_ms),
        behind_ms=max(last.behind_ms, last.at(elapsed_ms) - least_ms),
    )
    return (joined, *rest)


def _shifted(course: Course, shift_ms: int) -> int:
    """Returns where a course began by a clock that shows so much more.

    Another step then concerns what this one has shifted too.
    """
    began_ms = course.began_ms
    return began_ms if began_ms == MIN_TIMESTAMP else _time(began_ms + shift_ms)


def _caught_up(state: ClockState, until_ms: int, to_ms: int) -> list[Change]:
    """Returns the step of a clock that has caught up with its course; empty if it was not behind."""
    if state.behind_ms <= TOLERANCE_MS:
        return []
    return [_step(state.behind_from_ms, until_ms, state.behind_ms, to_ms)]


def _time(time_ms: int) -> int:
    """Returns a time within the range of times."""
    return max(MIN_TIMESTAMP, min(time_ms, MAX_TIMESTAMP))


def _step(since_ms: int, until_ms: int, shift_ms: int, to_ms: int) -> ForwardStep:
    """Returns a step with all its numbers within the range of times."""
    return ForwardStep(_time(since_ms), _time(until_ms), _time(shift_ms), to_ms)


def _from(reading: Reading, began_ms: int) -> Course:
    return Course(reading.wall_ms, reading.elapsed_ms, began_ms)


def _trusted(state: ClockState, reading: Reading, began_ms: int) -> ClockState:
    """Returns the state after a step forward that is trusted."""
    left, leapt = (tuple(_still_ahead(each, reading)) for each in (state.left, state.leapt))
    return ClockState(reading, _from(reading, began_ms), left, leapt=leapt)


def _still_ahead(left: Iterable[Course], reading: Reading) -> list[Course]:
    return [each for each in left if each.at(reading.elapsed_ms) > reading.wall_ms + TOLERANCE_MS]


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
