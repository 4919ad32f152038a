"""The files about the clock: what is written is read, the newer of the two, and damage is named."""

import json
import zlib

import pytest

from tidelog.storage.directory.clock_file import StoredClock, read_clock, write_clock
from tidelog.storage.time.corrections import ClockHistory, ForwardStep
from tidelog.storage.time.trusted_clock import ClockState, Course, Leap, Reading, StepBack

FULL = StoredClock(
    7,
    ClockState(
        Reading(2**63 - 1, 5, "boot"),
        Course(1, 2, 3, 4),
        (Course(5, 6, 7, 8), Course(9, 10)),
        Leap(11, 12),
        13,
        -14,
        (Course(15, 16, 17, 18, 19),),
    ),
    ClockHistory("id", ((3, ForwardStep(1, 2, 3, 4)), (4, ForwardStep(5, 6, 7, 8)))),
    (StepBack(20, 1), StepBack(2, -3)),
)
BARE = StoredClock(1, ClockState(Reading(0, 0, ""), Course(0, 0)), ClockHistory("id"))


@pytest.mark.parametrize("stored", [FULL, BARE])
@pytest.mark.parametrize("durable", [True, False])
def test_what_is_written_is_read(tmp_path, stored, durable):
    write_clock(tmp_path, stored, durable=durable)
    assert read_clock(tmp_path) == (stored, [])


def test_nothing_was_written(tmp_path):
    assert read_clock(tmp_path) == (None, [])


@pytest.mark.parametrize("durable", [7, 8])
def test_the_newer_of_the_two_is_read(tmp_path, durable):
    write_clock(tmp_path, FULL._replace(serial=durable), durable=True)
    write_clock(tmp_path, FULL._replace(serial=15 - durable), durable=False)
    stored, _ = read_clock(tmp_path)
    assert stored.serial == 8


def test_a_power_loss_may_take_the_recent_one(tmp_path):
    write_clock(tmp_path, FULL, durable=True)
    write_clock(tmp_path, FULL._replace(serial=8), durable=False)
    (tmp_path / "recent-clock-checkpoint").write_bytes(b"")
    stored, wrong = read_clock(tmp_path)
    assert stored == FULL
    (sentence,) = wrong
    assert sentence.endswith(
        "recent-clock-checkpoint: it is not a file about the clock of version 1"
    )


def test_no_cut_and_no_changed_byte_is_believed(tmp_path):
    write_clock(tmp_path, FULL, durable=True)
    path = tmp_path / "clock-checkpoint"
    data = path.read_bytes()
    for at in range(len(data) - 1):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            path.write_bytes(damaged)
            stored, wrong = read_clock(tmp_path)
            assert stored is None or stored == FULL, (at, damaged)
            assert stored is not None or len(wrong) == 1


def test_a_file_of_an_older_tidelog_has_no_leaps_that_are_over_and_no_steps_back(tmp_path):
    write_clock(tmp_path, FULL, durable=True)
    path = tmp_path / "clock-checkpoint"
    version, _, body = path.read_bytes().splitlines()
    fields = json.loads(body)
    del fields["leapt"], fields["steps_back"]
    body = json.dumps(fields).encode()
    path.write_bytes(b"%s\n%08x\n%s\n" % (version, zlib.crc32(body), body))
    stored, wrong = read_clock(tmp_path)
    state = FULL.state._replace(leapt=())
    assert (stored, wrong) == (FULL._replace(state=state, steps_back=()), [])
