"""Every fault that is injected in a log or an index is named and placed."""

from __future__ import annotations

import struct

import pytest

from tests.tidelog.dump.dumping import (
    BASE,
    VECTORS,
    batches_of,
    dump,
    findings,
    judge,
    of,
    patch,
    patch_sealed,
)
from tidelog.protocol.records.batch import Record, build


@pytest.mark.parametrize(
    ("suffix", "more", "what"),
    [
        (".log", b"\0\0\0\0\0\0\1", "cut: 7 bytes up to the end, too few for a batch"),
        (".log", bytes(5000), "5,000 bytes of zeros up to the end"),
        (".index", b"\0\0\1", "cut: 3 bytes behind the last whole entry"),
        (".appendtimes", b"torn!", "cut: 5 bytes behind the last whole entry"),
    ],
)
def test_what_is_behind_the_last_whole_entry(capsys, copy, suffix, more, what):
    path = copy / "t-0" / f"{BASE}{suffix}"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + more)
    assert judge(capsys, path) == [(f"byte {size}", what)]


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

    @pytest.mark.parametrize(
        ("number", "at", "data", "what"),
        [
            (2, 8, struct.pack(">i", 3), " bytes up to the end not read"),
            (2, 16, b"\x09", "magic"),
            (4, 0, struct.pack(">q", 1), "offset 1 where 7 or a later one belongs"),
        ],
        ids=["size", "magic", "offset"],
    )
    def test_an_impossible_header(self, capsys, log, number, at, data, what):
        position = batches_of(log)[number][0]
        patch(log, position + at, data)
        ((where, said),) = judge(capsys, log)
        assert (where, what in said) == (f"byte {position}", True)

    @pytest.mark.parametrize(
        ("number", "at", "data", "what"),
        [
            (1, 35, struct.pack(">q", 9_999_999), "largest time is 9999999, the records' 5001"),
            (2, 57, struct.pack(">i", 2), "number of records"),
        ],
        ids=["largest time", "count"],
    )
    def test_a_header_that_lies_under_its_own_checksum(self, capsys, log, number, at, data, what):
        batch = batches_of(log)[number]
        patch_sealed(log, batch, at, data)
        ((where, said),) = judge(capsys, log)
        assert (where, what in said) == (f"byte {batch[0]}", True)

    def test_a_segment_under_a_wrong_name(self, capsys, log):
        renamed = log.with_name(f"{500:020d}.log")
        log.rename(renamed)
        found = judge(capsys, renamed)
        assert found[0] == ("byte 0", "offset 0 where 500 or a later one belongs")

    def test_a_wrapper_that_lies_about_its_offset(self, capsys, tmp_path):
        log = tmp_path / f"{BASE}.log"

        def write(magic):
            records = [Record(i, 5, b"k", b"v") for i in range(3)]
            log.write_bytes(build(records, magic=magic, compression=1))
            patch(log, 0, struct.pack(">q", 7))

        write(1)  # inner offsets count from the wrapper's last: its header stays true
        status, rows = dump(capsys, log)
        assert (status, of(rows, "batch")[0]["base_offset"]) == (0, 5)
        write(0)
        assert judge(capsys, log) == [("byte 0", "the header's offset is 7, the last record's 2")]


class TestIndexes:
    @pytest.fixture
    def index(self, copy):
        return copy / "t-0" / f"{BASE}.index"

    @staticmethod
    def entries(index):
        return list(struct.iter_unpack(">ii", index.read_bytes()))

    @pytest.mark.parametrize("changed", [(0, 1), (1, 0)])
    def test_an_entry_that_leads_astray(self, capsys, index, changed):
        offset, position = map(sum, zip(self.entries(index)[1], changed, strict=True))
        patch(index, 8, struct.pack(">ii", offset, position))
        assert judge(capsys, index) == [
            ("entry 1", f"no batch that ends with {offset} is at byte {position} of the log")
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
        assert len(self.entries(index)) > 2
        expected = [(index.name, "entry 2", "offset and position do not both grow")]
        assert (status, findings(rows)) == (1, expected)


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

    @pytest.mark.parametrize(
        ("entries", "where", "what"),
        [
            ([(120, 5), (155, 11)], "entry 1", "the largest time of its batch is 150"),
            ([(120, 5), (210, 23), (300, 24)], "entry 2", "no batch of the log holds offset 24"),
            *(
                ([(120, 5), entry], "entry 1", "time and offset do not both grow; not read on")
                for entry in ((120, 11), (119, 11), (150, 5), (150, 4))
            ),
        ],
    )
    def test_an_entry_that_cannot_be(self, capsys, index, entries, where, what):
        self.write(index, *entries)
        assert judge(capsys, index) == [(where, what)]

    def test_a_time_that_was_reached_before(self, capsys, index):
        log = index.with_suffix(".log")
        early = build([Record(0, 9_000, b"k", b"v"), Record(1, 1, b"k", b"v")])
        log.write_bytes(early + log.read_bytes()[batches_of(log)[1][0] :])
        assert judge(capsys, index) == [
            (f"entry {n}", "time 9000 comes before its batch") for n in range(3)
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
