"""Backfill from every kind of table: what their times mean, and what becomes of their columns."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelog.jobs
from tests.pipeline.backfill import registry
from tests.pipeline.jobs.test_mirror import everything
from tidelog.client import Client
from tidelog.pipeline import cli
from tidelog.pipeline.backfill import staging
from tidelog.pipeline.errors import FAILED, OK, USAGE, Refused
from tidelog.pipeline.jobs import backfill
from tidelog.pipeline.secured import with_command_configs
from tidelog.pipeline.session import TaskSession

pytestmark = pytest.mark.spark
FOREVER = ("--set", "retention.ms=-1")
SUMMER_MS = 1_719_828_000_123  # 2024-07-01T10:00:00.123Z


@pytest.fixture
def schemas():
    pytest.importorskip("fastavro", reason="the extra `avro` is not installed")
    pytest.importorskip("confluent_kafka.schema_registry", reason="the same", exc_type=ImportError)
    with registry.running() as server:
        yield server


@pytest.fixture
def into(broker, topic, tmp_path):
    """The options of a target of three partitions, with a directory for each run."""

    def options(*more, run="r"):
        return [
            *("--to-brokers", broker.bootstrap, "--topic", topic, "--create", "--partitions", "3"),
            *("--out", str(tmp_path / "out"), "--run", run, *FOREVER),
            *map(str, more),
        ]

    return options


@pytest.fixture
def arrived(broker, topic):
    def records():
        with Client(broker.bootstrap) as client:
            return [everything(client, topic, partition) for partition in range(3)]

    return records


def from_frame(frame, given):
    """Backfill from a DataFrame, with the options of the command line."""
    options = with_command_configs(cli.options_from(["backfill", *given])).but(frame=frame)
    with TaskSession("backfill", spark=frame.sparkSession) as session:
        return backfill.run(options, session)


def times_of(found):
    return sorted(one.timestamp for part in found for one in part)


# --- times ----------------------------------------------------------------------------------------


def test_microseconds_stay_in_json(on_spark, into, arrived, tmp_path):
    moment = dt.datetime(2024, 7, 1, 10, 0, 0, 123456)
    table = pa.table(
        {
            "when": pa.array([moment], pa.timestamp("us", "UTC")),
            "naive": pa.array([moment], pa.timestamp("us")),
            "inner": pa.array([{"at": moment}], pa.struct([("at", pa.timestamp("us", "UTC"))])),
            "old": pa.array([-62_135_596_800_000_000 - 1], pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    given = ("--table", tmp_path / "t.parquet", "--time-column", "when")
    assert cli.main(["backfill", *into(*given)]) == OK
    (record,) = [one for part in arrived() for one in part]
    assert record.timestamp == SUMMER_MS
    assert json.loads(record.value) == {
        "when": "2024-07-01T10:00:00.123456Z",
        "naive": "2024-07-01T10:00:00.123456",
        "inner": {"at": "2024-07-01T10:00:00.123456Z"},
        "old": "0000-12-31T23:59:59.999999Z",
    }


@pytest.mark.parametrize("kind", ["parquet", "csv", "date", "text"])
def test_a_time_without_a_zone_needs_one(on_spark, into, arrived, tmp_path, capsys, kind):
    """Spark would take it for UTC; nothing is created before its zone is said."""
    path = tmp_path / ("t.parquet" if kind in {"parquet", "date"} else "t.csv")
    local = dt.datetime(2024, 7, 1, 12, 0, 0, 123000)
    if kind == "parquet":
        pq.write_table(pa.table({"when": pa.array([local], pa.timestamp("us"))}), path)
    elif kind == "date":
        pq.write_table(pa.table({"when": pa.array([local.date()])}), path)
    else:
        path.write_text("when,id\n2024-07-01T12:00:00.123,a\n")
    given = ["--table", path, "--time-column", "when", "--value-columns", "when"]
    if path.suffix == ".csv":
        inferred = ("--option", "inferSchema=true") if kind == "csv" else ("--time-unit", "iso")
        given += ["--option", "header=true", *inferred]
    assert cli.main(["backfill", *into(*given)]) == (FAILED if kind == "text" else USAGE)
    said = capsys.readouterr().err
    assert "--time-zone" in said
    assert "does not say its zone" in said if kind == "text" else "a time without a zone" in said
    with pytest.raises(SystemExit):
        cli.main(["backfill", *into(*given, "--time-zone", "Europe/Nowhere")])
    assert "'Europe/Nowhere' is not a time zone" in capsys.readouterr().err
    assert cli.main(["backfill", *into(*given, "--time-zone", "Europe/Brussels", run="z")]) == OK
    expected = SUMMER_MS if kind != "date" else SUMMER_MS - 123 - 12 * 3_600_000
    assert times_of(arrived()) == [expected]


def test_a_table_that_changes_after_it_was_counted(
    on_spark, into, arrived, broker, topic, tmp_path, monkeypatch, capsys
):
    """What was counted is what is written, or nothing is."""
    table = tmp_path / "t.csv"

    def write(count):
        lines = [f"{n * 86_400_000},id-{n % 3},{n}\n" for n in range(count)]
        table.write_text("when,id,amount\n" + "".join(lines))

    how = ("--option", "header=true", "--time-column", "when", "--time-unit", "ms")
    given = ["backfill", *into("--table", table, *how)]
    write(30)
    count = staging.RowsOnSpark.count

    def counted(*arguments):
        found = count(*arguments)
        write(20)
        return found

    with monkeypatch.context() as injected:
        injected.setattr(staging.RowsOnSpark, "count", counted)
        assert cli.main(given) == FAILED
    assert "20 rows of the 30 that were counted are there" in capsys.readouterr().err
    with Client(broker.bootstrap) as client:
        assert not client.has_topic(topic)
    assert cli.main(given) == OK
    assert len(times_of(arrived())) == 20


# --- headers, partitions --------------------------------------------------------------------------


def test_columns_become_headers_and_name_the_partition(on_spark, into, arrived, capsys):
    frame = on_spark.createDataFrame(
        [
            (1, "x", None, [("h", b"1"), ("", None)], 0),
            (2, None, b"\xff", None, 2),
            (3, "z", b"", [], None),
        ],
        "when long, a string, `b.c` binary, more array<struct<key:string,value:binary>>, place int",
    )
    given = (
        *("--time-column", "when", "--time-unit", "ms", "--format", "raw", "--value-columns", "a"),
        *("--header-columns", "a,b.c,more", "--partition-column", "place"),
    )
    assert from_frame(frame.selectExpr("*", "7 - when as bad"), into(*given)) == OK
    first, second, third = sorted(
        ((one.timestamp, place, one) for place, part in enumerate(arrived()) for one in part),
        key=lambda each: each[0],
    )
    assert (first[1], first[2].headers) == (
        0,
        ((b"a", b"x"), (b"b.c", None), (b"h", b"1"), (b"", None)),
    )
    assert (second[1], second[2].headers) == (2, ((b"a", None), (b"b.c", b"\xff")))
    assert third[2].headers == ((b"a", b"z"), (b"b.c", b""))
    assert (second[2].value, third[2].value) == (None, b"z")
    outside = [*given[:-1], "bad", "--append"]
    capsys.readouterr()
    many = frame.selectExpr("*", "cast(7 - when as bigint) as bad")
    said = "3 rows with a partition outside 0 to 2 in bad: refused"
    with pytest.raises(Refused, match=f"nothing was written: {said}"):
        from_frame(many, into(*outside, run="s"))
    assert said in capsys.readouterr().out
    large = frame.selectExpr("*", f"when + {2**32}L as bad")
    ansi = "spark.sql.ansi.enabled"
    before = on_spark.conf.get(ansi)
    try:
        for mode in ("false", "true"):
            on_spark.conf.set(ansi, mode)
            with pytest.raises(Refused, match=said):
                from_frame(large, into(*outside, run=f"ansi-{mode}"))
    finally:
        on_spark.conf.set(ansi, before)
    assert len(times_of(arrived())) == 3


# --- frames, queries, databases -------------------------------------------------------------------


def test_a_frame_is_written_once_for_each_run(on_spark, into, arrived):
    frame = on_spark.range(20).selectExpr("timestamp_millis(id * 1000) as when", "id")
    for _ in range(2):
        assert from_frame(frame, into("--time-column", "when")) == OK
    assert times_of(arrived()) == [n * 1000 for n in range(20)]


def test_a_frame_in_a_program(on_spark, broker, topic, arrived, tmp_path):
    frame = on_spark.range(5).selectExpr("timestamp_millis(id * 1000) as seen", "id")
    done = tidelog.jobs.backfill(
        table=frame,
        time_column="seen",
        to_brokers=broker.bootstrap,
        topic=topic,
        create=True,
        partitions=3,
        set={"retention.ms": -1},
        out=tmp_path / "out",
    )
    assert "5 records" in str(done)
    assert times_of(arrived()) == [n * 1000 for n in range(5)]


def test_a_query_of_spark(on_spark, into, arrived, tmp_path):
    on_spark.range(9).selectExpr("id", "id * 1000 as at").write.parquet(str(tmp_path / "t"))
    query = f"select at, id from parquet.`{tmp_path / 't'}` where id % 3 = 0"
    given = ("--sql", query, "--time-column", "at", "--time-unit", "ms")
    assert cli.main(["backfill", *into(*given)]) == OK
    assert times_of(arrived()) == [0, 3000, 6000]


def test_tables_and_queries_of_a_database(on_spark, into, arrived, tmp_path, capsys):
    """Derby, whose driver comes with PySpark. Its timestamps have no zone."""
    system = on_spark.sparkContext._jvm.java.lang.System
    system.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    url = f"jdbc:derby:{tmp_path / 'db'};create=true"
    how = {"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}
    rows = on_spark.range(6).selectExpr(
        "cast(id as int) ID",
        "timestamp_ntz'2024-07-01 12:00:00' + make_interval(0,0,0,0,0,0,id) SEEN",
    )
    rows.write.jdbc(url, "visits", properties=how)
    driver = ("--option", f"driver={how['driver']}", "--option", "password=secret")
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    base = ("--jdbc", url, *driver, "--time-column", "SEEN")
    table = (*base, "--table", "visits", "--password-file", secret)
    assert cli.main(["backfill", *into(*table)]) == USAGE
    assert "column SEEN is a timestamp_ntz, a time without a zone" in capsys.readouterr().err
    zone = ("--time-zone", "Europe/Brussels")
    assert cli.main(["backfill", *into(*table, *zone)]) == OK
    start = SUMMER_MS - 123
    assert times_of(arrived()) == [start + n * 1000 for n in range(6)]
    assert "secret" not in (tmp_path / "out" / "r" / "plan.json").read_text()
    query = (*base, "--query", "select SEEN, ID from visits where ID < 2", *zone)
    assert cli.main(["backfill", *into(*query, "--exclusive", run="q")]) == OK
    assert len(times_of(arrived())) == 8


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((), "say --table, --sql"),
        (("--query", "select 1"), "say --jdbc URL"),
        (("--jdbc", "jdbc:x:y"), "--jdbc needs --table or --query"),
        (("--table", "t.csv", "--format", "avro"), "--format avro and --registry"),
    ],
)
def test_what_cannot_be_meant(on_spark, into, capsys, given, sentence):
    assert cli.main(["backfill", *into("--time-column", "at", *given)]) == USAGE
    assert sentence in capsys.readouterr().err


# --- Avro -----------------------------------------------------------------------------------------


def test_avro_values_by_a_registry(on_spark, into, arrived, schemas, topic, capsys):
    """Read back by another library's decoder of the same form: the deserializer of confluent-kafka."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    row = {
        "when": 1,
        "text": "é",
        "raw": b"\x00",
        "inner": {"n": 5, "at": None},
        "many": [1, None],
        "by": {"k": 2.5},
    }
    frame = on_spark.createDataFrame(
        [(*row.values(), decimal.Decimal("-12.34"), dt.date(1582, 10, 4))],
        "when long not null, text string, raw binary, inner struct<n:int,at:timestamp>,"
        " many array<int>, by map<string,double>, price decimal(9,2), day date",
    ).selectExpr("*", "timestamp_micros(1719828000123456) as at")
    given = (
        *("--time-column", "when", "--time-unit", "ms"),
        *("--format", "avro", "--registry", schemas.url),
    )
    assert from_frame(frame, into(*given)) == OK
    (record,) = [one for part in arrived() for one in part]
    (number,) = schemas.subjects[f"{topic}-value"]
    assert struct.unpack(">bI", record.value[:5]) == (0, number)
    client = SchemaRegistryClient({"url": schemas.url})
    assert AvroDeserializer(client)(record.value, None) == {
        **row,
        "price": decimal.Decimal("-12.34"),
        "day": dt.date(1582, 10, 4),
        "at": dt.datetime(2024, 7, 1, 10, 0, 0, 123456, dt.UTC),
    }
    capsys.readouterr()
    other = frame.selectExpr("when", "cast(price as string) as price")
    assert cli_of(other, into(*given, "--append", run="s")) == FAILED
    assert "the schema registry refused the schema" in capsys.readouterr().err
    bad = frame.selectExpr("when", "text as `odd name`")
    assert cli_of(bad, into(*given, "--append", run="t")) == USAGE
    assert "odd name cannot be a field of Avro" in capsys.readouterr().err
    assert len(times_of(arrived())) == 1


def cli_of(frame, options):
    """As the command line ends, for a DataFrame that it could name."""
    frame.createOrReplaceTempView("frame_of_test")
    return cli.main(["backfill", "--sql", "select * from frame_of_test", *options])


def test_times_before_year_1_in_avro(on_spark, into, arrived, schemas):
    """They are numbers there; Python has no such dates."""
    import fastavro

    frame = on_spark.sql("select timestamp_micros(-63549316800000001) as at, 5 as n")
    given = ("--time-column", "at", "--format", "avro", "--registry", schemas.url)
    given += ("--subject", "mine")
    assert from_frame(frame, into(*given)) == OK
    (record,) = [one for part in arrived() for one in part]
    assert record.timestamp == -63549316800001
    text = schemas.schemas[schemas.subjects["mine"][0]]
    plain = json.loads(text.replace(', "logicalType": "timestamp-micros"', ""))
    assert plain != json.loads(text)
    found = fastavro.schemaless_reader(io.BytesIO(record.value[5:]), plain)
    assert found == {"at": -63549316800000001, "n": 5}
