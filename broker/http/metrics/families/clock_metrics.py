"""Metrics of the broker's clock: how far it is trusted, and how often it was corrected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.http.metrics.family import COUNTER, GAUGE, Family

if TYPE_CHECKING:
    from tidelog.broker.http.metrics.family import Samples, Scrape


def _leap(scrape: Scrape) -> Samples:
    yield (), scrape.clock.ahead_ms


def _behind(scrape: Scrape) -> Samples:
    yield (), scrape.clock.behind_ms


def _deletion_time(scrape: Scrape) -> Samples:
    yield (), scrape.clock.deletion_ms


def _leaps(scrape: Scrape) -> Samples:
    yield (), scrape.services.clock_watch.leaps


def _corrections(scrape: Scrape) -> Samples:
    watch = scrape.services.clock_watch
    yield ("back",), watch.steps_back
    yield ("forward",), watch.steps_forward


FAMILIES = (
    Family(
        "tidelog_clock_leap_ms",
        GAUGE,
        "How far the clock is ahead of the time by which records are deleted, after a leap that is not "
        "accepted; 0: there is none",
        (),
        _leap,
    ),
    Family(
        "tidelog_clock_behind_ms",
        GAUGE,
        "The most that the clock has been behind the time that the machine has been running; 0: it is not",
        (),
        _behind,
    ),
    Family(
        "tidelog_deletion_time_ms",
        GAUGE,
        "The time by which records and offsets are deleted; the clock's, unless that has leapt",
        (),
        _deletion_time,
    ),
    Family("tidelog_clock_leaps", COUNTER, "Leaps of the clock since the start", (), _leaps),
    Family(
        "tidelog_clock_corrections",
        COUNTER,
        "Steps of the clock since the start that correct it: back, or forward where that is trusted",
        ("direction",),
        _corrections,
    ),
)
