"""`tidelog dump` of whole directories, of files that wait for their end or beginning, and of small files."""

from __future__ import annotations

import shutil
import struct

import pytest

from tests.tidelog.dump.dumping import (
    BASE,
    KINDS,
    META,
    dump,
    findings,
    judge,
    of,
    text,
    whole,
)
from tidelog.cli.parser import main
from tidelog.storage.directory.clock_file import StoredClock, write_clock
from tidelog.storage.time.corrections import ClockHistory, ForwardStep
from tidelog.storage.time.trusted_clock import ClockState, Course, Leap, Reading


def aborted(*numbers, version=0):
    """Bytes of an entry: producer id, first and last offset, last stable offset."""
    return struct.pack(">hqqqq", version, *numbers)


def names_of(rows):
    return {row["name"]: (row["what"], row["verdict"]) for row in of(rows, "file")}


class TestDirectories:
    def test_a_partition(self, capsys, written):
        status, rows = dump(capsys, written / "t-0")
        expected = {path.name for path in whole(written) if path.parent.name == "t-0"}
        listed = names_of(rows)
        assert (status, set(listed)) == (0, expected)
        assert {verdict for _, verdict in listed.values()} == {"ok"}
        last = of(rows, "verdict")[-1]
        assert last["file"] == str(written / "t-0")
        assert (last["what"], last["is_ok"], last["findings"]) == ("directory", True, 0)
        assert last["files"] == len(expected)

    def test_a_directory_says_what_its_files_say(self, capsys, written):
        files = sorted(path for path in whole(written) if path.parent.name == "t-0")
        _, one_by_one = dump(capsys, "--records", *files)
        _, together = dump(capsys, "--records", written / "t-0")
        assert together[: len(one_by_one)] == one_by_one
        assert {row["kind"] for row in together[len(one_by_one) :]} == {"file", "verdict"}

    def test_a_log_directory(self, capsys, written):
        status, rows = dump(capsys, written)
        listed = names_of(rows)
        assert status == 0
        assert {"recovery-point-offset-checkpoint", f"t-0/{BASE}.log"} <= set(listed)
        assert {str(path.relative_to(written)) for path in whole(written)} == set(listed)
        assert {what for what, _ in listed.values()} == KINDS

    def test_a_bad_file_among_many(self, capsys, copy):
        bad = copy / "t-0" / f"{BASE}.index"
        bad.write_bytes(bad.read_bytes() + b"xy")
        status, rows = dump(capsys, copy)
        listed = names_of(rows)
        assert status == 1
        assert listed.pop(f"t-0/{BASE}.index") == ("offset index", "1 finding")
        assert {verdict for _, verdict in listed.values()} == {"ok"}
        assert (of(rows, "verdict")[-1]["is_ok"], of(rows, "verdict")[-1]["findings"]) == (False, 1)

    def test_a_deleted_topic_and_what_is_not_ours(self, capsys, copy):
        (copy / "t-0").rename(copy / f"t-0.{'ab' * 16}-delete")
        (copy / "notes.txt").write_text("mine")
        status, rows = dump(capsys, copy)
        assert status == 0
        assert f"t-0.{'ab' * 16}-delete/{BASE}.log" in names_of(rows)
        assert "notes.txt" not in names_of(rows)

    def test_as_text(self, capsys, written):
        status, lines = text(capsys, written / "t-0")
        at = lines.index(f"{written / 't-0'}: directory")
        assert (status, lines[at + 1].split()) == (0, ["name", "what", "verdict"])
        assert any(line.split() == [f"{BASE}.log", "segment", "ok"] for line in lines[at:])
        assert lines[-2] == f"{written / 't-0'}: ok, {len(lines) - at - 4} files"

    @pytest.mark.parametrize("make", ["nothing", "only notes"])
    def test_a_directory_of_something_else(self, capsys, tmp_path, make):
        if make == "only notes":
            (tmp_path / "notes.txt").touch()
        assert main(["dump", str(tmp_path)]) == 2
        out, err = capsys.readouterr()
        said = f"tidelog dump: {tmp_path}: in it is no file tidelog knows in a log directory\n"
        assert (out, err) == ("", said)


class TestWaiting:
    """`.deleted`, `.cleaned`, `.swap`, `.stray`, `-cut`."""

    @pytest.mark.parametrize("waiting", [".deleted", ".cleaned", ".swap", ".stray", "-cut"])
    def test_it_is_judged_as_what_it_is(self, capsys, copy, waiting):
        files = sorted(copy.glob(f"t-0/{BASE}.*"))
        _, before = dump(capsys, "--records", *files)
        moved = [path.rename(path.with_name(path.name + waiting)) for path in files]
        state = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
        status, after = dump(capsys, "--records", *moved)
        assert (status, findings(after)) == (0, [])
        assert len(of(after, "record")) > 10
        assert of(after, "batch")[0]["append_time"] == 1000, "append times are found beside it"
        for one, other in zip(before, after, strict=True):
            assert other["file"] == one["file"] + waiting
            if one["kind"] == "verdict":
                assert other["what"] == f"{one['what']}, {waiting[1:]}"
            else:
                assert other == one | {"file": other["file"]}
        assert state == {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}

    def test_an_index_is_held_against_the_log_that_waits_with_it(self, capsys, copy):
        """Not against the one that has its place."""
        log, index = (copy / "t-0" / f"{BASE}{suffix}" for suffix in (".log", ".index"))
        for path in (log, index):
            shutil.copy(path, path.with_name(path.name + ".swap"))
        log.write_bytes(log.read_bytes()[:100])
        swapped = index.with_name(index.name + ".swap")
        assert dump(capsys, swapped)[0] == 0
        (swapped.with_name(log.name + ".swap")).write_bytes(b"")
        _, rows = dump(capsys, swapped)
        assert len(findings(rows)) == len(of(rows, "entry")) > 1


class TestTransactionIndexes:
    @pytest.fixture
    def index(self, tmp_path):
        return tmp_path / f"{10:020d}.txnindex"

    def test_its_entries(self, capsys, index):
        index.write_bytes(aborted(7, 3, 12, 3) + aborted(8, 13, 20, 15))
        status, rows = dump(capsys, index)
        assert status == 0
        first, second = of(rows, "transaction")
        assert (first["producer_id"], first["first_offset"], first["last_offset"]) == (7, 3, 12)
        assert (second["entry"], second["last_stable_offset"]) == (1, 15)
        (verdict,) = of(rows, "verdict")
        assert (verdict["what"], verdict["transactions"]) == ("transaction index", 2)

    def test_faults(self, capsys, index):
        entries = aborted(7, 3, 12, 3) + aborted(7, 13, 11, 3) + aborted(7, 13, 14, 3, version=1)
        index.write_bytes(entries + aborted(7, -1, 15, 3) + b"torn")
        assert judge(capsys, index) == [
            ("entry 1", "begins with 13 and ends with 11"),
            ("entry 1", "offset 13 or a later one belongs here"),
            ("entry 2", "version 1, not 0"),
            ("entry 3", "begins with -1 and ends with 15"),
            ("byte 136", "cut: 4 bytes behind the last whole entry"),
        ]

    def test_a_transaction_that_ended_before_its_segment(self, capsys, index):
        index.write_bytes(aborted(7, 3, 9, 3))
        assert judge(capsys, index) == [("entry 0", "offset 10 or a later one belongs here")]


class TestSmallFiles:
    def test_how_far_compaction_has_come(self, capsys, tmp_path):
        path = tmp_path / "cleaner-offset-checkpoint"
        path.write_text("0\n2\nt 0 17\nother.topic 3 0\n")
        status, rows = dump(capsys, path)
        found = [(row["topic"], row["partition"], row["offset"]) for row in of(rows, "offset")]
        assert (status, found) == (0, [("other.topic", 3, 0), ("t", 0, 17)])

    @pytest.mark.parametrize("durable", [True, False])
    def test_what_is_known_about_the_clock(self, capsys, tmp_path, durable):
        state = ClockState(Reading(9, 5, "b"), Course(7, 4), (Course(1, 2),), Leap(7, 9))
        history = ClockHistory("h", ((3, ForwardStep(1, 2, 3, 4)),))
        write_clock(tmp_path, StoredClock(6, state, history), durable=durable)
        (path,) = tmp_path.iterdir()
        status, rows = dump(capsys, path)
        assert status == 0
        kinds = ["clock", "trusted", "left", "leap", "step", "verdict"]
        assert [row["kind"] for row in rows] == kinds
        assert (rows[0]["wall_ms"], rows[3]["to_ms"], rows[4]["number"]) == (9, 9, 3)
        path.write_bytes(path.read_bytes().replace(b"9", b"8"))
        assert judge(capsys, path) == [("", "its checksum is wrong")]

    @pytest.mark.parametrize(("version", "name"), [(0, "broker.id"), (1, "node.id")])
    def test_meta_properties(self, capsys, tmp_path, version, name):
        path = tmp_path / "meta.properties"
        path.write_text(META.format(version, name, 1))
        status, rows = dump(capsys, path)
        found = {row["name"]: row["value"] for row in of(rows, "property")}
        cluster = "dGlkZWxvZy1vcmFjbGU9PQ"
        assert (status, found) == (0, {"version": f"{version}", name: "1", "cluster.id": cluster})
        assert of(rows, "verdict")[0]["properties"] == 3
