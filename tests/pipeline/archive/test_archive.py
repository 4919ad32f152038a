"""Archiving without Spark: files and their bytes; the next run; what is refused; what verify finds."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from tests.pipeline.archive.archives import (
    DATES,
    DAY_MS,
    SMALL,
    TIMES,
    action,
    archive,
    contents,
    expected,
    in_force,
    killed_at,
    leftovers,
    manifests,
    some,
    tree,
    with_logs,
)
from tests.pipeline.logs import Writer
from tidelog.pipeline import cli, times
from tidelog.pipeline.archive import layout
from tidelog.pipeline.archive.manifests import Archive, Manifest, Range
from tidelog.pipeline.archive.store import FileStore
from tidelog.pipeline.errors import FAILED, FINDINGS, OK, USAGE, PipelineError
from tidelog.pipeline.source import locations
from tidelog.protocol.records.batch import Record
from tidelog.storage import checkpoints

# --- which file is where ----------------------------------------------------------------------------


def test_every_record_is_there_with_its_times(root):
    assert archive(root, *SMALL) == OK
    assert contents(root) == expected(root)
    assert None not in {each.append_time for each in contents(root)["t", 0]}
    (made,) = manifests(root).values()
    assert made["topics"]["t"]["partitions"] == 2
    assert [one["records"] for one in made["ranges"]] == [200, 90]
    assert action("verify", root) == OK


def test_old_formats_and_stamps(tmp_path):
    (tmp_path / "logs").mkdir()
    writer = Writer(tmp_path / "logs")
    for magic in (0, 1, 2):
        writer.configure(message_format_version={0: "0.9.0", 1: "0.10.0", 2: "3.0"}[magic])
        writer.append([5, -1, -DAY_MS] if magic else [0, 0], now=7 + magic, magic=magic)
    writer.configure(message_timestamp_type="LogAppendTime")
    writer.append([1, 2], now=DAY_MS)
    writer.close()
    assert archive(tmp_path) == OK
    assert contents(tmp_path) == expected(tmp_path)
    assert contents(tmp_path)["t", 0][-1].timestamp == DAY_MS


@given(st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=300, deadline=None)
def test_a_date_is_the_floor_of_the_time(time_ms):
    table = pa.table({"timestamp_ms": pa.array([time_ms], pa.int64())})
    ((date, _),) = layout.by_date(table)
    assert date == (None if time_ms == -1 else times.date_of(time_ms))
    assert layout.dates_of(table.column("timestamp_ms").to_numpy()) == (date,)
    assert date == DATES.get(time_ms, date) or time_ms == -1


@given(st.lists(st.sampled_from([*TIMES, 5, DAY_MS, DAY_MS - 1]), max_size=30))
@settings(max_examples=100, deadline=None)
def test_dates_part_rows_and_keep_their_order(listed):
    table = pa.table(
        {"timestamp_ms": pa.array(listed, pa.int64()), "n": pa.array(range(len(listed)))}
    )
    seen = []
    for date, part in layout.by_date(table):
        rows = part.to_pylist()
        stamps = [row["timestamp_ms"] for row in rows]
        assert {None if one == -1 else times.date_of(one) for one in stamps} == {date}
        numbers = [row["n"] for row in rows]
        assert numbers == sorted(numbers)
        seen += numbers
    assert sorted(seen) == list(range(len(listed)))


def test_arrow_reads_the_directories_as_a_column(root):
    assert archive(root) == OK
    table = ds.dataset(
        root / "archive" / "topic=t", format="parquet", partitioning="hive"
    ).to_table()
    dates = set(table.column("event_date").to_pylist())
    assert {"-292275055-05-16", "0001-01-01", "1969-12-30", None} <= dates
    assert table.num_rows == 290


# --- names and bytes ------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["1", "700", "1g"])
def test_names_and_bytes_do_not_depend_on_splits(root, split):
    assert archive(root, *SMALL, to="first") == OK
    assert archive(root, *SMALL, "--split-bytes", split, to="second", run="two") == OK
    assert tree(root, "first") == tree(root, "second")
    assert len(tree(root, "first")) > 8


def test_files_are_bounded(root):
    assert archive(root, "--file-bytes", "3000") == OK
    files = in_force(root)
    assert all(one["column_bytes"] <= 3000 for one in files)
    spans = {(one["path"].rpartition("/")[2]) for one in files}
    assert len(spans) > 5


def test_a_record_larger_than_a_file_has_one_of_its_own(tmp_path):
    (tmp_path / "logs").mkdir()
    writer = Writer(tmp_path / "logs", segment_bytes=100_000)
    writer.append(
        [Record(0, 5, b"k", b"v" * 9000), Record(0, 6, b"k", b"w"), Record(0, 7, b"", b"")]
    )
    writer.close()
    assert archive(tmp_path, "--file-bytes", "1000") == OK
    assert [one["records"] for one in in_force(tmp_path)] == [1, 2]
    assert contents(tmp_path) == expected(tmp_path)


# --- the next run ---------------------------------------------------------------------------------


def test_the_next_run_begins_where_the_last_ended(root):
    assert archive(root, *SMALL) == OK
    before = tree(root)
    late = some(30, 3, dates=(-62135596800000, 5))
    with_logs(root, [(0, late), (2, some(10, 4))], now=9_000)
    assert archive(root, *SMALL, run="two") == OK
    assert contents(root) == expected(root)
    assert before.items() < tree(root).items()
    dates = {one["event_date"] for one in manifests(root)["two"]["files"] if one["partition"] == 0}
    assert dates == {"0001-01-01", "1970-01-01"}
    assert action("verify", root) == OK


def test_a_run_that_is_done_does_nothing(root, capsys):
    assert archive(root) == OK
    with_logs(root, [(0, some(10, 3))])
    before = tree(root), manifests(root)
    assert archive(root) == OK
    assert "was done before" in capsys.readouterr().out
    assert (tree(root), manifests(root)) == before
    assert archive(root, run="two") == OK
    assert archive(root, run="three") == OK
    assert "nothing is new" in capsys.readouterr().out
    assert set(manifests(root)) == {"one", "two"}


def drop_first_segments(root, number=0):
    """What retention does: whole segments go from the start of a log."""
    logs = sorted((root / "logs" / f"t-{number}").glob("*.log"))
    for path in logs[:-1]:
        for each in path.parent.glob(f"{path.stem}.*"):
            each.unlink()
    return int(logs[-1].stem)


def test_a_gap_is_refused_unless_it_is_accepted(root, capsys):
    assert archive(root) == OK
    with_logs(root, [(0, some(200, 3))])
    start = drop_first_segments(root)
    assert start > 200
    kept = [one for one in expected(root)["t", 0] if one.offset >= start]
    before = contents(root)["t", 0]
    assert archive(root, run="two") == FAILED
    said = capsys.readouterr().err
    assert f"t-0 begins at offset {start} now: 200 to {start - 1} were deleted before" in said
    assert set(manifests(root)) == {"one"}
    assert archive(root, "--accept-gap", run="two") == OK
    assert [tuple(gap.values())[:4] for gap in manifests(root)["two"]["gaps"]] == [
        ("t", 0, 200, start)
    ]
    assert contents(root)["t", 0] == before + kept
    assert action("verify", root) == OK
    assert f"200 to {start - 1} were gone" in capsys.readouterr().out


def test_offsets_without_a_record_are_no_gap(tmp_path):
    """What compaction leaves: a log with holes."""
    root = tmp_path
    with_logs(root, [(0, some(200, 1))], segment_bytes=2500)
    logs = sorted((root / "logs" / "t-0").glob("*.log"))
    assert len(logs) > 3
    for path in (logs[1], logs[2]):
        for each in path.parent.glob(f"{path.stem}.*"):
            each.unlink()
    assert archive(root, *SMALL) == OK
    assert contents(root) == expected(root)
    (first,) = manifests(root)["one"]["ranges"]
    assert (first["start_offset"], first["end_offset"]) == (0, 200)
    assert first["records"] == len(expected(root)["t", 0]) < 200
    assert action("verify", root) == OK


def test_a_log_that_is_shorter_than_its_archive_is_refused(root, capsys):
    assert archive(root) == OK
    shutil.rmtree(root / "logs")
    with_logs(root, [(0, some(20, 9)), (1, some(90, 2))])
    assert archive(root, run="two") == FAILED
    assert "t-0 ends at offset 20, and is archived up to 200" in capsys.readouterr().err


def test_a_topic_made_anew_is_refused(root, capsys, monkeypatch):
    assert archive(root) == OK
    monkeypatch.setattr(checkpoints, "read_topic_id", lambda _: "other")
    with_logs(root, [(0, some(20, 9))])
    assert archive(root, run="two") == FAILED
    assert "topic t was recreated since it was archived (id other" in capsys.readouterr().err


def test_two_runs_do_not_archive_the_same(root, capsys):
    """The plan of one is made, another run comes first."""
    assert archive(root, "--dry-run", run="never") == OK
    with FileStore(str(root / "archive")).locked():
        assert archive(root) == FAILED
    assert "another run is at work on the archive" in capsys.readouterr().err
    killed_at(0, lambda: archive(root, run="slow"))
    (root / "runs" / "slow").mkdir(parents=True, exist_ok=True)
    assert not killed_at(10_000, lambda: archive(root, run="quick"))
    plan = json.loads((root / "runs" / "quick" / "plan.json").read_text())
    (root / "runs" / "slow" / "plan.json").write_text(json.dumps({**plan, "run": "slow"}))
    assert archive(root, run="slow") == FAILED
    assert "another run came first" in capsys.readouterr().err
    assert set(manifests(root)) == {"quick"}


def test_what_cannot_be_meant(root, capsys):
    assert cli.main(["archive", "--to", str(root / "archive")]) == USAGE
    assert cli.main(["archive", "--logs", str(root / "logs")]) == USAGE
    assert "--to names the archive" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        archive(root, "--task-offsets", "0")
    assert left.value.code == USAGE
    with pytest.raises(SystemExit):
        archive(root, "--file-bytes", "2g")
    assert action("verify", root, of="nothing") == USAGE
    assert "is no archive: there is no manifest" in capsys.readouterr().err
    (root / "archive" / "_manifest").mkdir(parents=True)
    (root / "archive" / "_manifest" / "bad.json").write_text("{}")
    assert archive(root) == FAILED
    assert "is no manifest of an archive" in capsys.readouterr().err


# --- places ---------------------------------------------------------------------------------------


def test_any_file_system_of_pyarrow(root, monkeypatch):
    """The same bytes in an object store as in a directory."""
    local = fs.LocalFileSystem()
    asked = []

    def system(place):
        asked.append(place)
        return local, "/" + place.removeprefix("mem://").partition("?")[0]

    monkeypatch.setattr(locations, "system_of", system)
    place = f"mem://{str(root)[1:]}/far?region=x"
    assert archive(root, *SMALL) == OK
    there = ("--out", str(root / "runs"), "--master", "inline")
    logs = ("--logs", str(root / "logs"), "--upto", "log-end", "--run", "far")
    assert cli.main(["archive", *logs, "--to", place, *SMALL, *there]) == OK
    assert tree(root, "far") == tree(root)
    assert contents(root, "far") == expected(root)
    assert cli.main(["archive", "verify", place, *there]) == OK
    assert cli.main(["archive", "compact", place, *there, "--run", "c"]) == OK
    assert contents(root, "far") == expected(root)
    assert len(tree(root, "far")) == 8
    assert not leftovers(root, "far")
    assert all(place.endswith("?region=x") for place in asked)


# --- verify ---------------------------------------------------------------------------------------


def missing_file(root):
    path = root / "archive" / in_force(root)[0]["path"]
    path.unlink()
    return "missing ("


def changed_byte(root):
    path = root / "archive" / in_force(root)[1]["path"]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return "changed: "


def gap(root):
    (root / "archive" / "_manifest" / "two.json").unlink()
    return "are missing"


def doubled_record(root):
    """A file whose records are in another one too, and a manifest that says so."""
    where = root / "archive" / "_manifest" / "one.json"
    told = json.loads(where.read_text())
    file = next(one for one in told["files"] if one["records"] > 1)
    twin = {**file, "path": file["path"].replace(".parquet", "-twin.parquet")}
    shutil.copy(root / "archive" / file["path"], root / "archive" / twin["path"])
    told["files"].append(twin)
    told["ranges"][file["partition"]]["records"] += file["records"]
    where.write_text(json.dumps(told))
    return "is in the archive twice"


def edited(root, change):
    """Changes the manifest of the first run."""
    where = root / "archive" / "_manifest" / "one.json"
    told = json.loads(where.read_text())
    change(told)
    where.write_text(json.dumps(told))


def another_date(root):
    edited(root, lambda told: told["files"][0].update(event_date="2000-01-01"))
    return "holds records of other dates than 2000-01-01"


def wrong_count(root):
    edited(root, lambda told: told["ranges"][0].update(records=told["ranges"][0]["records"] - 1))
    return "records read, and its files have"


def wrong_times(root):
    def change(told):
        next(one for one in told["files"] if one["event_date"] == "1970-01-01")[
            "max_timestamp_ms"
        ] += 1

    edited(root, change)
    return "and its manifest says"


DAMAGE = [
    missing_file,
    changed_byte,
    gap,
    doubled_record,
    another_date,
    wrong_count,
    wrong_times,
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda one: one.__name__)
def test_verify_finds(root, capsys, damage):
    for run, seed in (("one", None), ("two", 5), ("three", 6)):
        if seed is not None:
            with_logs(root, [(0, some(20, seed))])
        assert archive(root, run=run) == OK
    assert action("verify", root) == OK
    capsys.readouterr()
    sentence = damage(root)
    assert action("verify", root) == FINDINGS
    assert sentence in capsys.readouterr().out
    told = json.loads((root / "runs" / "check" / "report.json").read_text())
    assert any(sentence in finding for finding in told["findings"])


def test_files_that_no_manifest_names_are_no_finding(root, capsys):
    assert archive(root) == OK
    shutil.copytree(root / "archive" / "topic=t", root / "archive" / "topic=other")
    assert action("verify", root) == OK
    assert "named by no manifest: " in capsys.readouterr().out


def test_manifests_say_themselves_what_is_wrong():
    def made(run, *ranges, gaps=()):
        return Manifest(run, "archive", 0, ranges=ranges, gaps=gaps)

    a, b = Range("t", 0, 0, 10), Range("t", 0, 12, 20)
    assert Archive([made("a", a), made("b", b)]).problems() == ["t-0: offsets 10 to 11 are missing"]
    assert Archive([made("a", a), made("b", b, gaps=[Range("t", 0, 10, 12)])]).problems() == []
    assert Archive([made("a", a), made("b", Range("t", 0, 9, 20))]).problems() == [
        "t-0: offsets 9 to 9 are archived twice"
    ]
    again = Manifest.decoded(made("a", a, gaps=[b]).encoded(), "x")
    assert (again.ranges, again.gaps, again.run) == ((a,), (b,), "a")
    with pytest.raises(PipelineError, match="x has version 7"):
        Manifest.decoded(b'{"version": 7}', "x")


# --- compact --------------------------------------------------------------------------------------


def test_compacted_is_what_was_there(root, capsys):
    for run, seed in (("one", None), ("two", 5), ("three", 6)):
        if seed is not None:
            with_logs(root, [(0, some(60, seed))])
        assert archive(root, *SMALL, run=run) == OK
    before, count = contents(root), len(tree(root))
    assert action("compact", root, "--dry-run", run="c") == OK
    assert len(tree(root)) == count
    assert action("compact", root, run="c") == OK
    assert contents(root) == before == expected(root)
    assert len({one["event_date"] for one in in_force(root)}) == len(tree(root)) < count
    assert action("verify", root) == OK
    assert "named by no manifest" not in capsys.readouterr().out
    assert action("compact", root, run="d") == OK
    assert set(manifests(root)) == {"one", "two", "three", "c"}
    with_logs(root, [(0, some(60, 7))])
    assert archive(root, *SMALL, run="four") == OK
    assert action("compact", root, run="e") == OK
    assert contents(root) == expected(root)
    assert action("verify", root) == OK


def test_compaction_removes_what_killed_runs_left_where_it_has_the_lock(root, monkeypatch):
    """A file that no manifest names; in a store without locks it may be that of a run at work."""
    assert archive(root) == OK
    left = root / "archive" / "topic=t" / "event_date=1970-01-01" / f"merged-{20 * '0'}.parquet"
    others = left.with_name("notes.parquet")
    for path in (left, others):
        path.write_bytes(b"x")
    with monkeypatch.context() as remote:
        remote.setattr(FileStore, "is_remote", property(lambda _: True))
        assert action("compact", root, run="remote") == OK
    assert left.exists()
    assert action("compact", root, run="c") == OK
    assert not left.exists()
    assert others.exists()
    assert contents(root) == expected(root)


def test_compaction_keeps_to_the_size(root):
    assert archive(root, *SMALL) == OK
    limit = 3 * max(one["size_bytes"] for one in in_force(root))
    assert action("compact", root, "--file-bytes", str(limit), run="c") == OK
    sizes = {one["path"]: one["size_bytes"] for one in in_force(root)}
    merged = [size for path, size in sizes.items() if "merged-" in path]
    assert merged
    assert max(merged) <= limit * 1.05  # a file of several is about as large as they are together
    assert contents(root) == expected(root)


def test_large_files_stay_and_the_small_ones_around_them_are_merged(root):
    assert archive(root, "--task-offsets", "70", "--file-bytes", "1m") == OK
    sizes = sorted(one["size_bytes"] for one in in_force(root))
    before = set(tree(root))
    limit = 2 * sizes[len(sizes) // 2]
    large = {one["path"] for one in in_force(root) if 2 * one["size_bytes"] >= limit}
    assert action("compact", root, "--file-bytes", str(limit), run="c") == OK
    assert large
    assert large <= set(tree(root)) & before
    assert contents(root) == expected(root)


def test_rows_of_another_partition_than_named_are_found(root, capsys):
    assert archive(root) == OK
    assert action("compact", root, run="c") == OK
    path = root / "archive" / "_manifest" / "c.json"
    made = json.loads(path.read_text())
    made["files"] = [one for one in made["files"] if one["partition"] == 0]
    path.write_text(json.dumps(made))
    assert action("verify", root) == FINDINGS
    assert "holds records of partition 1 too" in capsys.readouterr().out


def test_a_damaged_file_is_not_compacted(root, capsys):
    assert archive(root, *SMALL) == OK
    for file in in_force(root):
        path = root / "archive" / file["path"]
        data = bytearray(path.read_bytes())
        data[10] ^= 1  # in the first page
        path.write_bytes(data)
    before = tree(root)
    assert action("compact", root, run="c") == FAILED
    assert "cannot be read" in capsys.readouterr().err
    assert tree(root).items() >= before.items()
    assert set(manifests(root)) == {"one"}


# --- kill -9 --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_killed_at_any_step_is_done_again(tmp_path):
    with_logs(tmp_path, [(0, some(40, 1, dates=(-1, -2, 0))), (1, some(10, 2, dates=(-2,)))])
    assert archive(tmp_path, to="whole", run="whole") == OK
    wanted, whole = expected(tmp_path), tree(tmp_path, "whole")
    step, killed = 0, True
    while killed:
        where = tmp_path / f"at-{step}"
        where.mkdir()
        (where / "logs").symlink_to(tmp_path / "logs")
        killed = killed_at(step, lambda: archive(where))
        if killed and step % 2:  # with another name too: then it begins anew
            assert archive(where, run="other") == OK
        assert archive(where) == OK or killed
        assert contents(where) == wanted, step
        assert tree(where) == whole
        assert action("verify", where) == OK
        assert action("compact", where, run="clean") == OK
        assert not leftovers(where)
        step += 1
    assert step > 15


@pytest.mark.slow
def test_a_compaction_killed_at_any_step_is_done_again(tmp_path):
    with_logs(tmp_path, [(0, some(40, 1, dates=(-1, -2, 0)))])
    assert archive(tmp_path, "--file-bytes", "1500", to="whole", run="whole") == OK
    wanted = expected(tmp_path)
    step, killed, published = 0, True, 0
    while killed:
        where = tmp_path / f"at-{step}"
        shutil.copytree(tmp_path / "whole", where / "archive")
        killed = killed_at(step, lambda: action("compact", where, run="c"))
        published += "c" in manifests(where)
        assert contents(where) == wanted, step
        assert action("verify", where) == OK
        assert action("compact", where, run="c" if step % 2 else "again") == OK
        assert contents(where) == wanted
        assert not leftovers(where)
        assert len(tree(where)) == len(in_force(where)) == 3
        step += 1
    assert step > 15
    assert published > 3


@pytest.mark.slow
def test_the_checks_of_kills_notice_a_loss(tmp_path, monkeypatch):
    """Injected: a compaction that deletes before it publishes."""
    with_logs(tmp_path, [(0, some(40, 1, dates=(-1, -2, 0)))])
    assert archive(tmp_path, "--file-bytes", "1500") == OK
    real = FileStore.publish

    def hasty(self, name, data):
        if name.startswith("_manifest"):
            for path in json.loads(bytes(data))["replaces"]:
                self.delete(path)
        real(self, name, data)

    monkeypatch.setattr(FileStore, "publish", hasty)
    lost = 0
    for step in range(0, 60, 3):
        where = tmp_path / f"at-{step}"
        shutil.copytree(tmp_path / "archive", where / "archive")
        if not killed_at(step, lambda: action("compact", where, run="c")):
            break
        lost += action("verify", where) == FINDINGS
    assert lost
