"""What deletes while logs are corrected: the lowest time that was read since."""

from __future__ import annotations

from tidelog.storage.time.read_clock import ReadClock
from tidelog.storage.time.trusted_clock import Reading, TrustedClock

_RIGHT_MS = 1_800_000_000_000


def _reading(elapsed_ms: int, off_ms: int = 0) -> Reading:
    return Reading(_RIGHT_MS + elapsed_ms + off_ms, elapsed_ms, "boot")


def test_a_clock_that_stands_still_while_logs_are_corrected_deletes_nothing_once_it_is_right() -> (
    None
):
    trusted = TrustedClock.beginning(_reading(0), released_ms=0, pause_ms=0)
    clock = ReadClock(trusted)
    assert clock.read(_reading(1_000, 60_000))  # a leap, which the logs have to note
    assert clock.read(_reading(2_000))
    known = clock.known()
    for elapsed_ms in range(10_000, 60_000, 10_000):
        clock.read_late(_reading(elapsed_ms, 2_000 - elapsed_ms))
    assert clock.read_late(_reading(60_000))
    assert clock.deletion_time(_reading(61_000)) == _reading(61_000, -48_000).wall_ms
    clock.apply(known)
    assert clock.deletion_time(_reading(61_000)) == _reading(61_000, -48_000).wall_ms
    clock.apply(clock.known())
    assert clock.deletion_time(_reading(61_000)) == _reading(61_000).wall_ms
