"""The progress line: rate and time left, on a terminal and elsewhere."""

from __future__ import annotations

import io
import json
import re

import pytest

from tidelog.pipeline.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines_every_two_seconds(clock):
    stream = io.StringIO()
    with Progress("mirror", 1000, stream=stream, now_s=clock) as progress:
        for second in range(1, 6):
            clock.now_s = 100.0 + second
            progress.update(100 * second, note="n")
    told = lines(stream)
    assert [(one["state"], one["done"]) for one in told] == [
        ("running", 200),
        ("running", 400),
        ("done", 500),
    ]
    assert told[1] == {
        "job": "mirror",
        "state": "running",
        "done": 400,
        "total": 1000,
        "unit": "records",
        "per_second": 100,
        "seconds": 4.0,
        "seconds_left": 6.0,
        "note": "n",
    }


def test_the_rate_is_that_of_late(clock):
    progress = Progress("x", 10_000, stream=io.StringIO(), now_s=clock)
    for second in range(1, 31):
        clock.now_s = 100.0 + second
        progress.update(1000 if second <= 15 else 1000 + 10 * (second - 15))
    assert progress.rate_per_s == pytest.approx(10)
    assert progress.left_s == pytest.approx((10_000 - 1150) / 10)


def test_nobody_knows_what_is_left_without_a_total_or_a_rate(clock):
    progress = Progress("x", None, stream=io.StringIO(), now_s=clock)
    clock.now_s += 1
    progress.update(5)
    assert progress.left_s is None
    still = Progress("x", 5, stream=io.StringIO(), now_s=clock)
    assert still.left_s is None


def test_a_bar_on_a_terminal(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with Progress("mirror", 3_000_000, stream=stream, now_s=clock) as progress:
        clock.now_s += 4
        progress.update(1_000_000)
    text = plain(stream)
    assert re.search(
        r"mirror +\S+ +33% 1,000,000 of 3,000,000 records  250,000/s  0:00:08 left", text
    )
    assert "done in 0:00:04" in text
    assert "\n" not in text.strip()


def plain(stream):
    """What was written to a terminal, without colours and movements of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", stream.getvalue())


@pytest.mark.parametrize(("total", "shown"), [(None, "7 records"), (0, "0 of 0 records")])
def test_a_total_that_is_unknown_or_nothing(clock, monkeypatch, total, shown):
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with Progress("x [b]", total, stream=stream, now_s=clock) as progress:
        clock.now_s += 1
        progress.update(7)
    assert shown in plain(stream)
    assert "x [b]" in plain(stream)


def test_more_is_never_done_than_there_is(clock):
    """A target counts markers of transactions, and what others write, beside our records."""
    stream = io.StringIO()
    with Progress("mirror", 2_400_000, stream=stream, now_s=clock) as progress:
        clock.now_s += 3
        progress.update(2_400_006)
    assert [one["done"] for one in lines(stream)] == [2_400_000, 2_400_000]


def test_a_failure_is_told(clock):
    stream = io.StringIO()
    with pytest.raises(ValueError), Progress("x", 1, stream=stream, now_s=clock):
        raise ValueError
    assert [one["state"] for one in lines(stream)] == ["failed"]
