"""Backfill of files without Spark: what arrives, in which order, what is refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafka.partitioner.default import murmur2

from tests.pipeline.jobs.test_mirror import everything
from tidelog.client import Client
from tidelog.pipeline import cli
from tidelog.pipeline.errors import FINDINGS, OK, USAGE
from tidelog.pipeline.times import to_iso

DAY_MS = 86_400_000
TIMES = [-62135596800000, -DAY_MS - 1, -1000, 0, 1, 1_700_000_000_000]


def table_of(times):
    return pa.table(
        {
            "when": pa.array(times, pa.int64()),
            "id": pa.array([f"id-{n % 3}" for n in range(len(times))]),
            "amount": pa.array(range(len(times)), pa.int64()),
        }
    )


def backfill(broker, topic, table, out, *more):
    return cli.main(
        [
            "backfill",
            *("--table", str(table), "--time-column", "when", "--key-column", "id"),
            *("--to-brokers", broker.bootstrap, "--topic", topic, "--create", "--partitions", "3"),
            *("--out", str(out), "--run", "r"),
            *more,
        ]
    )


def arrived(broker, topic):
    with Client(broker.bootstrap) as client:
        return {partition: everything(client, topic, partition) for partition in range(3)}


def check(found, times, expected_ms):
    """Every row once, where the Java clients would send it, in the order of its time."""
    rows = [
        (expected_ms[n], f"id-{n % 3}".encode(), {"when": when, "id": f"id-{n % 3}", "amount": n})
        for n, when in enumerate(times)
    ]
    for partition, records in found.items():
        here = [row for row in rows if (murmur2(row[1]) & 0x7FFFFFFF) % 3 == partition]
        assert sorted(
            [(one.timestamp, one.key, json.loads(one.value)) for one in records], key=repr
        ) == sorted(here, key=repr)
        stamps = [one.timestamp for one in records]
        assert stamps == sorted(stamps)


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_numbers_of_every_unit(broker, topic, tmp_path, unit):
    whole = [time_ms for time_ms in TIMES if time_ms % 1000 == 0]
    times = [{"s": at // 1000, "ms": at, "us": at * 1000 + 999}[unit] for at in whole]
    pq.write_table(table_of(times), tmp_path / "t.parquet")
    how = ("--time-unit", unit, "--set", "retention.ms=-1")
    assert backfill(broker, topic, tmp_path / "t.parquet", tmp_path / "out", *how) == OK
    check(arrived(broker, topic), times, whole)


def test_csv_with_iso_times_of_any_year(broker, topic, tmp_path):
    texts = [
        "-0044-03-15T12:00Z",
        "0001-01-01T00:00Z",
        "1970-01-01T00:00Z",
        "2024-02-29T23:59:59.999+02:00",
    ]
    lines = ["when,id,amount", *(f"{text},k{n},{n}" for n, text in enumerate(texts))]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    how = ("--time-unit", "iso", "--option", "header=true", "--set", "retention.ms=-1")
    raw = ("--format", "raw", "--value-columns", "amount")
    assert backfill(broker, topic, tmp_path / "t.csv", tmp_path / "out", *how, *raw) == OK
    found = sorted(
        (one.timestamp, one.key, one.value)
        for part in arrived(broker, topic).values()
        for one in part
    )
    assert found == [
        (-63549316800000, b"k0", b"0"),
        (-62135596800000, b"k1", b"1"),
        (0, b"k2", b"2"),
        (1709243999999, b"k3", b"3"),
    ]


def test_a_run_again_writes_nothing_twice(broker, topic, tmp_path):
    pq.write_table(table_of(TIMES), tmp_path / "t.parquet")
    how = ("--time-unit", "ms", "--set", "retention.ms=-1")
    for _ in range(2):
        assert backfill(broker, topic, tmp_path / "t.parquet", tmp_path / "out", *how) == OK
        pq.write_table(table_of([5]), tmp_path / "t.parquet")  # what is staged counts
    check(arrived(broker, topic), TIMES, TIMES)
    report = json.loads((tmp_path / "out" / "r" / "report.json").read_text())
    assert (report["records"], report["records_found"]) == (6, 6)


def test_a_new_run_doubles_nothing_unasked(broker, topic, tmp_path, capsys):
    """Not under another name, nor from another directory: that has no plan of the run."""
    pq.write_table(table_of([7]), tmp_path / "t.parquet")
    how = ("--time-unit", "ms", "--set", "retention.ms=-1")
    assert backfill(broker, topic, tmp_path / "t.parquet", tmp_path / "out", *how) == OK
    for more in ((), ("--dry-run",)):
        given = (broker, topic, tmp_path / "t.parquet", tmp_path / "elsewhere", *how, *more)
        capsys.readouterr()
        assert backfill(*given) == USAGE
        said = capsys.readouterr().err
        assert f"topic {topic} of the target already holds records (2 offsets)" in said
        assert "say --append" in said
    assert not (tmp_path / "elsewhere" / "r" / "plan.json").exists()
    check(arrived(broker, topic), [7], [7])
    behind = (*how, "--append")
    assert backfill(broker, topic, tmp_path / "t.parquet", tmp_path / "elsewhere", *behind) == OK
    found = [one.timestamp for part in arrived(broker, topic).values() for one in part]
    assert found == [7, 7]


def test_what_the_window_rejects_is_counted_and_nothing_written(broker, topic, tmp_path, capsys):
    pq.write_table(table_of([*TIMES, 4_000_000_000_000]), tmp_path / "t.parquet")
    window = (
        "message.timestamp.before.max.ms=1000000000000",
        "message.timestamp.after.max.ms=1000",
    )
    how = ("--time-unit", "ms", "--set", window[0], "--set", window[1], "--set", "retention.ms=-1")
    assert backfill(broker, topic, tmp_path / "t.parquet", tmp_path / "out", *how) == FINDINGS
    said = capsys.readouterr().out
    assert f"7 rows, from {to_iso(TIMES[0])} to {to_iso(4_000_000_000_000)}" in said
    assert "6 rows outside the window" in said
    assert "refused (5 older" in said
    with Client(broker.bootstrap) as client:
        assert not client.has_topic(topic)
    left = (*how, "--outside", "drop")
    assert backfill(broker, topic, tmp_path / "t.parquet", tmp_path / "out2", *left) == OK
    found = [one.timestamp for part in arrived(broker, topic).values() for one in part]
    assert found == [1_700_000_000_000]


def test_rows_without_a_time_are_refused_kept_or_left_out(broker, topic, tmp_path, capsys):
    pq.write_table(table_of([None, 5, -1]), tmp_path / "t.parquet")  # -1 ms means none
    how = ("--time-unit", "ms")
    assert backfill(broker, topic, tmp_path / "t.parquet", tmp_path / "out", *how) == FINDINGS
    said = capsys.readouterr().out
    assert "2 rows without a time (null, or -1 ms, which means none): refused" in said
    assert (
        "retention would delete 1 of 3 rows at once (older than retention.ms = 604800000); retention.ms=-1"
        " or retention by event time avoids that: refused unless --accept-deletion"
    ) in said
    kept = (*how, "--set", "retention.ms=-1", "--without-time", "keep")
    assert backfill(broker, topic, tmp_path / "t.parquet", tmp_path / "out2", *kept) == OK
    times = sorted(one.timestamp for part in arrived(broker, topic).values() for one in part)
    assert times == [-1, -1, 5]
    without = (*how, "--without-time", "drop", "--exclusive")
    assert backfill(broker, topic, tmp_path / "t.parquet", tmp_path / "out3", *without) == OK
    times = sorted(one.timestamp for part in arrived(broker, topic).values() for one in part)
    assert times == [-1, -1, 5, 5]


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_what_retention_would_delete_is_refused_unless_that_is_accepted(
    broker, topic, tmp_path, capsys, policy
):
    """A topic that is only compacted deletes nothing by time."""
    pq.write_table(table_of(TIMES), tmp_path / "t.parquet")
    how = ("--time-unit", "ms", "--set", f"cleanup.policy={policy}")
    given = (broker, topic, tmp_path / "t.parquet", tmp_path / "out", *how)
    expected = OK if policy == "compact" else FINDINGS
    assert backfill(*given) == expected
    said = capsys.readouterr().out
    assert ("retention would delete 6 of 6 rows at once" in said) == (policy == "delete")
    with Client(broker.bootstrap) as client:
        assert client.has_topic(topic) == (policy == "compact")
    assert backfill(*given, "--accept-deletion") == OK
    check(arrived(broker, topic), TIMES, TIMES)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ((), "say its --time-unit"),
        (("--time-unit", "ms", "--value-columns", "nothing"), "no column nothing"),
        (("--time-unit", "ms", "--format", "raw"), "--format raw needs one"),
        (("--time-unit", "ms", "--partitions", "0"), "at least one"),
    ],
)
def test_mistakes_are_said_before_anything_is_done(broker, topic, tmp_path, capsys, more, sentence):
    pq.write_table(table_of([5]), tmp_path / "t.parquet")
    assert backfill(broker, topic, tmp_path / "t.parquet", tmp_path / "out", *more) == USAGE
    assert sentence in capsys.readouterr().err
    with Client(broker.bootstrap) as client:
        assert not client.has_topic(topic)


def test_times_of_another_unit_are_warned_of_and_written(broker, topic, tmp_path, capsys):
    times = [1_700_000_000, 1_700_000_001, 1_700_000_000_000]
    pq.write_table(table_of(times), tmp_path / "t.parquet")
    how = ("--time-unit", "ms", "--set", "retention.ms=-1")
    assert backfill(broker, topic, tmp_path / "t.parquet", tmp_path / "out", *how) == OK
    said = capsys.readouterr().out
    assert "warning: the times of 2 rows look like seconds instead of milliseconds" in said
    check(arrived(broker, topic), times, times)
