"""An archive as an Iceberg table: read back by pyiceberg, exactly once whatever is killed or runs at once."""

from __future__ import annotations

import json
import os
import signal

import pyarrow.parquet as pq
import pytest

from tests.pipeline.archive.archives import TIMES, archive, expected, seen_of, some, with_logs
from tidelog.pipeline import cli
from tidelog.pipeline.archive import iceberg
from tidelog.pipeline.errors import FAILED, OK, USAGE

pyiceberg = pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
from pyiceberg.catalog import load_catalog  # noqa: E402
from pyiceberg.expressions import EqualTo  # noqa: E402

NAME = "logs.events"
_DAY_US = 86_400_000_000


def catalog(root):
    return {"uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"}


def fill(root, *more, run="one"):
    """Archive the logs below `root` to the table; returns the exit status."""
    where = [
        item for key, value in catalog(root).items() for item in ("--catalog", f"{key}={value}")
    ]
    logs = ("--logs", str(root / "logs"), "--upto", "log-end", "--table", NAME, *where)
    how = ("--out", str(root / "runs"), "--run", run, "--master", "inline")
    return cli.main(["archive", *logs, *how, *more])


def table(root):
    return load_catalog("default", **catalog(root)).load_table(NAME)


def contents(found):
    """Every record of a scan, by topic and partition."""
    seen = {}
    for row in found.to_arrow().to_pylist():
        seen.setdefault((row["topic"], row["partition"]), []).append(seen_of(row))
    return {key: sorted(rows) for key, rows in sorted(seen.items())}


def test_every_record_is_in_the_partition_of_its_day(root):
    assert fill(root, "--file-bytes", "8000") == OK
    found = table(root)
    assert found.schema().find_field("timestamp").field_id == found.spec().fields[0].source_id
    days = set()
    for task in found.scan().plan_files():
        rows = pq.read_table(task.file.file_path.removeprefix("file://"))
        assert rows.num_rows == task.file.record_count
        micros = rows.column("timestamp").cast("int64").to_pylist()
        day = task.file.partition[0]
        assert {None if one is None else one // _DAY_US for one in micros} == {day}
        days.add(day)
    expected_days = {t // 86_400_000 for t in TIMES if abs(t) < 2**53 and t != -1}
    assert days == {None, *expected_days}


def test_pyiceberg_reads_what_was_archived_and_late_data(root):
    small = [time_ms for time_ms in TIMES if time_ms >= 0 and time_ms < 2**50]
    logs = root / "late"
    with_logs(logs, [(0, some(50, 1, dates=[*small, -1]))])
    assert fill(logs) == OK
    with_logs(logs, [(0, some(20, 2, dates=[-2, 0]))])
    assert fill(logs, run="two") == OK
    found = table(logs)
    assert contents(found.scan()) == expected(logs)
    assert len(found.metadata.snapshots) == 2
    one_topic = contents(found.scan(row_filter=EqualTo("offset", 60)))
    assert [len(rows) for rows in one_topic.values()] == [1]
    summary = found.current_snapshot().summary
    assert summary[iceberg.RUN] == "two"
    assert json.loads(summary[iceberg.RANGES])[0]["start_offset"] == 50


def test_days_that_pyiceberg_cannot_name_are_in_the_partition_null(root):
    """Its summary of a snapshot names each day by a date of Python, from year 1 to 9999."""
    first, last = -62_135_596_800_000, 253_402_300_799_999
    times = {first - 1: None, first: first, last: last, last + 1: None}
    logs = root / "far"
    with_logs(logs, [(0, list(times))])
    assert fill(logs) == OK
    rows = table(logs).scan(selected_fields=("timestamp_ms",)).to_arrow().to_pylist()
    assert {row["timestamp_ms"] for row in rows} == set(times)
    for task in table(logs).scan().plan_files():
        file = pq.read_table(task.file.file_path.removeprefix("file://"))
        for time_ms, micros in zip(
            file.column("timestamp_ms").to_pylist(),
            file.column("timestamp").cast("int64").to_pylist(),
            strict=True,
        ):
            shown = times[time_ms]
            assert micros == (None if shown is None else shown * 1000)
            assert task.file.partition[0] == (None if shown is None else shown // 86_400_000)


def test_a_run_again_adds_nothing(root, capsys):
    assert fill(root) == OK
    count = table(root).scan().count()
    assert fill(root) == OK
    assert "was done before" in capsys.readouterr().out
    assert fill(root, run="two") == OK
    assert "nothing is new" in capsys.readouterr().out
    assert table(root).scan().count() == count == 290


def test_a_run_whose_snapshot_has_expired_adds_nothing(root, capsys):
    assert fill(root) == OK
    with_logs(root, [(0, some(10, 3))])
    assert fill(root, run="two") == OK
    found = table(root)
    found.maintenance.expire_snapshots().by_id(found.metadata.snapshots[0].snapshot_id).commit()
    assert fill(root) == FAILED
    assert "another run came first" in capsys.readouterr().err
    assert table(root).scan().count() == 300


@pytest.mark.parametrize("step", ["first file", "last file", "commit", "done"])
def test_a_killed_run_is_done_again(root, step):
    """Before and after the commit; what it wrote before belongs to no snapshot."""
    child = os.fork()
    if not child:
        try:
            signal.alarm(100)
            _die_at(step)
            fill(root, "--file-bytes", "8000")
        finally:
            os._exit(99)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    with_logs(root, [(0, some(30, 3))])
    assert fill(root, "--file-bytes", "8000") == OK
    assert fill(root, "--file-bytes", "8000", run="two") == OK
    rows = table(root).scan(selected_fields=("partition", "offset")).to_arrow().to_pylist()
    found = {(row["partition"], row["offset"]) for row in rows}
    assert found == {(0, n) for n in range(230)} | {(1, n) for n in range(90)}
    assert table(root).scan().count() == 320


def _die_at(step):
    def kill(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    commit = iceberg.IcebergTable.commit
    if step == "first file":
        iceberg.DataFileTarget.write = kill
    elif step == "last file":
        iceberg.IcebergTable.commit = kill
    elif step == "commit":
        from pyiceberg.catalog.sql import SqlCatalog

        real = SqlCatalog.commit_table
        SqlCatalog.commit_table = lambda self, found, requirements, updates: (
            kill() if len(updates) > 1 else real(self, found, requirements, updates)
        )
    else:

        def done(self, *given):
            commit(self, *given)
            kill()

        iceberg.IcebergTable.commit = done


def test_of_two_runs_at_once_one_is_refused(root, monkeypatch, capsys):
    """Also by a catalog's own retries, which would add the second to the first."""
    with_logs(root, [(0, some(10, 3))])
    commit = iceberg.IcebergTable.commit

    def slowly(self, *given):
        monkeypatch.setattr(iceberg.IcebergTable, "commit", commit)
        assert fill(root, run="first") == OK
        commit(self, *given)

    monkeypatch.setattr(iceberg.IcebergTable, "commit", slowly)
    assert fill(root, run="second") == FAILED
    assert "has changed meanwhile" in capsys.readouterr().err
    assert table(root).scan().count() == 300
    assert table(root).properties["commit.retry.num-retries"] == "0"


def test_a_run_that_ends_before_the_table_is_prepared_is_noticed(root, monkeypatch, capsys):
    """A table whose retries have to be switched off is read again then, with the other run in it."""
    assert fill(root) == OK
    with table(root).transaction() as transaction:
        transaction.remove_properties("commit.retry.num-retries")
    with_logs(root, [(0, some(10, 3))])
    target = iceberg.IcebergTable.target

    def slowly(self):
        monkeypatch.setattr(iceberg.IcebergTable, "target", target)
        assert fill(root, run="first") == OK
        with table(root).transaction() as transaction:
            transaction.remove_properties("commit.retry.num-retries")
        return target(self)

    monkeypatch.setattr(iceberg.IcebergTable, "target", slowly)
    assert fill(root, run="second") == FAILED
    assert "another run came first" in capsys.readouterr().err
    assert table(root).scan().count() == 300


def test_what_cannot_be_meant(root, capsys):
    assert fill(root, "--to", str(root / "archive")) == USAGE
    assert "or --table names an Iceberg table" in capsys.readouterr().err
    assert archive(root, run="plain") == OK
    file = next((root / "archive").rglob("*.parquet"))
    own = load_catalog("default", **catalog(root))
    own.create_namespace("logs")
    own.create_table(NAME, pq.read_schema(file))
    assert fill(root) == FAILED
    assert f"table {NAME} has no column" in capsys.readouterr().err
