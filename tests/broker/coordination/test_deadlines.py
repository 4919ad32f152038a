"""The timer of a coordinator: keys that come and go leave nothing behind."""

from __future__ import annotations

from types import SimpleNamespace

from tidelog.broker.coordination.deadlines import Deadlines


def test_keys_that_were_forgotten_do_not_fill_the_heap():
    reached = []
    clock = SimpleNamespace(steady_ms=lambda: 5_000)
    deadlines = Deadlines(clock, lambda key, now_ms: reached.append((key, now_ms)))
    for number in range(3):
        deadlines.set(f"kept-{number}", 4_000 + number)
    for number in range(20_000):
        deadlines.set(f"gone-{number}", 3_600_000)
        deadlines.forget(f"gone-{number}")
    assert len(deadlines._due) < 1_100
    deadlines._tick()
    assert reached == [(f"kept-{number}", 5_000) for number in range(3)]
