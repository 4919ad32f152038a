"""A closed file of append times with any byte changed, cut anywhere, or another's: right or unknown."""

import logging
import struct

import pytest

from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.appended.entries import Cursor
from tidelog.storage.segment.appended.layout import UNKNOWN, Layout
from tidelog.storage.segment.named_file import NamedFile

BASE, END = 100, 130
ENTRIES = [(1000, 100), (1001, 105), (1002, 106), (UNKNOWN, 110), (1010, 115), (2000, 121)]


def truth(offset):
    time = [time for time, first in ENTRIES if first <= offset][-1]
    return None if time == UNKNOWN else time


def closed(path, base=BASE, entries=ENTRIES, end=END):
    times = AppendTimes(path, base)
    for time, offset in entries:
        times.append(time, offset)
    assert times.finish(end)
    return path.read_bytes()


def opened(path, base=BASE, end=END):
    times = AppendTimes(path, base)
    times.load()
    times.close_at(end)
    return times


def is_right(times, path):
    """Every question has the right answer, or the answer that it is unknown."""
    known = [times.at(offset) for offset in range(BASE, END)]
    for offset, time in enumerate(known, BASE):
        assert time in (None, truth(offset)), offset
    assert times.at(BASE - 1) is None
    assert times.is_complete == (None not in known)
    assert times.last_time in (None, *known, 2000, 1010, 1002, 1001, 1000)
    found = times.unknown_end(END)
    assert None not in known[found - BASE :]
    sent = held(times.entries_between(BASE, END - 1))
    assert [sent.get(offset) for offset in range(BASE, END)] == known
    for first in range(BASE, END):
        in_order = Cursor(times)
        assert [in_order.at(offset) for offset in range(first, END)] == known[first - BASE :]
    listed = held(b"".join(struct.pack(">qi", *entry) for entry in times.entries()))
    assert [listed.get(offset) for offset in range(BASE, END)] == known
    for first in range(BASE, END, 4):
        some = held(times.entries_between(first, first + 3))
        assert [some.get(offset) for offset in range(first, min(first + 4, END))] == (
            known[first - BASE : first - BASE + 4]
        )
    for time in (999, 1000, 1001, 1002, 1003, 1010, 1999, 2000, 2001):
        reached = times.first_reaching(time)
        later = [offset for offset in range(BASE, END) if (truth(offset) or 0) >= time]
        if reached.offset is not None:
            assert truth(reached.offset) >= time
        if later and reached.offset != later[0]:
            assert reached.unknown_from is not None, (time, reached)
            assert reached.unknown_from <= later[0], (time, reached)
    return known


def held(data):
    """Append times by offset, as one who gets the entries by Fetch reads them."""
    found, last = {}, None
    for time, offset in [*struct.iter_unpack(">qi", data), (None, END - BASE)]:
        if last is not None:
            for each in range(last[1], offset):
                found[BASE + each] = None if last[0] == UNKNOWN else last[0]
        last = time, offset
    return found


def test_a_whole_file_is_known(tmp_path):
    path = tmp_path / "a"
    closed(path)
    known = is_right(opened(path), path)
    assert known == [truth(offset) for offset in range(BASE, END)]


def damages():
    size = 8 + 16 * (len(ENTRIES) + 1)
    for at in range(size):
        for change in (0x01, 0xFF):
            yield (
                f"{at} ^ {change}",
                lambda data, at=at, change=change: (
                    data[:at] + bytes([data[at] ^ change]) + data[at + 1 :]
                ),
            )
        yield f"cut at {at}", lambda data, at=at: data[:at]
        if at % 3:
            continue
        yield f"zeros from {at}", lambda data, at=at: data[:at] + bytes(len(data) - at)
        yield f"a hole at {at}", lambda data, at=at: data[:at] + bytes(20) + data[at + 20 :]
        yield f"16 lost at {at}", lambda data, at=at: data[:at] + data[at + 16 :]
        yield f"16 twice at {at}", lambda data, at=at: data[: at + 16] + data[at:]


def test_damage_at_every_byte(tmp_path):
    path, count = tmp_path / "a", 0
    whole = closed(path)
    for name, damage in damages():
        data = damage(whole)
        path.write_bytes(data)
        try:
            known = is_right(opened(path), path)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
        count += 1
        if "^" in name and int(name.split()[0]) >= 8:
            # What another entry says is not lost with one.
            missing = [offset for offset, time in enumerate(known, BASE) if time is None]
            assert len(missing) <= 5 + 5 + 9, name
    assert count > 400


def test_a_damaged_header_is_never_one_of_the_other_version(tmp_path):
    path = tmp_path / "a"
    for data in (closed(path), Layout(BASE, 1).header + bytes(12)):
        for at in range(8):
            for byte in {0, 1, 2, 3, *range(65, 127), 255} - {data[at]}:
                path.write_bytes(data[:at] + bytes([byte]) + data[at + 1 :])
                assert not AppendTimes(path, BASE).load()


def test_after_damage_what_is_kept_and_added_is_right(tmp_path):
    """Truncated at any offset, and gone on with, a damaged file takes no entry for another's."""
    path = tmp_path / "a"
    whole = closed(path)
    for at in range(8, len(whole), 3):
        for cut in (101, 106, 112, 122, 130):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :])
            times = opened(path)
            known = [times.at(offset) for offset in range(BASE, cut)]
            times.settle()
            times.truncate(cut)
            if not times:
                times.mark_unknown()
            times.append(5000, cut)
            times.finish(cut + 3)
            for again in (times, opened(path, end=cut + 3)):
                found = [again.at(offset) for offset in range(BASE, cut)]
                assert all(a in (None, b) for a, b in zip(found, known, strict=True)), (at, cut)
                assert again.at(cut) == 5000
            assert opened(path, end=cut + 3).at(cut + 2) == 5000


def test_the_files_of_two_segments_exchanged(tmp_path):
    """Both segments begin with the same times at the same relative offsets."""
    path = tmp_path / "a"
    entries = [(time, offset + 900) for time, offset in ENTRIES]
    other = closed(tmp_path / "b", BASE + 900, entries, END + 900)
    path.write_bytes(other)
    assert not any(opened(path).at(offset) for offset in range(BASE, END))


@pytest.mark.parametrize(
    ("end", "last_time", "known"),
    [(END - 5, None, END - 5), (END - 5, 2000, BASE), (END + 5, None, END), (END + 5, 2000, END)],
)
def test_an_end_that_is_not_the_segments(tmp_path, end, last_time, known):
    """Somebody went on with the log; it is another's file; or a cleaning was interrupted."""
    path = tmp_path / "a"
    closed(path, end=end)
    times = AppendTimes(path, BASE)
    assert times.load()
    times.close_at(END, last_time)
    expected = [truth(offset) if offset < known else None for offset in range(BASE, END)]
    assert [times.at(offset) for offset in range(BASE, END)] == expected


@pytest.mark.parametrize(
    ("last_time", "durable", "known"),
    [
        (2000, BASE + 10, END),  # the last entry has the last batch's time: only the END is missing
        (2500, BASE + 10, END - 5),
        (2500, END - 2, END - 2),
        (2500, END, BASE),  # the file disagrees with what was durable: it is another's
        (2000, BASE, BASE),
        (2500, BASE, BASE),
    ],
)
def test_durable_entries_stay_where_a_power_loss_takes_the_newer_end(
    tmp_path, last_time, durable, known
):
    path = tmp_path / "a"
    closed(path, end=END - 5)
    times = AppendTimes(path, BASE)
    assert times.load()
    times.close_at(END, last_time, durable)
    expected = [truth(offset) if offset < known else None for offset in range(BASE, END)]
    assert [times.at(offset) for offset in range(BASE, END)] == expected


def test_a_file_with_entries_behind_the_segments_end_is_anothers(tmp_path):
    path = tmp_path / "a"
    closed(path, entries=[*ENTRIES, (3000, END)], end=END + 5)
    times = opened(path)
    assert not any(times.at(offset) for offset in range(BASE, END))


def test_an_end_is_not_missed_where_the_last_batch_has_the_last_time(tmp_path):
    path = tmp_path / "a"
    data = closed(path)
    for damaged in (data[:-16], data[:-1], data[:-9] + b"\xee" + data[-8:]):
        for last_time, known in ((2000, 2000), (1999, None), (None, None)):
            path.write_bytes(damaged)
            times = AppendTimes(path, BASE)
            assert times.load()
            times.close_at(END, last_time)
            assert [times.at(offset) for offset in (121, 122, 129)] == [2000, known, known]
            assert times.has_lost == (known is None)


def test_durable_entries_stay_where_a_power_loss_takes_the_only_end(tmp_path):
    path = tmp_path / "a"
    data = closed(path)
    for durable, known in ((END, END), (END - 2, END - 2), (BASE, 122)):
        path.write_bytes(data[:-16])
        times = AppendTimes(path, BASE)
        assert times.load()
        times.close_at(END, None, durable)
        expected = [truth(offset) if offset < known else None for offset in range(BASE, END)]
        assert [times.at(offset) for offset in range(BASE, END)] == expected


def test_one_log_line_says_which_file_and_from_where(tmp_path, caplog):
    path = tmp_path / "a"
    whole = closed(path)
    file = NamedFile(path)
    path.write_bytes(whole[:30] + b"\xee" + whole[31:])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            times = AppendTimes(file, BASE)
            times.load()
            times.close_at(END)
            [times.at(offset) for offset in range(BASE, END)]
    assert [(r.message, r.__dict__["file"], r.__dict__["from"]) for r in caplog.records] == [
        ("append times damaged", path, BASE + 1)
    ]
    caplog.clear()
    path.write_bytes(whole[:-16])
    opened(path)
    assert [(r.message, r.__dict__["from"]) for r in caplog.records] == [
        ("append times damaged", 122)
    ]


def test_a_file_of_version_1_needs_no_end(tmp_path):
    path = tmp_path / "a"
    layout = Layout(BASE, 1)
    packed = (layout.pack(n, time, offset - BASE) for n, (time, offset) in enumerate(ENTRIES))
    path.write_bytes(layout.header + b"".join(packed))
    times = opened(path)
    assert [times.at(offset) for offset in range(BASE, END)] == [
        truth(offset) for offset in range(BASE, END)
    ]
    assert not times.finish(END)
