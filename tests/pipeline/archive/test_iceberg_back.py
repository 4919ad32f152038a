"""Iceberg archives read back: verified and restored exactly, rewritten by others too; and what is damaged."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.pipeline.archive.archives import DAY_MS, expected, some, with_logs
from tests.pipeline.jobs.test_mirror import everything
from tests.pipeline.logs import Writer, committed
from tests.pipeline.offset_maps import target_offset_of
from tidelog.client import Client
from tidelog.pipeline import cli
from tidelog.pipeline.errors import FAILED, FINDINGS, OK, USAGE
from tidelog.pipeline.replay import offset_map
from tidelog.protocol.records.batch import Record, build

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record as IcebergRecord

from tests.pipeline.archive import test_iceberg
from tests.pipeline.archive.test_iceberg import NAME, table

FOREVER = ("--set", "retention.ms=-1")


def place(root):
    pairs = (f"{key}={value}" for key, value in test_iceberg.catalog(root).items())
    return ("--table", NAME, *(item for pair in pairs for item in ("--catalog", pair)))


def verify(root, *more):
    how = ("--out", str(root / "runs"), "--run", "check", "--master", "inline")
    return cli.main(["archive", "verify", *place(root), *how, *more])


def restore(root, broker, topic, *more, run="back"):
    how = ("--out", str(root / "runs"), "--run", run, "--master", "inline")
    to = ("--to-brokers", broker.bootstrap, "--rename", f"t={topic}", "--create", *FOREVER)
    return cli.main(["restore", *place(root), *to, *how, *more])


def rows(records):
    return [(one.timestamp, one.key, one.value, tuple(one.headers)) for one in records]


def wanted(root):
    """The records of the logs below `root`, and their offsets, by partition."""
    return {
        partition: ([one.offset for one in seen], rows(seen))
        for (_, partition), seen in expected(root).items()
    }


def assert_records(root, broker, topic):
    with Client(broker.bootstrap) as client:
        for partition, (_, records) in wanted(root).items():
            assert rows(everything(client, topic, partition)) == records


def assert_restored(root, broker, topic):
    """Also each record's offset, where no markers of transactions are between them."""
    assert_records(root, broker, topic)
    for one in offset_map.read(root / "runs" / "back" / "offsets.parquet"):
        offsets, _ = wanted(root)[one.source_partition]
        assert [target_offset_of(one.runs, n) for n in offsets] == list(range(len(offsets)))


def data_files(root):
    return [
        Path(one.file.file_path.removeprefix("file://")) for one in table(root).scan().plan_files()
    ]


def test_an_archive_is_verified_and_restored(root, broker, topic, capsys, without_transactions):
    """Every kind of time, odd names of headers, nulls, late data; the second run's data too."""
    assert test_iceberg.fill(root, "--file-bytes", "8000") == OK
    with_logs(root, [(0, some(60, 5)), (2, some(30, 6))])
    assert test_iceberg.fill(root, run="two") == OK
    count = sum(len(one) for one in expected(root).values())
    assert count == 380
    capsys.readouterr()
    assert verify(root, "--dry-run") == OK
    assert f"{len(data_files(root))} files, " in capsys.readouterr().out
    assert verify(root) == OK
    said = capsys.readouterr().out
    assert (
        f"verify table {NAME}: 380 records of 3 partitions in {len(data_files(root))} files" in said
    )
    assert "no findings" in said
    assert restore(root, broker, topic) == OK
    assert_restored(root, broker, topic)
    assert restore(root, broker, topic) == OK
    assert_restored(root, broker, topic)
    report = json.loads((root / "runs" / "back" / "report.json").read_text())
    assert report["archive"] == f"table {NAME}"


def test_holes_and_aborted_transactions(tmp_path, broker, topic, without_transactions):
    """What is no record is not missing: offsets that compaction or markers left, and aborted records."""
    (tmp_path / "logs").mkdir()
    writer = Writer(tmp_path / "logs", segment_bytes=2500)
    for number in range(60):
        writer.append([number] * 3)
        data = build(
            [Record(0, number, b"k", b"%d" % number)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=number,
            is_transactional=True,
        )
        log = writer.partition()
        log.append(data, now_ms=0, produce_version=9, guard=log.verification(7, 0, number))
        log.append_marker(7, 0, is_commit=number % 2 == 0, coordinator_epoch=0, now_ms=0)
    writer.close()
    directory = tmp_path / "logs" / "t-0"
    gone = sorted(directory.glob("*.log"))[2]
    for path in directory.glob(f"{gone.stem}.*"):
        path.unlink()
    records = committed(directory)
    assert test_iceberg.fill(tmp_path) == OK
    assert verify(tmp_path) == OK
    assert restore(tmp_path, broker, topic) == OK
    with Client(broker.bootstrap) as client:
        assert rows(everything(client, topic, 0)) == rows(records)
    (one,) = offset_map.read(tmp_path / "runs" / "back" / "offsets.parquet")
    found = [target_offset_of(one.runs, record.offset) for record in records]
    assert found == list(range(len(records)))


def test_a_part_by_time_also_of_years_that_the_table_cannot_name(root, broker, topic):
    assert test_iceberg.fill(root) == OK
    low, high = -(2**63), -DAY_MS
    assert restore(root, broker, topic, "--from", str(low), "--to", str(high)) == OK
    offsets = ("--offsets", "t-0=50:131")
    assert restore(root, broker, f"{topic}-offsets", *offsets, run="offsets") == OK
    with Client(broker.bootstrap) as client:
        timed = rows(everything(client, topic, 0))
        ranged = rows(everything(client, f"{topic}-offsets", 0))
    records = wanted(root)[0][1]
    assert timed == [one for one in records if low <= one[0] < high]
    assert {one[0] for one in timed} >= {low, -62135596800000}
    assert ranged == records[50:131]


# --- what others do to the table ------------------------------------------------------------------


def rewrite(root, shaped=lambda rows: rows, later=0):
    """Replace all files of each day by one, as other programs do: rows in any order, partitions mixed.

    `later` lists them under a day so much later.
    """
    by_day = {}
    for task in table(root).scan().plan_files():
        by_day.setdefault(task.file.partition[0], []).append(task.file.file_path)
    made = {}
    for day, paths in by_day.items():
        rows = pa.concat_tables(pq.read_table(path.removeprefix("file://")) for path in paths)
        order = np.random.default_rng(3).permutation(rows.num_rows)
        path = Path(root, "warehouse", f"{uuid.uuid4()}.parquet")
        pq.write_table(
            shaped(rows.take(pa.array(order))), path, row_group_size=20, write_page_checksum=True
        )
        made[None if day is None else day + later] = path
    replace(root, made)


def replace(root, made):
    """Replace all files of the table by these, each of a day."""
    found = table(root)
    with found.transaction() as transaction, transaction.update_snapshot().overwrite() as update:
        for task in found.scan().plan_files():
            update.delete_data_file(task.file)
        for day, path in made.items():
            count = pq.read_metadata(path).num_rows
            update.append_data_file(listed(found, path, day, count))


def listed(found, path, day, count):
    """A file as a table lists it, without anything that need not be there."""
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=IcebergRecord(day),
        file_size_in_bytes=path.stat().st_size,
        record_count=count,
        spec_id=found.spec().spec_id,
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
    )


def without(offset):
    return lambda rows: rows.filter(pc.not_equal(rows.column("offset"), offset))


def with_another(offset, new):
    """A function that repeats the record at an offset of partition 0 under a new offset."""

    def shaped(rows):
        is_it = pc.and_(
            pc.equal(rows.column("offset"), offset), pc.equal(rows.column("partition"), 0)
        )
        more = rows.filter(is_it)
        place = rows.schema.get_field_index("offset")
        field = rows.schema.field(place)
        there = pa.array([new] * more.num_rows, field.type)
        return pa.concat_tables([rows, more.set_column(place, field, there)])

    return shaped


@pytest.mark.parametrize("shaped", [lambda rows: rows, lambda rows: rows.sort_by("offset")])
def test_a_table_whose_files_others_have_rewritten(
    root, broker, topic, capsys, without_transactions, shaped
):
    """In any order, and in one where the last row groups have none of a partition among others."""
    with_logs(root, [(1, some(40, 8)), (3, some(160, 9))])
    assert test_iceberg.fill(root, "--file-bytes", "8000") == OK
    before = len(data_files(root))
    rewrite(root, shaped)
    assert len(data_files(root)) < before
    assert verify(root) == OK
    assert "no findings" in capsys.readouterr().out
    with_logs(root, [(0, some(25, 4))])
    assert test_iceberg.fill(root, run="two") == OK
    assert verify(root) == OK
    assert restore(root, broker, topic) == OK
    assert_restored(root, broker, topic)


# --- damage ---------------------------------------------------------------------------------------


def largest(root):
    return max(data_files(root), key=lambda path: path.stat().st_size)


def missing_file(root):
    largest(root).unlink()
    return "missing ("


def changed_byte(root):
    path = largest(root)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return "changed: "


def changed_byte_of_a_rewritten_file(root):
    """Its name has no CRC, but its pages have."""
    rewrite(root)
    path = largest(root)
    columns = pq.ParquetFile(path).metadata.row_group(0)
    place = next(
        column
        for column in map(columns.column, range(columns.num_columns))
        if column.path_in_schema == "value"
    )
    data = bytearray(path.read_bytes())
    data[place.data_page_offset + place.total_compressed_size // 2] ^= 1
    path.write_bytes(data)
    return "cannot be read"


def test_a_file_that_cannot_be_read_is_named(root, broker, topic, capsys):
    assert test_iceberg.fill(root) == OK
    path = largest(root)
    columns = pq.ParquetFile(path).metadata.row_group(0)
    names = [columns.column(number).path_in_schema for number in range(columns.num_columns)]
    found = columns.column(names.index("topic"))
    place = found.dictionary_page_offset or found.data_page_offset  # the header of a page
    data = path.read_bytes()
    path.write_bytes(data[:place] + b"\xff" * 9 + data[place + 9 :])
    assert restore(root, broker, topic) == FAILED
    said = capsys.readouterr().err.splitlines()[-1]
    assert path.name in said
    assert "cannot be read" in said


def cut_file(root):
    path = largest(root)
    path.write_bytes(path.read_bytes()[:-100])
    return "changed: "


def another_value(root):
    """A sound file of Parquet, with another value of one record."""
    path = largest(root)
    whole = pq.read_table(path)
    place = whole.schema.get_field_index("value")
    values = whole.column("value").to_pylist()
    values[0] = b"forged"
    changed = pa.array(values, whole.schema.field(place).type)
    pq.write_table(whole.set_column(place, whole.schema.field(place), changed), path)
    return "changed: "


def deleted_records(root):
    rewrite(root, without(17))
    return "records read, and its files have"


def another_day(root):
    rewrite(root, later=1)
    return "holds records of other dates than"


def another_timestamp(root):
    """Of the column that shows it; what is restored is `timestamp_ms`."""

    def shaped(rows):
        place = rows.schema.get_field_index("timestamp")
        shown = pc.add(rows.column(place).cast("int64"), 1).cast(rows.schema.field(place).type)
        return rows.set_column(place, rows.schema.field(place), shown)

    rewrite(root, shaped)
    return "whose timestamp is not their timestamp_ms"


def rolled_back(root):
    with_logs(root, [(0, some(20, 5))])
    assert test_iceberg.fill(root, run="two") == OK
    found = table(root)
    found.manage_snapshots().rollback_to_snapshot(found.metadata.snapshots[0].snapshot_id).commit()
    return "records read, and its files have"


def foreign_records(root):
    rewrite(root, with_another(3, 1_000))
    return "which no run archived"


def doubled_records(root):
    rewrite(root, with_another(3, 4))
    return "is in the archive twice"


DAMAGE = [
    missing_file,
    changed_byte,
    changed_byte_of_a_rewritten_file,
    cut_file,
    another_value,
    deleted_records,
    another_day,
    another_timestamp,
    rolled_back,
    foreign_records,
    doubled_records,
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda one: one.__name__)
def test_verify_finds(tmp_path, capsys, damage):
    with_logs(tmp_path, [(0, some(50, 1)), (1, some(20, 2))])
    assert test_iceberg.fill(tmp_path) == OK
    assert verify(tmp_path) == OK
    capsys.readouterr()
    sentence = damage(tmp_path)
    assert verify(tmp_path) == FINDINGS
    assert sentence in capsys.readouterr().out
    told = json.loads((tmp_path / "runs" / "check" / "report.json").read_text())
    assert any(sentence in finding for finding in told["findings"])


@pytest.mark.parametrize("damage", [missing_file, deleted_records, foreign_records, cut_file])
def test_what_is_damaged_is_not_restored(tmp_path, broker, topic, capsys, damage):
    with_logs(tmp_path, [(0, some(50, 1)), (1, some(20, 2))])
    assert test_iceberg.fill(tmp_path) == OK
    damage(tmp_path)
    assert restore(tmp_path, broker, topic) == FAILED
    assert f"table {NAME} is not sound: " in capsys.readouterr().err
    with Client(broker.bootstrap) as client:
        assert not client.has_topic(topic)


def test_metadata_of_the_table_that_is_damaged(root, capsys):
    assert test_iceberg.fill(root) == OK
    (manifest,) = table(root).current_snapshot().manifests(table(root).io)
    path = Path(manifest.manifest_path.removeprefix("file://"))
    for damaged in (path.read_bytes()[:200], None):
        path.write_bytes(damaged) if damaged else path.unlink()
        assert verify(root) == FAILED
        assert f"table {NAME} cannot be read: " in capsys.readouterr().err


def test_a_gap_that_was_accepted_is_named(tmp_path, capsys):
    with_logs(tmp_path, [(0, some(100, 1))], segment_bytes=2500)
    assert test_iceberg.fill(tmp_path) == OK
    with_logs(tmp_path, [(0, some(200, 2))], segment_bytes=2500)
    directory = tmp_path / "logs" / "t-0"
    starts = [int(path.stem) for path in sorted(directory.glob("*.log"))]
    first = next(start for start in starts if start > 120)
    for start in starts:
        if start < first:
            for path in directory.glob(f"{start:020d}.*"):
                path.unlink()
    assert test_iceberg.fill(tmp_path, "--accept-gap", run="two") == OK
    with_logs(tmp_path, [(0, some(30, 3))], segment_bytes=2500)
    assert test_iceberg.fill(tmp_path, run="three") == OK
    capsys.readouterr()
    assert verify(tmp_path) == OK
    assert f"t-0: offsets 100 to {first - 1} were gone before they were" in capsys.readouterr().out


def test_what_cannot_be_meant(root, broker, topic, capsys):
    assert verify(root) == USAGE
    assert f"table {NAME} is no archive: nothing was archived to it" in capsys.readouterr().err
    assert verify(root, str(root)) == USAGE
    assert "or --table names an Iceberg table" in capsys.readouterr().err
    assert cli.main(["archive", "verify"]) == USAGE
    assert "DIR|URI names the archive" in capsys.readouterr().err
    assert cli.main(["restore", "--to-brokers", broker.bootstrap]) == USAGE
    assert "DIR|URI names the archive" in capsys.readouterr().err
