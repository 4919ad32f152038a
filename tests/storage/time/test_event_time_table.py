"""Event-time retention in every combination deletes what its sentence says (`event_time_table`)."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.storage.time.event_time_table import DAY, EVENT, live_through, rows, shown
from tests.time_rules import time_rules
from tidelog.storage.log.times.largest_event import LargestEvent
from tidelog.storage.time.retention import _EventTimes, expires_from
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.timestamp import later


@pytest.fixture
def fast_directory(tmp_path):
    """A directory in memory, where there is one: the combinations make twenty thousand files."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        yield Path(directory)


def test_every_combination_deletes_what_its_sentence_says(fast_directory, capsys):
    sentences, deleted, wrong = (
        set(),
        dict.fromkeys(("retention.ms", "retention.bytes", EVENT), 0),
        [],
    )
    for number, row in enumerate(rows()):
        directory = fast_directory / str(number)
        directory.mkdir()
        rounds = live_through(row, directory)
        sentence = row.words() + ": " + "; ".join(f"{w}, {shown(e)}" for w, _, e in rounds) + "."
        sentences.add(sentence)
        for words, gone, expected in rounds:
            for _, policy in gone:
                deleted[policy] += 1
            if gone != expected:
                wrong.append(f"{sentence} But {words}, the log lost {shown(gone)}.")
    assert not wrong, f"{len(wrong)} of {number + 1}:\n" + "\n".join(wrong[:5])
    with capsys.disabled():
        print(f"\n{number + 1} combinations, {len(sentences)} sentences; deleted: {deleted}")
    assert number + 1 == len(sentences) == 2 * 3 * 2 * 2 * 2 * 3 * 2 * 5
    assert min(deleted.values()) > 200


def counted(times, append_time_ms):
    """Take a control batch's time for an event's."""
    NOTE_CONTROL(times, append_time_ms)
    times.event = later(append_time_ms + 5 * DAY, times.event)


NOTE_CONTROL, EXPIRES_FROM = SegmentTimes.note_control, expires_from
MISTAKES = {
    "control batches are counted": (SegmentTimes, "note_control", counted),
    "an absurd stamp counts as it came": (time_rules, "event_slack", lambda _: 2**62),
    "there is no grace": (
        time_rules,
        "expires_from",
        lambda times, rules, largest: EXPIRES_FROM(times, rules._replace(grace_ms=0), largest),
    ),
    "segments without event time hold back others": (
        _EventTimes,
        "times",
        lambda dated, number: dated._candidates[number].times(),
    ),
    "there is no largest event time": (LargestEvent, "below", lambda *_: None),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_injected_bug_contradicts_a_sentence(mistake, fast_directory, monkeypatch):
    monkeypatch.setattr(*MISTAKES[mistake])
    alone = (row for row in rows() if row.event >= 0 and row.ms < 0 and row.size < 0)
    for number, row in enumerate(alone):
        directory = fast_directory / str(number)
        directory.mkdir()
        if any(gone != expected for _, gone, expected in live_through(row, directory)):
            return
    pytest.fail(f"no sentence noticed that {mistake}")
