"""How long tombstones stay, to the millisecond."""

from tidelog.storage.time.tombstones import (
    counted_horizon,
    delete_horizon,
    is_past_horizon,
    keeps_old_tombstones,
    late_horizons_by,
    old_format_horizon,
    with_late_horizons,
)

HIGHEST = 2**63 - 1


def test_a_horizon_is_delete_retention_from_now():
    assert delete_horizon(1_000, 500) == 1_500
    assert delete_horizon(1_000, HIGHEST) == HIGHEST
    assert delete_horizon(-501, 500) == 0  # -1 would mean that there is no time


def test_a_batch_is_past_its_horizon_when_the_horizon_comes():
    assert not is_past_horizon(1_500, 1_499)
    assert is_past_horizon(1_500, 1_500)
    assert not is_past_horizon(None, HIGHEST)


def test_old_formats_count_from_the_last_append_of_the_clean_section():
    horizon = old_format_horizon(2_000, 500, 2_000)
    assert not keeps_old_tombstones(1_500, horizon)
    assert keeps_old_tombstones(1_501, horizon)


def test_old_formats_do_not_count_from_what_a_clock_that_leapt_has_appended():
    horizon = old_format_horizon(9_000, 500, 2_000)
    assert not keeps_old_tombstones(1_500, horizon)
    assert keeps_old_tombstones(1_501, horizon)


def test_old_formats_keep_all_tombstones_before_the_first_cleaning():
    assert keeps_old_tombstones(-(2**63), old_format_horizon(None, 0, 0))


def test_horizons_of_a_clock_that_was_behind_count_from_its_correction() -> None:
    late = with_late_horizons(None, 100, 5_000)
    assert [counted_horizon(h, late, 50) for h in (None, 99, 100, 5_049, 5_050, 9_000)] == [
        None,
        99,
        5_050,
        5_050,
        5_050,
        9_000,
    ]
    assert counted_horizon(100, None, 50) == 100
    assert with_late_horizons(late, 40, 300) == (40, 5_000)


def test_a_clock_that_goes_back_bounds_the_horizons_that_are_too_early() -> None:
    assert late_horizons_by((100, 5_000), 400) == (100, 400)
    assert late_horizons_by((100, 5_000), 6_000) == (100, 5_000)
    assert late_horizons_by(None, 6_000) is None
