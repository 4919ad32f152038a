"""The trusted clock: leaps are not trusted, returns are, and nothing deletes early meanwhile."""

from __future__ import annotations

import pytest

from tidelog.storage.time.corrections import ForwardStep
from tidelog.storage.time.trusted_clock import (
    Leap,
    Reading,
    StepBack,
    TrustedClock,
    corrected_time,
)

_S = 1000
_DAY = 86_400 * _S
_YEAR = 365 * _DAY
_RELEASED = 50 * _YEAR
_RIGHT = 56 * _YEAR


class _Machine:
    """A machine whose wall clock the test sets; the time since its start always passes."""

    def __init__(self, wall_ms: int) -> None:
        self.wall_ms, self.elapsed_ms, self.boot = wall_ms, 5 * _S, 1
        self.clock = TrustedClock.beginning(
            self.reading(), released_ms=_RELEASED, pause_ms=30 * _DAY
        )

    def reading(self) -> Reading:
        return Reading(self.wall_ms, self.elapsed_ms, str(self.boot))

    def passes(self, ms: int, *, wall_ms: int | None = None) -> list[object]:
        """Lets time pass in steps of ten seconds, or once; returns all changes."""
        changes: list[object] = []
        steps = 1 if ms > _DAY else -(-ms // (10 * _S))
        for _ in range(steps):
            self.elapsed_ms += ms // steps
            self.wall_ms += (ms if wall_ms is None else wall_ms) // steps
            changes += self.clock.observe(self.reading())
        return changes

    def steps(self, ms: int) -> list[object]:
        self.wall_ms += ms
        return self.passes(10 * _S)

    def restarts(self, *, off_ms: int, step_ms: int = 0) -> list[object]:
        self.boot += 1
        self.elapsed_ms = 3 * _S
        self.wall_ms += off_ms + step_ms
        return list(self.clock.observe(self.reading()))

    @property
    def deletion_time(self) -> int:
        return self.clock.deletion_time(self.wall_ms, self.elapsed_ms)


@pytest.mark.parametrize("count", [8, 9, 20])
def test_a_clock_that_went_back_many_times_is_trusted_where_it_was_first(count: int) -> None:
    machine = _Machine(_RIGHT)
    shown = []
    for _ in range(count):
        machine.steps(-_DAY)
        shown.append(machine.wall_ms)
    changes = machine.steps(count * _DAY)
    assert machine.clock.leap is None
    assert machine.deletion_time == machine.wall_ms
    steps = [step for step in changes if isinstance(step, ForwardStep)]
    for time_ms in shown:  # what it gave meanwhile counts as later, wherever it was then
        for step in steps:
            time_ms = corrected_time(step, time_ms)  # noqa: PLW2901
        assert time_ms > machine.wall_ms - (count + 1) * 10 * _S


def test_a_clock_that_returns_a_little_beside_what_it_left_is_trusted_there_again() -> None:
    machine = _Machine(_RIGHT)
    machine.steps(-_DAY)
    machine.steps(_DAY - 9 * _S)
    machine.steps(-_DAY)
    machine.steps(_DAY + 18 * _S)
    assert machine.clock.leap is None


def test_a_boot_with_a_clock_that_is_ahead_is_trusted_when_it_is_corrected() -> None:
    machine = _Machine(_RIGHT)
    machine.passes(60 * _S)
    machine.restarts(off_ms=2 * _DAY, step_ms=10 * _YEAR)
    assert machine.deletion_time <= _RIGHT + 120 * _S
    booted_ms = machine.wall_ms - 10 * _YEAR - 2 * _DAY
    back, step = machine.steps(-10 * _YEAR)
    assert isinstance(back, StepBack)
    assert machine.clock.leap is None
    assert machine.deletion_time == machine.wall_ms
    # What was found by the course, while the leap lasted, was found two days later.
    assert isinstance(step, ForwardStep)
    assert step.since_ms <= booted_ms <= booted_ms + 10 * _S <= step.until_ms
    assert abs(step.shift_ms - 2 * _DAY) <= 20 * _S


def test_a_clock_that_was_behind_until_a_restart_names_it_after_a_leap_too() -> None:
    machine = _Machine(_RIGHT)
    machine.passes(60 * _S)
    machine.steps(-_DAY)
    since_ms = machine.wall_ms - 10 * _S
    machine.passes(3600 * _S)
    until_ms = machine.wall_ms
    (leap,) = machine.restarts(off_ms=60 * _S, step_ms=10 * _YEAR)
    assert isinstance(leap, Leap)
    back, *_, step = machine.steps(_DAY - 10 * _YEAR)
    assert isinstance(back, StepBack)
    assert isinstance(step, ForwardStep)
    assert abs(step.shift_ms - _DAY) <= 120 * _S
    assert step.since_ms <= since_ms <= until_ms <= step.until_ms


def test_a_leap_until_a_restart_was_behind_as_well() -> None:
    machine = _Machine(_RIGHT)
    machine.passes(60 * _S)
    machine.steps(-_DAY)
    machine.passes(60 * _S)
    machine.steps(_DAY // 2)
    machine.passes(60 * _S)
    last_ms = machine.wall_ms
    dip, leap = machine.restarts(off_ms=60 * _S, step_ms=_DAY // 2)
    assert isinstance(dip, ForwardStep)
    assert isinstance(leap, ForwardStep)
    assert abs(dip.shift_ms - _DAY) <= 120 * _S
    assert abs(leap.shift_ms - _DAY // 2) <= 120 * _S
    assert leap.since_ms <= last_ms <= leap.until_ms


def test_a_slow_clock_that_goes_back_was_behind_before() -> None:
    machine = _Machine(_RIGHT)
    machine.passes(60 * _S)
    since_ms = machine.wall_ms
    machine.passes(3600 * _S, wall_ms=0)
    (back,) = machine.restarts(off_ms=5 * _S, step_ms=-3 * _YEAR)
    assert isinstance(back, StepBack)
    dip, step = machine.steps(3 * _YEAR + 3600 * _S)
    assert isinstance(dip, ForwardStep)
    assert isinstance(step, ForwardStep)
    assert step.since_ms <= since_ms <= step.until_ms
    assert abs(step.shift_ms - 3600 * _S) <= 20 * _S


@pytest.mark.parametrize(("error_ms", "is_trusted"), [(0, True), (_YEAR, False)])
def test_a_clock_before_the_release_may_return_to_what_it_showed_before_a_restart(
    error_ms: int, is_trusted: bool
) -> None:
    """A machine without a battery is restarted twice before its clock is set."""
    machine = _Machine(_RIGHT)
    machine.passes(60 * _S)
    machine.restarts(off_ms=60 * _S, step_ms=-_RIGHT)
    machine.restarts(off_ms=60 * _S)
    machine.steps(_RIGHT + error_ms)
    assert (machine.clock.leap is None) == is_trusted


def test_a_time_since_the_start_that_goes_back_is_another_start() -> None:
    """A container may count from another moment, in the same boot."""
    machine = _Machine(_RIGHT)
    machine.passes(_DAY)
    machine.elapsed_ms, machine.wall_ms = 2 * _S, machine.wall_ms + _DAY
    assert machine.clock.observe(machine.reading()) == []
    assert machine.clock.leap is None
    assert machine.deletion_time == machine.wall_ms
    machine.elapsed_ms, machine.wall_ms = 1 * _S, machine.wall_ms + 31 * _DAY
    (leap,) = machine.clock.observe(machine.reading())
    assert isinstance(leap, Leap)


def test_no_number_leaves_the_range_of_times() -> None:
    least, most = -(2**63) + 2, 2**63 - 1
    machine = _Machine(_RIGHT)
    changes: list[object] = []
    for wall_ms in (most, least, most, _RIGHT, least, _RIGHT, most):
        machine.wall_ms = wall_ms
        machine.elapsed_ms += 2**62
        changes += machine.clock.observe(machine.reading())
        assert least <= machine.deletion_time <= most
    steps = machine.clock.accept(machine.reading())
    assert steps
    for change in [*changes, *steps]:
        assert all(-(2**63) <= each <= most for each in change)  # type: ignore[attr-defined]
    assert changes


def test_a_leap_from_behind_corrects_what_was_behind() -> None:
    machine = _Machine(_RIGHT)
    machine.passes(60 * _S)
    machine.passes(7 * _DAY, wall_ms=0)  # it stands still
    step, leap = machine.steps(7 * _DAY + 20 * _S)
    assert isinstance(step, ForwardStep)
    assert step.shift_ms == 7 * _DAY
    assert isinstance(leap, Leap)


def test_a_clock_that_was_behind_in_two_ways_is_corrected_for_both() -> None:
    machine = _Machine(_RIGHT)
    machine.passes(60 * _S)
    machine.steps(-_DAY)
    machine.passes(60 * _S)
    machine.steps(-_YEAR)
    machine.passes(60 * _S)
    steps = machine.steps(_YEAR + _DAY)
    assert [step.shift_ms for step in steps] == [_YEAR + _DAY, _DAY]


def test_a_clock_that_stood_before_the_release_does_not_pass_the_course_that_it_left() -> None:
    machine = _Machine(_RIGHT)
    machine.passes(60 * _S)
    machine.steps(10 * _S - _RIGHT)
    (leap,) = machine.steps(_RIGHT + 10 * _YEAR)
    assert isinstance(leap, Leap)


def test_a_clock_that_makes_up_a_part_of_what_it_was_behind_names_that_part() -> None:
    """The course was ahead from the start, so the clock stays behind it when it is set right."""
    machine = _Machine(_RIGHT + 20 * _S)
    assert machine.passes(3_600 * _S, wall_ms=0) == []
    (step,) = machine.steps(3_580 * _S)
    assert isinstance(step, ForwardStep)
    assert 3_550 * _S <= step.shift_ms <= 3_600 * _S
    assert step.until_ms >= _RIGHT + 20 * _S
    assert machine.passes(600 * _S) == []


def test_a_leap_that_leapt_again_was_behind_the_one_that_is_accepted() -> None:
    machine = _Machine(_RIGHT)
    machine.passes(60 * _S)
    machine.steps(-_YEAR)
    machine.passes(60 * _S)
    machine.steps(_YEAR - _DAY)
    first_ms = machine.wall_ms
    machine.passes(60 * _S)
    last_ms = machine.wall_ms
    machine.steps(20 * _YEAR)
    assert machine.clock.leap is not None
    course, leapt, *_ = machine.clock.accept(machine.reading())
    assert leapt.since_ms <= first_ms
    assert last_ms <= leapt.until_ms
    assert (leapt.shift_ms, course.shift_ms) == (20 * _YEAR, 21 * _YEAR - _DAY)


def test_a_leap_is_never_a_course_that_is_trusted() -> None:
    machine = _Machine(_RIGHT)
    machine.passes(60 * _S)
    machine.steps(_YEAR)
    machine.steps(-_YEAR)
    assert machine.clock.leap is None
    (leap,) = machine.steps(_YEAR)
    assert isinstance(leap, Leap)


def test_many_leaps_are_remembered_as_few() -> None:
    machine = _Machine(_RIGHT)
    machine.passes(60 * _S)
    machine.steps(-_YEAR)
    first_ms = machine.wall_ms + _DAY
    for _ in range(20):
        machine.steps(_DAY)
    machine.steps(_YEAR)
    steps = machine.clock.accept(machine.reading())
    shift_ms = machine.wall_ms - first_ms
    assert any(each.since_ms <= first_ms and each.shift_ms >= shift_ms - _DAY for each in steps)
    assert len(machine.clock.state.leapt) < 10


def test_a_slow_clock_that_is_set_to_less_than_its_course_was_behind_by_as_much() -> None:
    machine = _Machine(_RIGHT)
    machine.passes(60 * _S)
    machine.passes(3600 * _S, wall_ms=0)
    for _ in range(2):  # the second step ends on the course
        (step,) = machine.steps(1800 * _S)
        assert isinstance(step, ForwardStep)
        assert abs(step.shift_ms - 1800 * _S) <= _S
