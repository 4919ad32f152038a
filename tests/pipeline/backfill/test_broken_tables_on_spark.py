"""Backfill of tables with broken lines, with times that are none, and with those that Spark refuses.

No other row changes, and errors say where.
"""

from __future__ import annotations

import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.jobs.test_mirror import everything
from tidelog.client import Client
from tidelog.pipeline import cli
from tidelog.pipeline.errors import FAILED, FINDINGS, OK, USAGE

pytestmark = pytest.mark.spark
JSON = '{"when":1,"a":"x"}\n{"when":2,"a"\n{"when":3,"a":"y"}\n'
TWO = '{"when":1,"a":"}{"}\n{"when":2,"a":"x"}{"when":3,"b":4}\n{"when":"4"\n{"when":5,"a":"y"}\n'
CSV = "when,n\n1,7\n2,zero,8\n3,9\n4\n"


@pytest.fixture
def backfill(on_spark, broker, topic, tmp_path):
    """Runs a backfill of a table on Spark; its status."""

    def run(table, *more, name="r"):
        """Runs on Spark, unless `more` has another master."""
        given = ("--table", str(table), "--time-column", "when", "--topic", topic, "--create")
        out = ("--out", str(tmp_path / "out"), "--run", name, "--set", "retention.ms=-1")
        where = ("--to-brokers", broker.bootstrap, "--master", "local[2]")
        return cli.main(["backfill", *given, *out, *where, *more])

    return run


@pytest.fixture
def arrived(broker, topic):
    def values():
        with Client(broker.bootstrap) as client:
            return [json.loads(one.value) for one in everything(client, topic, 0)]

    return values


@pytest.mark.parametrize(
    ("name", "text", "given", "said", "expected"),
    [
        (
            "t.json",
            JSON,
            ("--time-unit", "ms"),
            ("1 malformed row", "line 2 of ", """'{"when":2,"a"'"""),
            [{"a": "x", "when": 1}, {"a": "y", "when": 3}],
        ),
        (
            "t.json",
            TWO,
            ("--time-unit", "ms"),
            ("2 malformed rows", "line 2 of ", """'{"when":2,"a":"x"}{"when":3,"b":4}'"""),
            [{"a": "}{", "when": 1}, {"a": "y", "when": 5}],
        ),
        (
            "t.csv",
            CSV,
            ("--time-unit", "ms", "--option", "header=true", "--option", "inferSchema=true"),
            ("2 malformed rows", "line 3 of ", "'2,zero,8'", "line 5 of ", "'4'"),
            [{"when": 1, "n": 7}, {"when": 3, "n": 9}],
        ),
    ],
    ids=["json", "two of json in a line", "csv"],
)
def test_broken_lines(backfill, arrived, tmp_path, capsys, name, text, given, said, expected):
    (tmp_path / name).write_text(text)
    assert backfill(tmp_path / name, *given) == FINDINGS
    told = capsys.readouterr().out
    assert all(one in told for one in (*said, "refused: say --malformed drop"))
    assert backfill(tmp_path / name, *given, "--malformed", "drop") == OK
    assert "left out" in capsys.readouterr().out
    assert arrived() == expected


def test_files_with_their_columns_in_another_order(backfill, tmp_path, capsys):
    """Spark alone goes by position, and would swap the values."""
    table = tmp_path / "table"
    table.mkdir()
    (table / "a.csv").write_text("when,n\n1,7\n")
    (table / "b.csv").write_text("n,when\n8,2\n")
    given = ("--input", "csv", "--time-unit", "ms", "--option", "header=true")
    assert backfill(table, *given) == USAGE
    told = capsys.readouterr().err
    assert "b.csv has the columns 'n,when', and" in told
    assert "a.csv 'when,n'" in told
    (table / "b.csv").write_text('"when",n\n2,8\n')
    (table / "c.csv").write_text("")
    assert backfill(table, *given) == OK


def test_two_values_in_a_line_where_directories_name_columns(backfill, tmp_path, capsys):
    """Spark cannot leave such a line out and keep the columns."""
    table = tmp_path / "table"
    (table / "day=1").mkdir(parents=True)
    (table / "day=1" / "t.json").write_text(TWO)
    given = ("--input", "json", "--time-unit", "ms", "--malformed", "drop")
    assert backfill(table, *given) == USAGE
    assert "its directories name columns" in capsys.readouterr().err


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_nanoseconds(backfill, arrived, tmp_path, zone):
    times = pa.array([-1, 1_500_000_001_234_567_891], pa.timestamp("ns", zone))
    pq.write_table(pa.table({"when": times, "n": [1, 2]}), tmp_path / "t.parquet")
    more = ("--time-zone", "UTC", "--without-time", "keep")
    assert backfill(tmp_path / "t.parquet", *more) == OK
    mark = "" if zone is None else "Z"
    assert arrived() == [
        {"when": f"1969-12-31T23:59:59.999999{mark}", "n": 1},
        {"when": f"2017-07-14T02:40:01.234567{mark}", "n": 2},
    ]


@pytest.mark.parametrize("master", ["local[2]", "inline"])
@pytest.mark.parametrize(
    ("name", "unit", "where"),
    [
        ("t.csv", "iso", "line 4 of "),
        ("t.csv", "ms", "line 4 of "),
        ("t.json", "iso", "line 3 of "),
        ("t.parquet", "us", "row 3 of "),
    ],
)
def test_what_is_no_time_is_named_with_its_place(
    backfill, tmp_path, capsys, name, unit, where, master
):
    first = "2024-01-01T00:00Z" if unit == "iso" else "7"
    table = {"when": [first, None, "yesterday"], "n": ["1", "2", "3"]}
    path = tmp_path / name
    if name == "t.parquet":
        pq.write_table(pa.table(table), path)
    elif name == "t.json":
        path.write_text("".join(json.dumps({**one}) + "\n" for one in pa.table(table).to_pylist()))
    else:
        path.write_text(f"when,n\n{first},1\n,2\nyesterday,3\n")
    given = ("--time-unit", unit, "--option", "header=true") if name == "t.csv" else ()
    given = (*given, "--time-unit", unit, "--master", master)
    assert backfill(path, *given) == FAILED
    said = capsys.readouterr().err.splitlines()[-1]
    reason = "not a time" if unit == "iso" else f"not a whole number of {unit}"
    assert said.startswith(f"tidelog pipeline backfill: column when: 'yesterday' is {reason}")
    assert said.endswith(f"({where}{path})")


def test_errors_of_queries_are_not_logged_besides(on_spark, backfill, capsys):
    """PySpark logs them as JSON; those of other queries of a program stay."""
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger

    logged = []

    class Kept(logging.Handler):
        def emit(self, record):
            logged.append(record.getMessage())

    logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    kept = Kept()
    logger.addHandler(kept)
    try:
        bad = on_spark.createDataFrame([("x",)], "n string")
        bad = bad.select(bad.n.cast("bigint").alias("when"))
        bad.createOrReplaceTempView("bad")
        assert backfill("bad", "--input", "table", "--time-unit", "ms") == FAILED
        assert "CAST_INVALID_INPUT" in capsys.readouterr().err
        assert not logged
        with pytest.raises(PySparkException):
            bad.collect()
        assert len(logged) == 1
    finally:
        logger.removeHandler(kept)
