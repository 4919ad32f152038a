"""A power loss tears the append times in flush mode: what was committed stays known, and nothing is wrong.

Appends overwrite the END entry of the last commit, and the next one may be in a sector that was not
written. Here every sector that was written since the commit comes back in every state it ever had.
"""

from __future__ import annotations

import itertools
import shutil

import pytest

from tidelog.storage.log.times import partition_times
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.appended.checks import Stop
from tidelog.storage.segment.appended.layout import END, UNKNOWN, Layout

SECTOR = 512
FIRST_MS = 100
FLUSH_MODE = Stop(lost_power=True, keeps_end=True)


def states_of_sectors(files):
    """Return the states that each sector had in a growing file."""
    count = -(-max(map(len, files)) // SECTOR)
    parts = [[data[at * SECTOR : (at + 1) * SECTOR] for data in files] for at in range(count)]
    return [sorted(set(states), key=states.index) for states in parts]


def joined(sectors):
    """Return a file of these sectors; one that was never written holds zeros."""
    while sectors and not sectors[-1]:
        sectors = sectors[:-1]
    return b"".join([*(each.ljust(SECTOR, b"\0") for each in sectors[:-1]), *sectors[-1:]])


def appended(log, count):
    """Append batches, each in a millisecond of its own; return the file after each of them."""
    files = []
    for _ in range(count):
        end = log.partition.log_end_offset
        log.append([1], now=FIRST_MS + end)
        files.append(log.partition.segments[0].append_times.path.read_bytes())
    return files


def forget_boot(log):
    """Let the log be one of a machine that has lost its power since."""
    known = partition_times.read(log.directory)
    packed = partition_times.pack(known._replace(boot_id="an earlier boot"))
    partition_times.write(log.directory, packed, durable=False)


@pytest.mark.parametrize("committed", [29, 30, 31, 32, 33])
@pytest.mark.parametrize("later", [1, 2, 35])
@pytest.mark.parametrize("keeps_batches", [True, False])
def test_what_was_committed_stays_known(make_log, tmp_path, committed, later, keeps_batches):
    log = make_log(flush_messages=1).create()
    for _ in range(committed):
        appended(log, 1)
        log.partition.commit()
    path = log.partition.segments[0].append_times.path
    written = log.partition.segments[0].tail.size
    files = [path.read_bytes(), *appended(log, later)]
    log.crash()
    forget_boot(log)
    for sectors in itertools.product(
        *(states[:2] + states[-2:] for states in states_of_sectors(files))
    ):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        copy = log.copy_to(tmp_path / "copy")
        (copy.directory / path.name).write_bytes(joined(sectors))
        if not keeps_batches:
            file = copy.directory / path.with_suffix(".log").name
            file.write_bytes(file.read_bytes()[:written])
        for boot in ("the next boot", "one more"):
            copy.open(boot_id=boot)
            end = copy.partition.log_end_offset
            known = [copy.partition.reader.append_time_of(offset) for offset in range(end)]
            copy.crash()
            truth = [FIRST_MS + offset for offset in range(end)]
            assert known[:committed] == truth[:committed]
            assert all(time in (None, right) for time, right in zip(known, truth, strict=True))


def file_of(path, entries, base=100):
    layout = Layout(base)
    packed = [layout.pack(number, time, offset) for number, (time, offset) in enumerate(entries)]
    path.write_bytes(layout.header + b"".join(packed))
    times = AppendTimes(path, base)
    assert times.load()
    return times


def test_an_end_that_was_overwritten_vouches_by_the_entry_over_it(tmp_path):
    path = tmp_path / "a"
    times = file_of(path, [(5, 0), (7, 4), (9, 8)])
    assert not times.check(102, stop=FLUSH_MODE)
    assert times.end_offset == 108
    assert [times.at(offset) for offset in (103, 104, 107, 108)] == [5, 7, 7, None]
    assert path.read_bytes()[8 + 2 * 16 :] == (
        Layout(100).pack(2, UNKNOWN, 8) + Layout(100).pack(3, END, 8)
    )
    again = AppendTimes(path, 100)
    assert again.load()
    assert again.check(102, stop=FLUSH_MODE)


@pytest.mark.parametrize(
    ("durable", "stop"),
    [
        (108, FLUSH_MODE),
        (102, Stop(lost_power=True, keeps_end=False)),
        (102, Stop(lost_power=False, keeps_end=True)),
    ],
    ids=["durable", "not in flush mode", "killed"],
)
def test_nothing_is_missing_where_no_end_was_overwritten(tmp_path, durable, stop):
    path = tmp_path / "a"
    times = file_of(path, [(5, 0), (7, 4), (9, 8)])
    before = path.read_bytes()
    assert times.check(durable, stop=stop)
    assert path.read_bytes() == before


@pytest.mark.parametrize("number", [30, 31, 32])
def test_only_an_end_in_two_sectors_is_taken_for_torn(tmp_path, number):
    """Elsewhere an END entry with a wrong offset is damaged like any other."""
    path = tmp_path / "a"
    whole = [(1000 + at, at) for at in range(number)]
    file_of(path, [*whole, (END, number), (2000, 200), (END, 201)])
    data = bytearray(path.read_bytes())
    data[8 + 16 * number + 12 : 8 + 16 * (number + 1)] = Layout(100).pack(number, 7, number)[12:]
    path.write_bytes(data)
    times = AppendTimes(path, 100)
    assert times.load()
    assert not times.check(100)
    assert times.end_offset == (100 + number if number == 31 else 100)
    assert times.at(100 + number - 1) == 1000 + number - 1
    assert times.at(100 + number) is None


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level("CRITICAL", logger="tidelog.storage")
