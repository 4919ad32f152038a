"""A small backfill in this process and on Spark: the same counts, the same staged rows, the same refusals."""

from __future__ import annotations

import datetime as dt
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelog.pipeline import cli
from tidelog.pipeline.backfill import tables
from tidelog.pipeline.backfill.in_process import rows_in_process
from tidelog.pipeline.backfill.rows import Limits
from tidelog.pipeline.backfill.staging import RowsOnSpark, staged_files
from tidelog.pipeline.cli import sentence
from tidelog.pipeline.session import TaskSession

pytestmark = pytest.mark.spark
PARTITIONS = 3
LIMITS = Limits(-(10**15), 10**15, 0, 1_800_000_000_000)
MS = ("--time-column", "when", "--time-unit", "ms")
HEADER = ("--option", "header=true")
TEXTS = ("", "a", "é\u2028\x7f\U0001f600", '"\\/\b\f\n\r\t\x00\x10', "x" * 300, "null", "0", " ")


def options_of(table, *given):
    target = ("--to-brokers", "nobody:1", "--topic", "t")
    return cli.options_from(["backfill", *map(str, ("--table", table, *given)), *target])


def outcome(rows, directory):
    """What a backfill counts, and the rows of each partition in their order."""
    counts = rows.count(LIMITS)
    rows.stage(directory, LIMITS)
    staged = staged_files(directory).items()
    return counts, {
        n: pa.concat_tables(map(pq.read_table, files)).to_pylist() for n, files in staged
    }


def same(spark, tmp_path, table, *given):
    """Asserts that both ways come to the same; returns it."""
    options = options_of(table, *given)
    here = outcome(rows_in_process(TaskSession("tests"), options, PARTITIONS), tmp_path / "here")
    with TaskSession("tests", spark=spark) as session:
        frame, _ = tables.opened(session, options)
    there = outcome(RowsOnSpark(frame, options, PARTITIONS), tmp_path / "there")
    assert here[0] == there[0]
    assert here[1] == there[1]
    return here


# --- Parquet --------------------------------------------------------------------------------------


def column(chance, kind, count):
    """A column of values of a type; a sixth of them are null."""
    day, second = dt.date(1, 1, 1), dt.timedelta(microseconds=1)
    moment = dt.datetime(1, 1, 1)
    span_us = 315_537_897_599_999_999  # up to the end of 9999

    def value(kind):
        if chance.random() < 1 / 6:
            return None
        if pa.types.is_boolean(kind):
            return chance.random() < 0.5
        if pa.types.is_integer(kind):
            most = 2 ** (kind.bit_width - 1)
            return chance.choice([chance.randrange(-most, most), -most, most - 1, 0])
        if pa.types.is_float64(kind):  # as every version of Java writes it
            plain = chance.uniform(0.001, 9_999_999)
            ends = (0.0, -0.0, 0.001, 9999999.999999998, 0.1 + 0.2, 100.0)
            return chance.choice([plain, -plain, round(plain, 2), chance.choice(ends)])
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return chance.choice(TEXTS)
        if pa.types.is_binary(kind):
            return chance.randbytes(chance.randrange(7))
        if pa.types.is_date32(kind):
            return day + dt.timedelta(days=chance.randrange(3_652_059))
        if pa.types.is_timestamp(kind):
            found = moment + second * chance.randrange(span_us)
            found = found.replace(microsecond=0) if kind.unit == "ms" else found
            return found if kind.tz is None else found.replace(tzinfo=dt.UTC)
        if pa.types.is_struct(kind):
            return {field.name: value(field.type) for field in kind}
        return [value(kind.value_type) for _ in range(chance.randrange(4))]

    return pa.array([value(kind) for _ in range(count)], kind)


INNER = pa.struct([("n", pa.int32()), ('"q"', pa.string()), ("at", pa.timestamp("us", "UTC"))])
KINDS = {
    "yes": pa.bool_(),
    "tiny": pa.int8(),
    "small": pa.int16(),
    "int": pa.int32(),
    "big": pa.int64(),
    "double": pa.float64(),
    "text": pa.string(),
    "long text": pa.large_string(),
    "raw": pa.binary(),
    "day": pa.date32(),
    "instant": pa.timestamp("us", "UTC"),
    "in ms": pa.timestamp("ms", "Europe/Brussels"),
    "local": pa.timestamp("us"),
    "inner": INNER,
    "many": pa.list_(pa.float64()),
    "deep": pa.list_(pa.struct([("l", pa.list_(pa.string())), ("s", INNER)])),
    'é "\\': pa.string(),
}


@pytest.mark.parametrize("seed", range(3))
def test_parquet_of_every_type(spark, tmp_path, seed):
    chance, count = random.Random(seed), 400
    made = {name: column(chance, kind, count) for name, kind in KINDS.items()}
    made["when"] = pa.array(
        [chance.choice([None, -1, 0, 5, -(10**16)]) for _ in range(count)], pa.int64()
    )
    made["place"] = pa.array([chance.choice([None, 0, 1, 2]) for _ in range(count)], pa.int64())
    pq.write_table(pa.table(made), tmp_path / "t.parquet", compression="zstd", row_group_size=150)
    key = ("text", "double", "day", "tiny", "raw", "yes")[seed * 2 : seed * 2 + 2]
    how = ("--key-column", key[0], "--header-columns", f"{key[1]},int,text,yes,double")
    leave = ("--outside", "drop", "--without-time", ("keep", "drop", "refuse")[seed])
    counts, staged = same(
        spark, tmp_path, tmp_path / "t.parquet", *MS, *how, *leave, "--partition-column", "place"
    )
    assert counts[0] == count
    assert set(staged) == set(range(PARTITIONS))


@pytest.mark.parametrize("name", ["instant", "local", "day", "text"])
def test_parquet_that_spark_has_written(spark, tmp_path, name):
    """It contains Spark's schema; a directory of it other files than those with rows."""
    spark.sql(
        "select cast(id as int) n, timestamp_micros(id * 1234567 - 5) instant,"
        " timestamp_ntz'1950-01-01 00:00:00' + make_interval(0,0,0,id) local,"
        " date'1582-10-01' + cast(id as int) day, array(named_struct('a', id)) many,"
        " concat('2024-07-01T10:00:00.', 100 + id, 'Z') text from range(40)"
    ).repartition(2).write.parquet(str(tmp_path / "t"))
    zone = ("--time-zone", "Europe/Brussels") if name in {"local", "day"} else ()
    unit = ("--time-unit", "iso") if name == "text" else ()
    given = ("--input", "parquet", "--time-column", name, *zone, *unit)
    counts, _ = same(spark, tmp_path, tmp_path / "t", *given)
    assert counts[0] == 40


# --- texts ----------------------------------------------------------------------------------------


def test_csv(spark, tmp_path):
    lines = [
        '"when",id,"a name",x',
        "1,a,,",
        '2,"","with, comma",\t',
        "",
        " 	",
        "-3, spaces ,é\u2028\u00a0,\x7f",
        '004,"b","#no comment",1_0',
        ",,,",
    ]
    (tmp_path / "t.csv").write_text(
        "\r\n".join(lines[:4]) + "\r" + "\n".join(lines[4:]), newline=""
    )
    given = (*MS, *HEADER, "--key-column", "id", "--header-columns", "x,a name")
    counts, _ = same(spark, tmp_path, tmp_path / "t.csv", *given)
    assert counts[:2] == (5, 1)


def test_csv_without_a_header_and_with_other_separators(spark, tmp_path):
    (tmp_path / "t.csv").write_text("1\t\\n\ta,b\n2\t\\\t\n\t\t\n3\t/\t;\n")
    how = ("--time-column", "_c0", "--time-unit", "s", "--option", "sep=\\t")
    counts, _ = same(spark, tmp_path, tmp_path / "t.csv", *how)
    assert counts[0] == 3
    (tmp_path / "d").mkdir()
    for number in range(2):
        (tmp_path / "d" / f"{number}.csv").write_text(f"when|a\n{number}|x\n")
    (tmp_path / "d" / "_SUCCESS").touch()
    how = ("--input", "csv", "--option", "delimiter=|")
    same(spark, tmp_path / "d2", tmp_path / "d", *MS, *HEADER, *how)


@pytest.mark.parametrize("seed", range(2))
def test_csv_with_inferred_types(spark, tmp_path, seed):
    chance = random.Random(seed)
    start = dt.datetime(1, 1, 1)

    def moment():
        return (start + dt.timedelta(microseconds=chance.randrange(3 * 10**17))).isoformat()

    kinds = {
        "small": lambda: chance.randrange(-(2**31), 2**31),
        "big": lambda: chance.randrange(-(10**18), 10**18) // 10 ** chance.randrange(18),
        "zeros": lambda: f"{chance.randrange(10**6):09}",
        "fraction": lambda: chance.choice(
            [chance.randrange(99), round(chance.uniform(-9, 9e5), 3)]
        ),
        "yes": lambda: chance.choice(["true", "false"]),
        "day": lambda: moment()[:10],
        "instant": lambda: moment() + "Z",
        "local": lambda: moment().replace("T", chance.choice("T ")),
        "text": lambda: chance.choice(["abc", "", "1", "2024-01-01", "true", '"x,y"', "1e5"]),
        "none": str,
        "when": moment,
    }
    rows = [["abc" if n == "text" else make() for n, make in kinds.items()]]
    rows += [
        [make() if chance.random() < 0.9 else "" for make in kinds.values()] for _ in range(300)
    ]
    lines = [",".join(map(str, row)) for row in [kinds, *rows]]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    given = (*HEADER, "--option", "inferSchema=TRUE", "--time-column", "when")
    zone = ("--time-zone", "Europe/Brussels")
    counts, _ = same(spark, tmp_path, tmp_path / "t.csv", *given, *zone, "--key-column", "zeros")
    assert counts[0] == len(rows)


@pytest.mark.parametrize("seed", range(2))
def test_json_lines(spark, tmp_path, seed):
    chance = random.Random(seed)

    def row():
        found = {
            "when": chance.randrange(-(10**12), 10**12),
            "n": chance.choice([0, -5, 2**63 - 1, None]),
            "mixed": chance.choice([chance.randrange(10**6), 0.5, -0.25]),
            "text": chance.choice(TEXTS),
            "yes": chance.choice([True, False, None]),
            "never": None,
            "list": [chance.choice([1, 2.5, None]) for _ in range(chance.randrange(3))],
            "inner": {"b": [[chance.choice(TEXTS)], None], "a": chance.choice([None, {"x": 1}])},
            "\ue000": 1,
            "\U00010000": {"ä": [{"y": None}]},
        }
        kept = [name for name in found if name == "when" or chance.random() < 0.8]
        chance.shuffle(kept)
        return {name: found[name] for name in kept}

    lines = [json.dumps(row(), ensure_ascii=chance.random() < 0.5) for _ in range(300)]
    (tmp_path / "t.jsonl").write_text("\n".join([*lines, "", "  "]))
    given = (*MS, "--key-column", "text", "--header-columns", "n,mixed,yes,never")
    counts, _ = same(spark, tmp_path, tmp_path / "t.jsonl", *given)
    assert counts[0] == 300


# --- raw ------------------------------------------------------------------------------------------


def test_raw_values(spark, tmp_path):
    table = pa.table({"when": [1, 2, 3], "raw": [b"\xff", None, b""], "text": ["é", "", None]})
    pq.write_table(table, tmp_path / "t.parquet")
    for name in ("raw", "text"):
        given = ("--format", "raw", "--value-columns", name, "--header-columns", "raw,text,raw")
        same(spark, tmp_path / name, tmp_path / "t.parquet", *MS, *given)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "given", "expected"),
    [
        (
            "when\n1",
            ("--time-column", "at", "--time-unit", "ms"),
            "the table has no column at; it has",
        ),
        ("when\n1", (*MS, "--value-columns", "when,no"), "the table has no column no"),
        ("when\n1", ("--time-column", "when"), "column when is string: say its --time-unit"),
        (
            "when,p\n1,0",
            (*MS, "--partition-column", "p"),
            "is string, which is not a number of a partition",
        ),
        ("when\n99999999999999999", (*MS[:3], "s"), "99999999999999999 s is outside the range"),
        ("when\n1\nx", (*MS[:3], "iso"), "'1' is a number, not an ISO time"),
        ("when\n2024-01-01T00:00Z\n2024-01-01T00:00", (*MS[:3], "iso"), "or say --time-zone"),
        (
            "when\n1.5",
            (*MS, "--option", "inferSchema=true"),
            "is double, which is not a whole number",
        ),
        (
            "when\n2024-01-01",
            (*MS[:2], "--option", "inferSchema=true"),
            "column when is a date, a time without a zone: say --time-zone",
        ),
    ],
)
def test_refusals(spark, tmp_path, lines, given, expected):
    (tmp_path / "t.csv").write_text(lines + "\n")
    options = options_of(tmp_path / "t.csv", *HEADER, *given)
    with pytest.raises(Exception) as here:
        rows_in_process(TaskSession("tests"), options, PARTITIONS).count(LIMITS)
    with pytest.raises(Exception) as there, TaskSession("tests", spark=spark) as session:
        RowsOnSpark(tables.opened(session, options)[0], options, PARTITIONS).count(LIMITS)
    said = [sentence(here.value), sentence(there.value)]
    assert said[0] == said[1]
    assert expected in said[0]
