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

from tests.time.scripts import HERE, SCRIPTS, parse, unparse
from tests.time.world import run_part
from tests.time_rules import time_rules
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.offset_index import OffsetIndex

IN_EVERY_RUN = "=== It is of one topic, and survives a stop and a crash"


def marks_of(part):
    """A part with a broker starts a process; one of them is run with every change."""
    commands = [block[0] for block in part.blocks if isinstance(block, tuple)]
    is_slow = commands[0].split()[0] == "broker" and part.title != IN_EVERY_RUN
    return pytest.mark.slow if is_slow else ()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(name, number, id=f"{name}:{part.title.strip('= ')}", marks=marks_of(part))
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


# Rules replaced by wrong ones, each of which a part of its script has to notice.
APPEND_TIME, SHOULD_ROLL, EXCEEDS = (
    time_rules.append_time,
    time_rules.should_roll,
    time_rules.exceeds,
)
FLOOR, REACHING = OffsetIndex.floor, AppendTimes.first_reaching
BUGS = {
    "kip-32.txt": (time_rules, "append_time", lambda _, now, *__, **___: now),
    "kip-33.txt": (OffsetIndex, "floor", lambda index, offset: FLOOR(index, offset + 1)),
    "kip-228.txt": (
        time_rules,
        "exceeds",
        lambda time, largest: EXCEEDS(time, -1 if largest is None else largest),
    ),
    "rolling.txt": (time_rules, "should_roll", lambda *args: SHOULD_ROLL(*args[:-1], 0)),
    "event-time.txt": (time_rules, "expires_from", lambda *_: None),
    "append-time.txt": (
        AppendTimes,
        "first_reaching",
        lambda times, time: REACHING(times, time)._replace(unknown_from=None),
    ),
    "compacted-times.txt": (time_rules, "comparison_limit", lambda *_: 2**63 - 1),
}


@pytest.mark.parametrize("script", BUGS)
def test_a_wrong_rule_is_noticed(script, tmp_path, monkeypatch):
    monkeypatch.setattr(*BUGS[script])
    for number, part in enumerate(SCRIPTS[script]):
        results = run_part(part, tmp_path / str(number))
        if any(part.blocks[block][1] != result for block, result in results.items()):
            return
    pytest.fail("no part noticed")
