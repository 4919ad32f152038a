"""Runs the scripts beside this file: time as a reader of the proposals understands it.

A script is divided by lines that begin with `===`; each part begins with nothing. Within a part,

    command argument=value ...
    ----
    what is expected, up to an empty line

Everything goes through the real storage on a real disk; the only clock is `now=`. What lies on the
disk is taken apart by stored_bytes.py, and what a consumer sees is read by kafka-python, so that
no code of ours judges itself. TIDELOG_REWRITE=1 writes what came out into the scripts: then review.

The commands are described in world.py.
"""

from __future__ import annotations

import os

import pytest

from tests.time.planting import (
    TO_DELETE,
    all_that_may_go,
    both,
    noting,
    patched,
    stamped,
    without_largest,
)
from tests.time.scripts import HERE, SCRIPTS, parse, unparse
from tests.time.world import run_part
from tests.time_rules import time_rules
from tidelog.storage.log import lookup
from tidelog.storage.log.producers.producer_state import Producers
from tidelog.storage.log.recovery import unknown_append_times
from tidelog.storage.log.times import partition_times
from tidelog.storage.segment import time_search
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.offset_index import OffsetIndex
from tidelog.storage.segment.segment import Segment
from tidelog.storage.segment.time_index import TimeIndex
from tidelog.storage.time.retention import aged_from
from tidelog.storage.time.rolling import should_roll


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(name, number, id=f"{name}:{part.title.strip('= ')}")
        for name, parts in SCRIPTS.items()
        for number, part in enumerate(parts)
        if any(isinstance(block, tuple) for block in part.blocks)
    ],
)
def test_script(name, number, tmp_path):
    part = SCRIPTS[name][number]
    if os.environ.get("TIDELOG_REWRITE") == "1":
        part.blocks = [
            (block[0], result[n]) if isinstance(block, tuple) else block
            for result in [run_part(part, tmp_path)]
            for n, block in enumerate(part.blocks)
        ]
        (HERE / name).write_text(unparse(SCRIPTS[name]))
        return
    for block, result in run_part(part, tmp_path).items():
        command, expected = part.blocks[block]
        assert result == expected, f"{name}: {part.title}: {command}"


def test_a_script_survives_parsing():
    for path in HERE.glob("*.txt"):
        assert unparse(parse(path.read_text())) == path.read_text()


def test_a_wrong_expectation_fails(tmp_path):
    (part,) = parse("topic\n----\nformat 1, CreateTime\n")
    assert run_part(part, tmp_path) == {1: ["format 2, CreateTime"]}
    assert part.blocks[1] == ("topic", ["format 1, CreateTime"])


# --- the scripts can fail ------------------------------------------------------------------------


PLANTS_32 = {
    "the append time goes back": patched(time_rules, "append_time", lambda _, now, **more: now),
    "the window lies around the append time": stamped(
        min_timestamp=lambda s, now: s.min_timestamp + (s.append_time_ms - now),
        max_timestamp=lambda s, now: min(s.max_timestamp + s.append_time_ms - now, 2**63 - 1),
    ),
    "the early edge is outside": stamped(min_timestamp=lambda s, _: s.min_timestamp + 1),
    "the late edge is outside": stamped(max_timestamp=lambda s, _: s.max_timestamp - 1),
    "there is no window": stamped(
        min_timestamp=lambda *_: -(2**63), max_timestamp=lambda *_: 2**63 - 1
    ),
    "the stamp is the clock's": stamped(append_time_ms=lambda _, now: now),
    "a LogAppendTime topic does not stamp": stamped(log_append_time=lambda *_: False),
    "every topic stamps": stamped(log_append_time=lambda *_: True),
    "the answer does not tell the stamp": patched(time_rules, "reported", lambda _: -1),
    "the answer always tells a stamp": patched(
        time_rules, "reported", lambda stamps: stamps.append_time_ms
    ),
    "append times are not kept": patched(AppendTimes, "append", lambda *_: None),
    "duplicates are stored again": patched(Producers, "check", lambda *_: None),
    "lookups take the last segment's word": patched(
        time_search, "find_time", lambda *_, **__: None
    ),
}


PLANTS_33 = {
    "an entry has the next offset": patched(
        TimeIndex, "append", lambda i, largest, offset: INDEX(i, largest, offset + 1)
    ),
    "a time that has not grown is indexed": patched(
        time_rules,
        "is_indexed",
        lambda largest, last: largest is not None and largest >= (-1 if last is None else last),
    ),
    "negative times are in Kafka's file": patched(time_rules, "count_negative", lambda *_: 0),
    "no time is indexed": patched(time_rules, "is_indexed", lambda *_: False),
    "lookups go to the last entry": patched(TimeIndex, "first_reaching", lambda i, _: i.last()),
    "lookups begin at the entry that reaches the time": patched(
        OffsetIndex, "floor", lambda i, offset: FLOOR(i, offset + 1)
    ),
    "roll and close add no entry": patched(Segment, "complete_indexes", lambda _: None),
    "a short index is believed": both(
        patched(
            Segment,
            "adopt",
            lambda segment, line, **known: ADOPT(
                segment, line._replace(index_entries=0, time_index_entries=0), **known
            ),
        ),
        patched(Segment, "_is_time_index_true", lambda _: True),
    ),
    "truncation keeps entries": patched(TimeIndex, "truncate", lambda *_: None),
    "the largest time is lost at a start": patched(
        Segment,
        "adopt",
        lambda segment, line, **known: ADOPT(
            segment, line._replace(times=without_largest(line.times)), **known
        ),
    ),
    "the future blocks retention": noting(
        lambda first, largest, offset, missing, _: (first, largest, offset, missing, 2**62)
    ),
    "a missing time ages nothing": noting(
        lambda first, largest, offset, _, append: (first, largest, offset, False, append)
    ),
    "a segment lasts one millisecond less": patched(
        time_rules,
        "aged_from",
        lambda times, retention: due if (due := AGED_FROM(times, retention)) is None else due - 1,
    ),
    "retention does not stop at the first that stays": patched(
        time_rules, "segments_to_delete", all_that_may_go
    ),
    "the active segment never goes": patched(
        time_rules,
        "segments_to_delete",
        lambda candidates, *a, **k: TO_DELETE(candidates, *a, **k)[: len(candidates) - 1],
    ),
    "the basis is the record's always": patched(time_rules, "APPEND_BASIS", "none"),
    "rolling goes by the append time": patched(
        time_rules,
        "should_roll",
        lambda times, _, *more: SHOULD_ROLL(times, None, *more),
    ),
    "rolling is one millisecond early": patched(
        time_rules,
        "should_roll",
        lambda times, largest, at, now, ms, least: SHOULD_ROLL(
            times, largest, at, now, ms - 1, least
        ),
    ),
    "old and new roll one each": patched(
        time_rules,
        "should_roll",
        lambda times, largest, at, now, ms, _: SHOULD_ROLL(times, largest, at, now, ms, 0),
    ),
    "nothing rolls by time": patched(time_rules, "should_roll", lambda *_: False),
    "append times are believed after a power loss": patched(
        unknown_append_times, "mark_unknown", lambda *_, **__: None
    ),
    "the log start is forgotten": patched(
        partition_times,
        "pack",
        lambda times: PACK(times._replace(log_start_offset=0)),
    ),
}
FLOOR, AGED_FROM, SHOULD_ROLL = OffsetIndex.floor, aged_from, should_roll
PACK, INDEX, ADOPT = partition_times.pack, TimeIndex.append, Segment.adopt
PLANTS = [("kip-32.txt", name, plant) for name, plant in PLANTS_32.items()]
PLANTS_ROLLING = {
    "a record time from the future counts as it came": patched(
        time_rules,
        "should_roll",
        lambda times, largest, at, now, ms, least: (
            SHOULD_ROLL(times, largest, at, now, ms, least)
            or (
                times.first is not None
                and largest is not None
                and at - times.created >= least
                and largest - times.first > ms
            )
        ),
    ),
    "a segment has no age by append time": patched(
        time_rules,
        "should_roll",
        lambda times, largest, at, now, ms, least: (
            SHOULD_ROLL(times, largest, at, now, ms, least)
            and largest is not None
            and largest - times.first > ms
        ),
    ),
    "the clock's own reading does not count": patched(
        time_rules,
        "should_roll",
        lambda times, largest, at, _, ms, least: SHOULD_ROLL(
            times, largest, at, times.created_clock or 0, ms, least
        ),
    ),
    "the clock's reading is not stored": patched(
        partition_times,
        "pack",
        lambda times: PACK(times._replace(segments=tuple(map(without_clock, times.segments)))),
    ),
    "old and new roll one each": PLANTS_33["old and new roll one each"],
}


def without_clock(line):
    """A segment's line that does not say what the clock showed."""
    times = line.times.copy()
    times.created_clock = None
    return line._replace(times=times)


PLANTS_COMPACTED = {
    "the answer does not say what is gone": patched(
        lookup, "_end_before", lambda _, reached: reached
    ),
    "the answer is where a batch begins": patched(
        lookup, "_first_present", lambda _segments, reached, _upper: reached
    ),
    "a record from the future wins": patched(time_rules, "comparison_limit", lambda *_: 2**63 - 1),
}
PLANTS_REFUSED = {
    "a start keeps what was refused": patched(
        partition_times, "pack", lambda times: PACK(times._replace(cut=None))
    ),
}
PLANTS += [("compacted-times.txt", name, plant) for name, plant in PLANTS_COMPACTED.items()]
PLANTS += [("refused-records.txt", name, plant) for name, plant in PLANTS_REFUSED.items()]
PLANTS += [("rolling.txt", name, plant) for name, plant in PLANTS_ROLLING.items()]
PLANTS += [("kip-33.txt", name, plant) for name, plant in PLANTS_33.items()]


@pytest.mark.parametrize(("script", "name", "plant"), PLANTS, ids=[name for _, name, _ in PLANTS])
def test_a_planted_mistake_is_caught(script, name, plant, tmp_path, monkeypatch):
    plant(monkeypatch)
    for number, part in enumerate(SCRIPTS[script]):
        results = run_part(part, tmp_path / str(number))
        if any(part.blocks[block][1] != result for block, result in results.items()):
            return
    pytest.fail(f"no script noticed that {name}")
