"""When a backfill runs in this process, and that no JVM starts then."""

from __future__ import annotations

import decimal
import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelog.client import Client
from tidelog.pipeline import cli
from tidelog.pipeline.backfill import in_process
from tidelog.pipeline.backfill.local_files import NeedsSpark
from tidelog.pipeline.backfill.rows import Limits
from tidelog.pipeline.errors import FAILED, OK
from tidelog.pipeline.session import TaskSession

HEADER = ("--option", "header=true")
INFERRED = ("--option", "inferSchema=true")
FIELDS = "when,text\n1,a\n"


def rows(table, *given, session=None):
    line = (
        "backfill",
        "--table",
        table,
        "--to-brokers",
        "nobody:1",
        "--topic",
        "t",
        "--time-column",
        "when",
    )
    options = cli.options_from([*map(str, (*line, *given))])
    return in_process.rows_in_process(session or TaskSession("backfill"), options, 1)


# --- the rule -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session", "reason"),
    [
        ({"master": "local[2]"}, r"the master is local\[2\]"),
        ({"conf": [("spark.x", "1")]}, "settings of Spark are given"),
        ({"spark": object()}, "a SparkSession is given"),
    ],
)
def test_who_chooses_spark_gets_it(tmp_path, session, reason):
    (tmp_path / "t.csv").write_text(FIELDS)
    with pytest.raises(NeedsSpark, match=reason):
        rows(tmp_path / "t.csv", *HEADER, session=TaskSession("backfill", **session))


def test_spark_submit_has_chosen(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    (tmp_path / "t.csv").write_text(FIELDS)
    with pytest.raises(NeedsSpark, match="spark-submit"):
        rows(tmp_path / "t.csv", *HEADER)


@pytest.mark.parametrize(
    ("lines", "given", "reason"),
    [
        (FIELDS, ("--option", "quote='"), "--option quote is given"),
        (FIELDS, ("--option", "sep=::"), "its separator is unusual"),
        (FIELDS, ("--option", "inferSchema=maybe"), "--option inferschema is maybe"),
        ("when,text\n2,b\n\n1\n", (), r"line 4 of .* \('1'\) has fewer or more fields"),
        ('when,text\n1,a"b\n', (), "quotes or backslashes within fields"),
        ('when,text\n1,"a\\"b"\n', (), "quotes or backslashes within fields"),
        ('when,text\n1,"a\nb"\n', (), "quotes or backslashes within fields"),
        ("when,WHEN\n1,2\n", (), "differ in case alone"),
        ("when,\n1,2\n", (), "are empty"),
        ("\n", (), "is empty"),
        ("\ufeffwhen,text\n1,a\n", (), "byte order mark"),
        ("when,text\n1,\x01\n", (), "control characters"),
        ("when,text\n1,1e5\n", INFERRED, "column text contains may be read in several ways"),
        ("when,text\n1,T10:00\n", INFERRED, "column text contains may be read in several ways"),
        ("when,text\n1,2023-02-29\n", INFERRED, "column text contains may be read in several ways"),
        ("when,text\n1,1.5\n2,3000000000.123456\n", INFERRED, "Java writes a number like"),
    ],
)
def test_csv_that_needs_spark(tmp_path, lines, given, reason):
    (tmp_path / "t.csv").write_text(lines)
    with pytest.raises(NeedsSpark, match=reason):
        rows(tmp_path / "t.csv", *HEADER, "--time-unit", "ms", *given)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('{"when":1,"a":1}\n{"when":2,"a":"x"}', "do not fit one type"),
        ('{"when":1,"a":9223372036854775808}', "do not fit one type"),
        ('{"when":1,"a":NaN}', "a number like nan"),
        ('{"when":1,"a":1e999}', "a number like inf"),
        ('{"when":1}\n{"when":', r"line 2 of .* is no plain JSON"),
        ('{"when":1,"a":2.5}\n{"when":1,"a":true}', "numbers and true or false"),
        ('{"when":1,"a":[{"b":true}]}\n{"when":1,"a":[{"b":2.5}]}', "numbers and true or false"),
        ('[{"when":1}]', "no objects"),
        ('{"when":1,"a":{}}', "has no fields"),
        ('{"when":1,"a":1,"A":2}', "two of one name"),
        ('{"when":1,"a":1}\n{"when":1,"A":2}', "differ in case alone"),
        (r'{"when":1,"a":"\ud800"}', "surrogates not allowed"),
        ('{"when":1,"_corrupt_record":"x"}', "_corrupt_record"),
        ('{"when":true}', "the times are of type bool"),
    ],
)
def test_json_that_needs_spark(tmp_path, lines, reason):
    (tmp_path / "t.json").write_text(lines)
    with pytest.raises(NeedsSpark, match=reason):
        rows(tmp_path / "t.json", "--time-unit", "ms")


SPARKS = {"fields": [{"name": "when", "type": "long"}, {"name": "a", "type": {"type": "udt"}}]}


@pytest.mark.parametrize(
    ("column", "metadata", "reason"),
    [
        (pa.array([[1]], pa.list_(pa.timestamp("ns"))), {}, r"timestamp\[ns\]"),
        (pa.array([1], pa.uint32()), {}, "uint32"),
        (pa.array([1], pa.duration("us")), {}, "duration"),
        (pa.array([b"ab"], pa.binary(2)), {}, "fixed_size_binary"),
        (pa.array([1.5], pa.float32()), {}, "float"),
        (pa.array([decimal.Decimal("1.5")]), {}, "is stored as"),
        (pa.array(["\x1f"]), {}, "control characters"),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), {}, "is stored as"),
        (pa.array([10**15], pa.timestamp("ms")), {}, "after 9999"),
        (pa.array([1e22]), {}, r"Java writes a number like 1e\+22 with an exponent"),
        (pa.array([1]), {"org.apache.spark.version": "2.4.8"}, "old calendar"),
        (pa.array([1]), {"org.apache.spark.legacyDateTime": ""}, "old calendar"),
        (
            pa.array([1]),
            {"org.apache.spark.sql.parquet.row.metadata": json.dumps(SPARKS)},
            "a type of Spark's own",
        ),
    ],
)
def test_parquet_that_needs_spark(tmp_path, column, metadata, reason):
    table = pa.table({"when": pa.array([1]), "a": column}).replace_schema_metadata(metadata)
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(NeedsSpark, match=reason):
        rows(tmp_path / "t.parquet", "--time-unit", "ms")
    if not metadata:  # what is not read does not matter
        rows(tmp_path / "t.parquet", "--time-unit", "ms", "--value-columns", "when")


def test_parquet_of_the_old_kind_of_timestamps(tmp_path):
    table = pa.table({"when": pa.array([1], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "t.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(NeedsSpark, match=r"when of .* is stored as INT96"):
        rows(tmp_path / "t.parquet", "--time-zone", "UTC")


LIMITS = Limits(-(2**63), 2**63 - 1, -(2**63), 1_800_000_000_000)


@pytest.mark.parametrize("zone", [None, "Europe/Brussels"])
def test_nanoseconds_are_read_and_rounded_down(tmp_path, zone):
    """They are what pandas writes."""
    times = pa.array([-1, 0, 1_500_000_001_234_567_891, None], pa.timestamp("ns", zone))
    pq.write_table(pa.table({"when": times}), tmp_path / "t.parquet")
    found = rows(tmp_path / "t.parquet", "--time-zone", "UTC", "--without-time", "keep")
    found.stage(tmp_path / "staged", LIMITS)
    (file,) = (tmp_path / "staged").glob("*/*.parquet")
    staged = pq.read_table(file)
    assert staged.column("timestamp_ms").to_pylist() == [None, -1, 0, 1_500_000_001_234]
    texts = [json.loads(one)["when"] for one in staged.column("value").to_pylist()]
    assert [text and text.removesuffix("Z") for text in texts] == [
        None,
        "1969-12-31T23:59:59.999999",
        "1970-01-01T00:00:00.000000",
        "2017-07-14T02:40:01.234567",
    ]


@pytest.mark.parametrize(
    ("times", "found"),
    [
        ([1_800_000_000, 1_800_000_001, 1_800_000_000_000], {"seconds": 2}),
        ([1_800_000_000_000_000], {"microseconds": 1}),
        ([1_800_000_000_000, -(10**12), -1], {}),
    ],
)
def test_times_of_another_unit_are_counted(tmp_path, times, found):
    (tmp_path / "t.csv").write_text("when\n" + "".join(f"{one}\n" for one in times))
    assert rows(tmp_path / "t.csv", *HEADER, "--time-unit", "ms").count(LIMITS)[-1] == found


def test_places_that_need_spark(tmp_path, monkeypatch):
    (tmp_path / "t.csv").write_text(FIELDS)
    (tmp_path / "d.csv" / "x=1").mkdir(parents=True)
    (tmp_path / "empty.csv").mkdir()
    how = (*HEADER, "--time-unit", "ms")
    for table, reason in (
        (tmp_path / "*.csv", "a pattern or a URI"),
        (f"file:{tmp_path}/t.csv", "a pattern or a URI"),
        (tmp_path / "no.csv", "does not exist"),
        (tmp_path / "d.csv", "is a directory"),
        (tmp_path / "empty.csv", "is empty"),
    ):
        with pytest.raises(NeedsSpark, match=reason):
            rows(table, *how)
    with pytest.raises(NeedsSpark, match="the table is orc"):
        rows(tmp_path / "t.csv", *how, "--input", "orc")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    with pytest.raises(NeedsSpark, match="HADOOP_CONF_DIR"):
        rows(tmp_path / "t.csv", *how)


def test_what_is_large_needs_spark(tmp_path, monkeypatch):
    """A small Parquet file can hold many rows. "inline" takes any size."""
    (tmp_path / "t.csv").write_text(FIELDS)
    pq.write_table(pa.table({"when": [5] * 10_000}), tmp_path / "t.parquet")
    how = ("--time-unit", "ms")
    small = (tmp_path / "t.parquet").stat().st_size
    monkeypatch.setattr(in_process, "SMALL_BYTES", small)
    with pytest.raises(NeedsSpark, match="need much memory"):
        rows(tmp_path / "t.parquet", *how)
    rows(tmp_path / "t.csv", *how, *HEADER)
    monkeypatch.setattr(in_process, "SMALL_BYTES", 10)
    with pytest.raises(NeedsSpark, match="the table has more than"):
        rows(tmp_path / "t.csv", *how, *HEADER)
    rows(tmp_path / "t.csv", *how, *HEADER, session=TaskSession("backfill", master="inline"))


# --- no JVM ---------------------------------------------------------------------------------------


def line_of(broker, topic, table, out, *more):
    return [
        *("backfill", "--table", str(table), "--time-column", "when", "--time-unit", "ms"),
        *("--to-brokers", broker.bootstrap, "--topic", topic, "--create", "--out", str(out)),
        *("--set", "retention.ms=-1", "--run", "r", *HEADER, *more),
    ]


@pytest.fixture
def submit(tmp_path):
    """Runs a job in a process of its own; the `java` there only tells that it was called."""
    called = tmp_path / "called"
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\ntouch {called}\nexit 1\n")
    java.chmod(0o755)
    environ = {**os.environ, "PATH": f"{java.parent}:{os.environ['PATH']}"}
    environ.pop("JAVA_HOME", None)
    program = "import sys; from tidelog.pipeline.cli import main; status = main(sys.argv[1:]);"
    program += " print('pyspark' in sys.modules); sys.exit(status)"

    def run(line):
        command = [sys.executable, "-c", program, *line]
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, check=False, timeout=300
        )
        return done, called.exists()

    return run


@pytest.mark.slow
def test_no_jvm_starts_for_a_small_backfill(broker, topic, tmp_path, submit):
    (tmp_path / "t.csv").write_text(FIELDS)
    done, has_called_java = submit(line_of(broker, topic, tmp_path / "t.csv", tmp_path / "out"))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (OK, "False"), done
    assert not has_called_java
    notes = [json.loads(one)["note"] for one in done.stderr.splitlines() if one.startswith("{")]
    assert "in this process" in notes
    with Client(broker.bootstrap) as client:
        assert client.end_offset(topic, 0) == 2  # the record, and the marker of its transaction


@pytest.mark.spark
def test_a_master_starts_a_jvm_for_a_small_backfill_too(broker, topic, tmp_path, submit):
    (tmp_path / "t.csv").write_text(FIELDS)
    line = line_of(broker, topic, tmp_path / "t.csv", tmp_path / "out", "--master", "local[1]")
    done, has_called_java = submit(line)
    assert (done.returncode, has_called_java) == (FAILED, True), done


def test_inline_says_why_it_cannot(broker, topic, tmp_path, capsys):
    (tmp_path / "t.csv").write_text('when,text\n1,a"b\n')
    line = line_of(broker, topic, tmp_path / "t.csv", tmp_path / "out", "--master", "inline")
    assert cli.main(line) == FAILED
    said = capsys.readouterr().err
    assert "--master inline has no Spark, and" in said
    assert "has quotes or backslashes within fields" in said
    with Client(broker.bootstrap) as client:
        assert not client.has_topic(topic)
