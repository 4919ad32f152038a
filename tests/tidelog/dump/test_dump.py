"""`tidelog dump`: honest files are found fine, every planted fault is named and placed, nothing changes."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from crc32c import crc32c

from protocol.records.batch import Record, build
from storage.log.times.partition_times import ClockMark, PartitionTimes, pack, parse
from storage.segment.appended.layout import Layout
from storage.segment.segment_line import SegmentLine
from storage.time.adoption import Adopted
from storage.time.corrections import Correction, step_back
from storage.time.segment_times import SegmentTimes
from tests.tidelog.dump.conftest import HEADERS, encoded
from tidelog.cli.parser import main

VECTORS = Path(__file__).parents[2] / "vectors" / "kafka-0.10.2.2"
BASE = "00000000000000000000"
KINDS = {
    "segment",
    "offset index",
    "time index",
    "append times",
    "producer snapshot",
    "partition times",
    "partition metadata",
    "leader epochs",
    "checkpoint",
}


def dump(capsys, *arguments):
    """Exit status and the objects that --json writes."""
    status = main(["dump", "--json", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert err == ""
    return status, [json.loads(line) for line in out.splitlines()]


def of(rows, kind):
    return [row for row in rows if row["kind"] == kind]


def findings(rows):
    return [(Path(row["file"]).name, row["where"], row["what"]) for row in of(rows, "finding")]


def whole(path):
    """Every file of a log directory that dump knows."""
    names = ("*checkpoint", "t-0/*")
    return sorted(file for name in names for file in path.glob(name) if file.is_file())


class TestHonest:
    def test_everything_that_storage_wrote(self, capsys, written):
        files = whole(written)
        kinds = {file.name if file.name[0] > "9" else file.suffix for file in files}
        assert kinds >= {".log", ".index", ".timeindex", ".appendtimes", ".snapshot"}
        assert kinds >= {"partition.times", "partition.metadata", "leader-epoch-checkpoint"}
        status, rows = dump(capsys, *files)
        assert findings(rows) == []
        assert status == 0
        verdicts = of(rows, "verdict")
        assert [row["file"] for row in verdicts] == [str(file) for file in files]
        assert all(row["is_ok"] for row in verdicts)
        assert sum(row.get("batches", 0) for row in verdicts) == 60
        assert sum(row.get("records", 0) for row in verdicts) == 120
        assert {row["what"] for row in verdicts} == KINDS

    def test_what_it_says_of_batches(self, capsys, written):
        _, rows = dump(capsys, *sorted(written.glob("t-0/*.log")))
        batches = of(rows, "batch")
        offset = 0
        for i, batch in enumerate(batches):
            assert batch["base_offset"] == batch["base_sequence"] == offset
            assert batch["count"] == 1 + i % 3
            offset += batch["count"]
            assert batch["last_offset"] == offset - 1
            assert batch["max_timestamp"] == 5000 + i
            assert batch["append_time"] == 1000 + i // 2
            assert batch["compression"] == ("none", "gzip", "lz4")[i % 3]
            assert (batch["magic"], batch["time_type"]) == (2, "CreateTime")
            assert (batch["producer_id"], batch["is_bad"]) == (4, False)

    def test_its_records(self, capsys, written):
        _, rows = dump(capsys, "--records", *sorted(written.glob("t-0/*.log")))
        offset = number = -1
        for row in rows:
            if row["kind"] == "batch":
                number += 1
                first = row["base_offset"]
            if row["kind"] != "record":
                continue
            offset += 1
            assert row["offset"] == offset
            assert row["timestamp"] == 5000 + number - (offset - first)
            assert (row["key"], row["value"]) == (f"k{number}", f"v{offset - first}")
            assert row["headers"] == [["h", "x"], ["bytes", {"hex": "ff"}], ["null", None]]
        assert (number, offset) == (59, 119)

    def test_its_snapshots_and_checkpoints(self, capsys, written):
        last = max(written.glob("t-0/*.snapshot"))
        _, rows = dump(
            capsys,
            last,
            written / "recovery-point-offset-checkpoint",
            written / "t-0" / "partition.metadata",
        )
        (producer,) = of(rows, "producer")
        assert (producer["producer_id"], producer["last_sequence"]) == (4, 119)
        assert (producer["first_offset"], producer["last_offset"]) == (117, 119)
        assert producer["append_time"] == 1029
        (point,) = of(rows, "offset")
        assert (point["topic"], point["partition"], point["offset"]) == ("t", 0, 120)
        assert of(rows, "topic")[0]["topic_id"] == "AAAAAAAAAAAAAAAAAAAABw"

    @pytest.mark.parametrize("directory", sorted(VECTORS.glob("f-*")), ids=lambda d: d.name)
    def test_what_a_kafka_0_10_wrote(self, capsys, directory):
        logs = sorted(directory.glob("*.log"))
        status, rows = dump(capsys, "--records", *logs, *sorted(directory.glob("*.index")))
        assert findings(rows) == []
        assert status == 0
        _, message_format, time_type, codec, producer, _ = directory.name.split("-")
        records = of(rows, "record")
        assert [row["offset"] for row in records] == list(range(200))
        assert [row["key"] for row in records] == [f"k{i}" for i in range(200)]
        if producer == "c0102":
            assert [row["timestamp"] for row in records] == [
                1_500_000_000_000 + 1000 * i for i in range(200)
            ]
        magic = 0 if message_format == "0.9.0.1" else 1
        for batch in of(rows, "batch"):
            assert (batch["magic"], batch["compression"]) == (magic, codec)
            assert batch["time_type"] == (time_type if magic else None)
            assert batch["append_time"] is None
        assert of(rows, "entry")
        assert of(rows, "room"), "the last index has preallocated zeros"

    def test_nothing_is_written(self, capsys, copy):
        def state():
            return {
                path: (path.stat().st_mtime_ns, path.read_bytes())
                for path in copy.rglob("*")
                if path.is_file()
            }

        torn = max(copy.glob("t-0/*.appendtimes"))
        torn.write_bytes(torn.read_bytes() + struct.pack(">qi", -5, 0) + b"torn")
        before = state()
        assert dump(capsys, *whole(copy))[0] == 1
        assert state() == before

    def test_empty_files(self, capsys, tmp_path):
        for suffix in (".log", ".index", ".timeindex", ".appendtimes"):
            (tmp_path / f"{BASE}{suffix}").touch()
        (tmp_path / "recovery-point-offset-checkpoint").touch()  # as Kafka leaves it for a while
        status, rows = dump(capsys, *sorted(tmp_path.iterdir()))
        assert (status, findings(rows)) == (0, [])
        assert len(of(rows, "verdict")) == 5

    def test_a_control_batch_and_an_empty_one(self, capsys, tmp_path):
        """A marker of a transaction, and what compaction leaves of a producer's last batch."""
        log = tmp_path / f"{BASE}.log"
        key, value = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 7)
        marker = build(
            [Record(0, 5, key, value)],
            producer_id=4,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
        emptied = bytearray(build([Record(1, 9, b"k", b"v")], producer_id=4, producer_epoch=0))
        del emptied[61:]
        emptied[8:12] = struct.pack(">i", 49)
        emptied[57:61] = struct.pack(">i", 0)
        emptied[17:21] = struct.pack(">I", crc32c(emptied[21:]))
        log.write_bytes(marker + emptied)
        status, rows = dump(capsys, "--records", log)
        assert (status, findings(rows)) == (0, [])
        first, second = of(rows, "batch")
        assert (first["is_control"], first["is_transactional"], first["count"]) == (True, True, 1)
        assert (second["count"], second["last_offset"], second["max_timestamp"]) == (0, 1, 9)


# --- faults --------------------------------------------------------------------------------------


def batches_of(path):
    """(position, size) of every batch."""
    data, found, position = path.read_bytes(), [], 0
    while position < len(data):
        size = 12 + struct.unpack_from(">i", data, position + 8)[0]
        found.append((position, size))
        position += size
    return found


def patch(path, position, data):
    held = bytearray(path.read_bytes())
    held[position : position + len(data)] = data
    path.write_bytes(held)


def patch_sealed(path, batch, position, data):
    """Change a field of a batch and make its checksum right again."""
    start, size = batch
    patch(path, start + position, data)
    held = path.read_bytes()[start : start + size]
    patch(path, start + 17, struct.pack(">I", crc32c(held[21:])))


def judge(capsys, *files):
    status, rows = dump(capsys, *files)
    assert status == 1
    by_file = {Path(row["file"]).name: row for row in of(rows, "verdict")}
    for name, row in by_file.items():
        found = sum(each[0] == name for each in findings(rows))
        assert (row["is_ok"], row["findings"]) == (not found, found)
    return [(where, what) for _, where, what in findings(rows)]


class TestSegments:
    @pytest.fixture
    def log(self, copy):
        return copy / "t-0" / f"{BASE}.log"

    def test_a_flipped_bit(self, capsys, log):
        (position, _), (following, size) = batches_of(log)[3:5]
        held = log.read_bytes()[following - 1]
        patch(log, following - 1, bytes([held ^ 1]))
        assert judge(capsys, log) == [(f"byte {position}", "the batch fails its CRC")]
        _, rows = dump(capsys, log)
        bad = [row["position"] for row in of(rows, "batch") if row["is_bad"]]
        assert bad == [position]
        assert of(rows, "batch")[4]["position"] == following
        assert of(rows, "batch")[4]["size"] == size

    def test_a_torn_batch(self, capsys, log):
        position, size = batches_of(log)[-1]
        log.write_bytes(log.read_bytes()[:-3])
        assert judge(capsys, log) == [
            (f"byte {position}", f"cut: a batch of {size} bytes, and {size - 3} up to the end")
        ]

    def test_a_few_bytes_more(self, capsys, log):
        size = log.stat().st_size
        log.write_bytes(log.read_bytes() + b"\0\0\0\0\0\0\1")
        assert judge(capsys, log) == [
            (f"byte {size}", "cut: 7 bytes up to the end, too few for a batch")
        ]

    def test_zeros_at_the_end(self, capsys, log):
        size = log.stat().st_size
        log.write_bytes(log.read_bytes() + bytes(5000))
        assert judge(capsys, log) == [(f"byte {size}", "5000 bytes of zeros up to the end")]

    def test_an_impossible_size(self, capsys, log):
        position = batches_of(log)[2][0]
        rest = log.stat().st_size - position
        patch(log, position + 8, struct.pack(">i", 3))
        ((where, what),) = judge(capsys, log)
        assert where == f"byte {position}"
        assert what.endswith(f"; {rest} bytes up to the end not read")

    def test_an_impossible_magic(self, capsys, log):
        position = batches_of(log)[2][0]
        patch(log, position + 16, b"\x09")
        ((where, what),) = judge(capsys, log)
        assert where == f"byte {position}"
        assert "magic" in what

    def test_a_header_that_lies_about_the_largest_time(self, capsys, log):
        batch = batches_of(log)[1]
        patch_sealed(log, batch, 35, struct.pack(">q", 9_999_999))
        assert judge(capsys, log) == [
            (f"byte {batch[0]}", "the header's largest time is 9999999, the records' 5001")
        ]

    def test_a_header_that_lies_about_the_count(self, capsys, log):
        batch = batches_of(log)[2]
        patch_sealed(log, batch, 57, struct.pack(">i", 2))
        ((where, what),) = judge(capsys, log)
        assert where == f"byte {batch[0]}"
        assert "number of records" in what

    def test_offsets_that_do_not_grow(self, capsys, log):
        position = batches_of(log)[4][0]
        patch(log, position, struct.pack(">q", 1))
        assert judge(capsys, log) == [
            (f"byte {position}", "offset 1 where 7 or a later one belongs")
        ]

    def test_a_segment_under_a_wrong_name(self, capsys, log):
        renamed = log.with_name(f"{500:020d}.log")
        log.rename(renamed)
        found = judge(capsys, renamed)
        assert found[0] == ("byte 0", "offset 0 where 500 or a later one belongs")

    def test_a_wrapper_that_lies_about_its_offset(self, capsys, tmp_path):
        log = tmp_path / f"{BASE}.log"
        data = bytearray(
            build([Record(i, 5, b"k", b"v") for i in range(3)], magic=1, compression=1)
        )
        data[0:8] = struct.pack(">q", 7)
        # Inner offsets count from the wrapper's last: the batch moves, and its header stays true.
        log.write_bytes(data)
        status, rows = dump(capsys, log)
        assert (status, of(rows, "batch")[0]["base_offset"]) == (0, 5)
        data = bytearray(
            build([Record(i, 5, b"k", b"v") for i in range(3)], magic=0, compression=1)
        )
        data[0:8] = struct.pack(">q", 7)
        log.write_bytes(data)
        assert judge(capsys, log) == [("byte 0", "the header's offset is 7, the last record's 2")]


class TestIndexes:
    @pytest.fixture
    def index(self, copy):
        return copy / "t-0" / f"{BASE}.index"

    @staticmethod
    def entries(index):
        return list(struct.iter_unpack(">ii", index.read_bytes()))

    def test_an_entry_that_leads_astray(self, capsys, index):
        offset, position = self.entries(index)[1]
        patch(index, 12, struct.pack(">i", position + 1))
        assert judge(capsys, index) == [
            ("entry 1", f"no batch that ends with {offset} is at byte {position + 1} of the log")
        ]

    def test_an_entry_with_a_wrong_offset(self, capsys, index):
        offset, position = self.entries(index)[1]
        patch(index, 8, struct.pack(">i", offset + 1))
        assert judge(capsys, index) == [
            ("entry 1", f"no batch that ends with {offset + 1} is at byte {position} of the log")
        ]

    def test_an_entry_beyond_the_log(self, capsys, index):
        count, size = len(self.entries(index)), index.with_suffix(".log").stat().st_size
        index.write_bytes(index.read_bytes() + struct.pack(">ii", 900, size))
        assert judge(capsys, index) == [
            (f"entry {count}", f"no batch that ends with 900 is at byte {size} of the log")
        ]

    def test_entries_that_do_not_grow(self, capsys, index):
        first, second = self.entries(index)[:2]
        patch(index, 0, struct.pack(">iiii", *second, *first))
        assert judge(capsys, index) == [("entry 1", "offset and position do not both grow")]

    def test_without_its_log_it_is_judged_alone(self, capsys, index):
        index.with_suffix(".log").unlink()
        patch(index, 12, struct.pack(">i", 10**6))
        status, rows = dump(capsys, index)
        grows = len(self.entries(index)) <= 2
        assert (status, findings(rows)) == (
            (0, [])
            if grows
            else (1, [(index.name, "entry 2", "offset and position do not both grow")])
        )

    def test_a_torn_entry(self, capsys, index):
        size = index.stat().st_size
        index.write_bytes(index.read_bytes() + b"\0\0\1")
        assert judge(capsys, index) == [
            (f"byte {size}", "cut: 3 bytes behind the last whole entry")
        ]


class TestTimeIndexes:
    """A log of twelve batches of two records with times 100, 99, 110, 109, ... and an index for it."""

    @pytest.fixture
    def index(self, tmp_path):
        log = tmp_path / f"{BASE}.log"
        log.write_bytes(
            b"".join(
                build([Record(2 * i + n, 100 + 10 * i - n, b"k", b"v") for n in range(2)])
                for i in range(12)
            )
        )
        index = log.with_suffix(".timeindex")
        self.write(index, *((100 + 10 * i, 2 * i + 1) for i in (2, 5, 11)))
        return index

    @staticmethod
    def write(index, *entries):
        index.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))

    def test_a_good_one(self, capsys, index):
        status, rows = dump(capsys, index)
        assert (status, findings(rows)) == (0, [])
        assert [(row["timestamp"], row["offset"]) for row in of(rows, "entry")] == [
            (120, 5),
            (150, 11),
            (210, 23),
        ]

    def test_negative_times(self, capsys, tmp_path):
        log = tmp_path / f"{BASE}.log"
        sent = [[Record(i, 5 * i - 20, b"k", b"v")] for i in range(6)]
        log.write_bytes(b"".join(map(build, sent)))
        path = log.with_suffix(".negativetimes")
        packed = [struct.pack(">qi", *entry) for entry in ((-15, 1), (-5, 3))]
        path.write_bytes(b"tidn\0\0\0\1" + b"".join(packed))
        status, rows = dump(capsys, path)
        assert (status, findings(rows)) == (0, [])
        found = [(row["timestamp"], row["offset"]) for row in of(rows, "entry")]
        assert found == [(-15, 1), (-5, 3)]
        for data, where, what in (
            (b"tidn\0\0\0\2" + packed[0], "byte 0", "newer version"),
            (b"tidn\0\0\0\1" + packed[0] + b"x", "byte 20", "cut: 1 byte "),
            (b"tidn\0\0\0\1" + packed[1] + packed[0], "entry 1", "not read on"),
            (b"tidn\0\0\0\1" + struct.pack(">qi", 5, 5), "entry 0", "not read on"),
            (b"tidn\0\0\0\1" + struct.pack(">qi", -14, 1), "entry 0", "largest time of its batch"),
        ):
            path.write_bytes(data)
            status, rows = dump(capsys, path)
            ((name, place, found),) = findings(rows)
            assert (status, name, place) == (1, path.name, where)
            assert what in found

    def test_what_kafka_0_10_wrote(self, capsys):
        paths = sorted(VECTORS.glob("f-*/*.timeindex"))
        status, rows = dump(capsys, *paths)
        assert (status, findings(rows)) == (0, [])
        timed = [row for row in of(rows, "entry") if "c0102" in row["file"]]
        assert timed
        for row in timed:
            assert row["timestamp"] == 1_500_000_000_000 + 1000 * row["offset"]
        # The client 0.9 sends no times. Under CreateTime there is nothing to index.
        assert not [
            row for row in of(rows, "entry") if "CreateTime" in row["file"] and row not in timed
        ]

    def test_a_time_its_batch_does_not_have(self, capsys, index):
        self.write(index, (120, 5), (155, 11))
        assert judge(capsys, index) == [("entry 1", "the largest time of its batch is 150")]

    def test_an_offset_the_log_does_not_have(self, capsys, index):
        self.write(index, (120, 5), (210, 23), (300, 24))
        assert judge(capsys, index) == [("entry 2", "no batch of the log holds offset 24")]

    def test_a_time_that_was_reached_before(self, capsys, index):
        log = index.with_suffix(".log")
        early = build([Record(0, 9_000, b"k", b"v"), Record(1, 1, b"k", b"v")])
        log.write_bytes(early + log.read_bytes()[batches_of(log)[1][0] :])
        assert judge(capsys, index) == [
            (f"entry {n}", "time 9000 comes before its batch") for n in range(3)
        ]

    @pytest.mark.parametrize("entry", [(120, 11), (119, 11), (150, 5), (150, 4)])
    def test_entries_that_do_not_grow(self, capsys, index, entry):
        self.write(index, (120, 5), entry)
        assert judge(capsys, index) == [
            ("entry 1", "time and offset do not both grow; not read on")
        ]

    def test_a_torn_entry(self, capsys, index):
        index.write_bytes(index.read_bytes() + b"torn")
        assert judge(capsys, index) == [("byte 36", "cut: 4 bytes behind the last whole entry")]

    def test_room_that_is_preallocated(self, capsys, index):
        index.write_bytes(index.read_bytes() + bytes(60))
        status, rows = dump(capsys, index)
        assert (status, [row["zeros"] for row in of(rows, "room")]) == (0, [60])

    def test_without_its_log_it_is_judged_alone(self, capsys, index):
        index.with_suffix(".log").unlink()
        self.write(index, (120, 5), (999, 900))
        assert dump(capsys, index)[0] == 0


class TestAppendTimes:
    @pytest.fixture
    def times(self, copy):
        return copy / "t-0" / f"{BASE}.appendtimes"

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

    def test_the_end_is_told_and_no_fault(self, capsys, times, put):
        following = min(
            int(log.stem) for log in times.parent.glob("*.log") if log.stem > times.stem
        )
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

    def test_an_end_at_another_offset_than_the_next_segment(self, capsys, times):
        following = min(
            int(log.stem) for log in times.parent.glob("*.log") if log.stem > times.stem
        )
        data = times.read_bytes()
        end = Layout(int(times.stem)).pack(len(data) // 16 - 1, -(2**63) + 1, following + 3)
        times.write_bytes(data[:-16] + end)
        assert judge(capsys, times) == [
            ("end", f"it is at {following + 3}, and the next segment begins at {following}")
        ]

    def test_a_torn_entry(self, capsys, times):
        size = times.stat().st_size
        times.write_bytes(times.read_bytes() + b"torn!")
        assert judge(capsys, times) == [
            (f"byte {size}", "cut: 5 bytes behind the last whole entry")
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
        "text", ["\n", "1\n0\n", "0\n2\nt 0 5\n", "0\n1\nt 0\n", "0\n1\nt x 5\n"]
    )
    def test_checkpoints_that_cannot_be_read(self, capsys, copy, text):
        path = copy / "recovery-point-offset-checkpoint"
        path.write_text(text)
        ((where, what),) = judge(capsys, path)
        assert where == ""
        assert what
        assert str(path) not in what

    def test_a_negative_offset(self, capsys, copy):
        path = copy / "log-start-offset-checkpoint"
        path.write_text("0\n1\nt 0 -5\n")
        assert judge(capsys, path)[0][0] == "t-0"

    def test_epochs_that_go_back(self, capsys, copy):
        path = copy / "t-0" / "leader-epoch-checkpoint"
        path.write_text("0\n2\n5 10\n4 20\n")
        assert judge(capsys, path) == [("", "goes back at epoch 4")]

    def test_metadata_without_an_id(self, capsys, copy):
        path = copy / "t-0" / "partition.metadata"
        path.write_text("version: 0\n")
        assert judge(capsys, path) == [("", "is not a partition.metadata of version 0")]

    def test_one_bad_file_among_many(self, capsys, copy):
        files = whole(copy)
        bad = copy / "t-0" / f"{BASE}.index"
        bad.write_bytes(bad.read_bytes() + b"x")
        _, rows = dump(capsys, *files)
        assert [row["file"] for row in of(rows, "verdict") if not row["is_ok"]] == [str(bad)]


# --- text and command line -----------------------------------------------------------------------


def text(capsys, *arguments):
    status = main(["dump", *map(str, arguments)])
    return status, capsys.readouterr().out.splitlines()


class TestText:
    def test_a_table_with_a_verdict(self, capsys, written):
        path = written / "t-0" / f"{BASE}.log"
        status, lines = text(capsys, path)
        assert (status, lines[0]) == (0, f"{path}: segment")
        heading = lines[1].split()
        assert heading[:5] == ["position", "size", "base_offset", "last_offset", "count"]
        assert "is_bad" not in heading
        first = dict(zip(heading, lines[2].split(), strict=True))
        assert (first["position"], first["compression"], first["append_time"]) == (
            "0",
            "none",
            "1000",
        )
        assert len({len(line) for line in lines[1:-2]}) == 1, "the columns are in line"
        count = len(batches_of(path))
        assert lines[-2].startswith(f"{path}: ok, {count} batches, ")
        assert lines[-1] == ""

    def test_a_finding_stands_below_its_row(self, capsys, copy):
        path = copy / "t-0" / f"{BASE}.log"
        position = batches_of(path)[3][0]
        patch(path, position + 70, b"\xee")
        status, lines = text(capsys, path)
        assert status == 1
        at = lines.index(f"  ! byte {position}: the batch fails its CRC")
        heading, above = lines[1].split(), lines[at - 1].split()
        assert dict(zip(heading, above, strict=True))["position"] == str(position)
        assert dict(zip(heading, above, strict=True))["is_bad"] == "yes"
        assert lines[-2].startswith(f"{path}: 1 finding, ")

    def test_records(self, capsys, tmp_path):
        log = tmp_path / f"{BASE}.log"
        records = [Record(0, 7, None, b"\xff\x00"), Record(1, -1, b"k\n", b"", encoded(HEADERS))]
        log.write_bytes(build(records))
        _, lines = text(capsys, "--records", log)
        assert lines[3:5] == [
            "    record: offset 0 timestamp 7 key - value 0xff00 headers -",
            "    record: offset 1 timestamp - key 'k\\n' value '' headers 'h'='x','bytes'=0xff,'null'=-",
        ]

    def test_a_long_table_stays_in_line(self, capsys, tmp_path):
        """More rows than are held back, and a column that says nothing before the last of them."""
        log = tmp_path / f"{BASE}.log"
        data = [build([Record(i, 7, b"k", b"v")]) for i in range(500)]
        data.append(
            build([Record(500, 7, b"k", b"v")], producer_id=123, producer_epoch=1, base_sequence=0)
        )
        log.write_bytes(b"".join(data))
        status, lines = text(capsys, log)
        assert status == 0
        headings = [line.split() for line in lines if "position" in line]
        assert ["producer_id" in heading for heading in headings] == [False, True]
        assert dict(zip(headings[1], lines[-3].split(), strict=True))["producer_id"] == "123"
        assert lines[-2] == f"{log}: ok, 501 batches, 501 records"


class TestUsage:
    def mistake(self, capsys, *arguments):
        try:
            status = main(["dump", *map(str, arguments)])
        except SystemExit as left:
            status = left.code
        out, err = capsys.readouterr()
        assert (status, out, err.count("\n")) == (2, "", 1)
        return err

    def test_nothing_named(self, capsys):
        assert "FILE" in self.mistake(capsys)

    def test_a_file_that_is_not_there(self, capsys, written):
        good = written / "t-0" / f"{BASE}.log"
        missing = written / f"{BASE}.log"
        assert f"cannot read {missing}: No such file" in self.mistake(capsys, good, missing)

    @pytest.mark.parametrize("name", ["notes.txt", "1.log", f"{BASE}.tar", ".lock"])
    def test_a_file_of_another_kind(self, capsys, tmp_path, name):
        (tmp_path / name).touch()
        assert "no file tidelog knows" in self.mistake(capsys, tmp_path / name)

    def test_a_reader_that_leaves_early(self, written):
        """As `head` does: no traceback."""
        command = [sys.executable, "-m", "tidelog", "dump", "--json", "--records"]
        with subprocess.Popen(
            [*command, *[str(written / "t-0" / f"{BASE}.log")] * 200],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        ) as process:
            assert process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(60) == 1
