"""append-time.txt can fail: each mistake planted below must be noticed by one of its scripts."""

from __future__ import annotations

import pytest

from tests.time.planting import patched
from tests.time.scripts import SCRIPTS
from tests.time.world import run_part
from tests.time_rules import time_rules
from tidelog.storage.log import lookup
from tidelog.storage.log.recovery import unknown_append_times
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.appended.layout import UNKNOWN
from tidelog.storage.segment.segment import Segment

REACHING, REACH = AppendTimes.first_reaching, lookup._reach
APPEND, LOOK_UP, TIMES_OF = AppendTimes.append, lookup.find_append_time, lookup.times_of


def late_in_a_new_segment(times, append_time_ms, offset):
    """Write the first entry of a segment only when the millisecond changes."""
    if not len(times):
        APPEND(times, UNKNOWN, offset)
    elif append_time_ms != times.last_time:
        APPEND(times, append_time_ms, offset)


PLANTS = {
    "times of a truncated tail survive": patched(AppendTimes, "truncate", lambda *_: None),
    "a clock that goes back takes them back": patched(
        time_rules, "append_time", lambda _, now, **more: 0 if now == -1 else now
    ),
    "a stamp of -1 is given": patched(
        time_rules, "append_time", lambda last, now, **_: now if last is None else max(last, now)
    ),
    "the first entry of a new segment is forgotten": patched(
        AppendTimes, "append", late_in_a_new_segment
    ),
    "an equal time is passed over": patched(
        AppendTimes, "first_reaching", lambda times, at: REACHING(times, at + 1)
    ),
    "an earlier time is taken for equal": patched(
        AppendTimes, "first_reaching", lambda times, at: REACHING(times, at - 1)
    ),
    "what is unknown is guessed": patched(
        AppendTimes, "first_reaching", lambda *a: REACHING(*a)._replace(unknown_from=None)
    ),
    "times are believed after a power loss": patched(
        unknown_append_times, "mark_unknown", lambda *_, **__: None
    ),
    "a start forgets how far time had come": patched(
        unknown_append_times, "last_append_time", lambda *_: None
    ),
    "the first segment is passed over": patched(
        lookup, "_reach", lambda segments, *more: REACH(segments[1:] or segments, *more)
    ),
    "the log's start is not looked at": patched(
        lookup, "find_append_time", lambda *a, **k: LOOK_UP(*a, **{**k, "start_offset": 0})
    ),
    "the upper offset is not looked at": patched(
        lookup, "find_append_time", lambda *a, **k: LOOK_UP(*a, **{**k, "upper_offset": 2**62})
    ),
    "nothing is cut off with the log": patched(Segment, "cut", lambda *_: None),
    "what retention deleted has times": patched(
        lookup,
        "times_of",
        lambda segments, offset, **k: TIMES_OF(segments, max(offset, k["start_offset"]), **k),
    ),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_mistake_is_caught(name, tmp_path, monkeypatch):
    PLANTS[name](monkeypatch)
    for number, part in enumerate(SCRIPTS["append-time.txt"]):
        results = run_part(part, tmp_path / str(number))
        if any(part.blocks[block][1] != result for block, result in results.items()):
            return
    pytest.fail(f"no script noticed that {name}")
