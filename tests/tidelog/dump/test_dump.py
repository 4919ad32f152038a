"""`tidelog dump`: honest files are found fine, nothing changes; its text, and how it is called."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from crc32c import crc32c

from tests.tidelog.dump.conftest import HEADERS, encoded
from tests.tidelog.dump.dumping import (
    BASE,
    KINDS,
    VECTORS,
    batches_of,
    dump,
    findings,
    of,
    patch,
    text,
    whole,
)
from tidelog.cli.parser import main
from tidelog.protocol.records.batch import Record, build


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


class TestText:
    def test_a_table_with_a_verdict(self, capsys, written):
        path = written / "t-0" / f"{BASE}.log"
        status, lines = text(capsys, path)
        assert (status, lines[0]) == (0, f"{path}: segment")
        heading = lines[1].split()
        assert heading[:5] == ["position", "size", "base_offset", "last_offset", "count"]
        assert "is_bad" not in heading
        first = dict(zip(heading, lines[2].split(), strict=True))
        found = [first[name] for name in ("position", "compression", "append_time")]
        assert found == ["0", "none", "1000"]
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

    @pytest.mark.parametrize(
        "name",
        [
            *("notes.txt", "1.log", ".lock", "checkpoint.deleted"),
            *(f"{BASE}{end}" for end in (".tar", ".deleted", ".log.tmp")),
        ],
    )
    def test_a_file_of_another_kind(self, capsys, tmp_path, name):
        (tmp_path / name).touch()
        assert "no file of a log directory has such a name" in self.mistake(capsys, tmp_path / name)

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
