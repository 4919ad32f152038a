"""Every fault that is injected in append times, or in a small file, is named and placed."""

from __future__ import annotations

import pytest

from tests.tidelog.dump.dumping import (
    BASE,
    META,
    dump,
    findings,
    judge,
    of,
    patch,
    text,
)
from tidelog.storage.log.times.partition_times import ClockMark, PartitionTimes, pack, parse
from tidelog.storage.segment.appended.layout import Layout
from tidelog.storage.segment.segment_line import SegmentLine
from tidelog.storage.time.adoption import Adopted
from tidelog.storage.time.corrections import NO_END_OFFSET, Correction, WrittenBehind, step_back
from tidelog.storage.time.segment_times import SegmentTimes


class TestAppendTimes:
    @pytest.fixture
    def times(self, copy):
        return copy / "t-0" / f"{BASE}.appendtimes"

    @pytest.fixture
    def following(self, times):
        """Where the next segment begins."""
        later = (int(log.stem) for log in times.parent.glob("*.log") if log.stem > times.stem)
        return min(later)

    @pytest.fixture(params=[1, 2])
    def put(self, request, times):
        """Changes an entry; in a file of version 2 with a CRC that is right for it."""
        base = int(times.stem)
        layout, new = Layout(base, request.param), Layout(base)
        data = times.read_bytes()[8:]
        old = [tuple(entry) for entry in new.parse(data, 0)]
        self.entries = old if request.param == 2 else old[:-1]  # version 1 has no END on closing

        def put(number, entry):
            self.entries[number : number + 1] = [entry]
            packed = (layout.pack(n, *each) for n, each in enumerate(self.entries))
            times.write_bytes(layout.header + b"".join(packed))

        put(0, self.entries[0])
        return put

    def test_a_time_that_goes_back(self, capsys, times, put):
        offset = self.entries[2][1]
        put(2, (999, offset))
        assert judge(capsys, times) == [("entry 2", "append time 999 after 1001")]
        _, rows = dump(capsys, times)
        assert of(rows, "entry")[2]["offset"] == offset

    def test_an_unknown_time_is_none_and_no_fault(self, capsys, times, put):
        put(2, (-(2**63), self.entries[2][1]))
        status, rows = dump(capsys, times)
        assert (status, of(rows, "entry")[2]["append_time"]) == (0, None)

    def test_the_end_is_told_and_no_fault(self, capsys, times, put, following):
        end = (-(2**63) + 1, following)
        if self.entries[-1][0] != end[0]:  # as flush mode writes it
            put(len(self.entries), end)
        status, rows = dump(capsys, times)
        assert (status, [row["durable_before"] for row in of(rows, "end")]) == (0, [following])
        put(len(self.entries), (9000, following + 10))
        count = len(of(rows, "entry"))
        assert count > 2
        faults = judge(capsys, times)
        assert faults[0] == (
            f"entry {count}",
            "an end before the end: nothing behind it is believed",
        )
        assert [where for where, _ in faults[1:]] in ([], ["end"])

    def test_an_offset_that_does_not_grow(self, capsys, times, put):
        put(1, (self.entries[1][0], 0))
        assert judge(capsys, times) == [("entry 1", "offset 0 does not come after the one before")]

    def test_a_damaged_entry(self, capsys, times):
        patch(times, 8 + 16 + 3, b"\xee")
        assert judge(capsys, times) == [
            ("entry 1", "its checksum is wrong: append times are unknown up to the next entry")
        ]
        _, rows = dump(capsys, times)
        assert len(of(rows, "end")) == 1

    def test_a_closed_file_without_its_end(self, capsys, times):
        whole = times.read_bytes()
        times.write_bytes(whole[:-16])
        assert judge(capsys, times) == [
            ("end", "it has none: behind the last entry append times are unknown")
        ]

    def test_an_end_at_another_offset_than_the_next_segment(self, capsys, times, following):
        data = times.read_bytes()
        end = Layout(int(times.stem)).pack(len(data) // 16 - 1, -(2**63) + 1, following + 3)
        times.write_bytes(data[:-16] + end)
        assert judge(capsys, times) == [
            ("end", f"it is at {following + 3}, and the next segment begins at {following}")
        ]

    def test_a_foreign_file(self, capsys, times):
        times.write_bytes(b"something else")
        ((where, what),) = judge(capsys, times)
        assert (where, "no file of append times" in what) == ("byte 0", True)


class TestSmallFiles:
    def test_a_snapshot_with_a_flipped_bit(self, capsys, copy):
        snapshot = max(copy.glob("t-0/*.snapshot"))
        patch(snapshot, 20, b"\xee")
        ((where, what),) = judge(capsys, snapshot)
        assert (where, "checksum" in what, str(snapshot) in what) == ("", True, False)

    def test_a_snapshot_from_the_future(self, capsys, copy):
        last = max(copy.glob("t-0/*.snapshot"))
        last = last.rename(last.with_name(f"{50:020d}.snapshot"))
        assert judge(capsys, last) == [
            ("producer 4", "its last batch ends with 119, not before 50")
        ]

    def times(self, copy, *segments):
        """A partition.times that says (base offset, end offset, size) of segments."""
        lines = tuple(
            SegmentLine(base, end, size, SegmentTimes(), 0, 0, is_true=True)
            for base, end, size in segments
        )
        data = pack(PartitionTimes(70, None, 0, 120, "a-boot", lines))
        path = copy / "t-0" / "partition.times"
        path.write_bytes(data)
        return path

    def test_times_of_a_partition(self, capsys, copy):
        path = self.times(copy, (0, 10, 5), (10, 20, 0))
        status, rows = dump(capsys, path)
        assert (status, findings(rows)) == (0, [])
        (partition,) = of(rows, "partition")
        assert (partition["max_event_time"], partition["last_append_time"]) == (70, None)
        assert (partition["covered_offset"], partition["boot_id"]) == (120, "a-boot")
        assert [row["end_offset"] for row in of(rows, "segment")] == [10, 20]
        status, lines = text(capsys, path)
        assert lines[-2] == f"{path}: ok, 2 segments"

    def test_times_of_a_partition_whose_clock_was_wrong(self, capsys, copy):
        path = self.times(copy, (0, 10, 5))
        times = parse(path.read_bytes())._replace(
            corrections=(step_back(7, 5_000), Correction(7, 9, 10, 20, 30, 40)),
            adopted=(Adopted(3, -7),),
            clock=ClockMark("a-clock", 4, (10, 40)),
            written_behind=WrittenBehind(8, NO_END_OFFSET, 20_000),
        )
        path.write_bytes(pack(times))
        status, rows = dump(capsys, path)
        assert (status, findings(rows)) == (0, [])
        (partition,) = of(rows, "partition")
        assert (partition["clock_history"], partition["clock_step"]) == ("a-clock", 4)
        (adopted,) = of(rows, "adopted")
        assert (adopted["end_offset"], adopted["adopted_time"]) == (3, -7)
        back, forward = of(rows, "correction")
        assert (back["end_offset"], back["since_time"], back["until_time"]) == (7, 5_000, None)
        assert (forward["start_offset"], forward["shift_ms"], forward["to_time"]) == (7, 30, 40)
        (written,) = of(rows, "written_behind")
        assert (written["start_offset"], written["end_offset"]) == (8, None)
        assert written["behind_ms"] == 20_000
        assert text(capsys, path)[0] == 0

    def test_times_with_a_flipped_bit(self, capsys, copy):
        path = self.times(copy, (0, 10, 5))
        patch(path, 30, b"\xee")
        ((where, what),) = judge(capsys, path)
        assert (where, "checksum" in what) == ("", True)

    def test_times_of_segments_that_do_not_follow(self, capsys, copy):
        path = self.times(copy, (0, 10, 5), (9, 20, 0))
        assert judge(capsys, path) == [("segment 9", "offset 10 or a later one belongs here")]

    def test_times_of_more_than_the_log_has(self, capsys, copy):
        size = (copy / "t-0" / f"{BASE}.log").stat().st_size
        path = self.times(copy, (0, 10, size + 1))
        assert judge(capsys, path) == [
            ("segment 0", f"it says {size + 1} bytes, and the log has {size}")
        ]

    @pytest.mark.parametrize(
        ("name", "text", "where", "what"),
        [
            *(
                ("recovery-point-offset-checkpoint", text, "", "")
                for text in ("\n", "1\n0\n", "0\n2\nt 0 5\n", "0\n1\nt 0\n", "0\n1\nt x 5\n")
            ),
            ("cleaner-offset-checkpoint", "0\n2\nt 0 17\n", "", "announces 2 entries and has 1"),
            ("log-start-offset-checkpoint", "0\n1\nt 0 -5\n", "t-0", ""),
            ("t-0/leader-epoch-checkpoint", "0\n2\n5 10\n4 20\n", "", "goes back at epoch 4"),
            (
                "t-0/partition.metadata",
                "version: 0\n",
                "",
                "is not a partition.metadata of version 0",
            ),
            ("meta.properties", "", "", "it names no version, or one that is neither 0 nor 1"),
            ("meta.properties", META.format(2, "node.id", 1), "", "it names no version, or one"),
            ("meta.properties", META.format(1, "broker.id", 1), "", "it names no node.id"),
            ("meta.properties", META.format(0, "broker.id", "one"), "", "it names no broker.id"),
            (
                "meta.properties",
                META.format(0, "broker.id", 1) + "torn",
                "",
                "'torn' is no propert",
            ),
        ],
    )
    def test_a_text_that_cannot_be(self, capsys, copy, name, text, where, what):
        path = copy / name
        path.write_text(text)
        ((found, said),) = judge(capsys, path)
        assert found == where
        assert said.startswith(what)
        assert said
        assert str(path) not in said
