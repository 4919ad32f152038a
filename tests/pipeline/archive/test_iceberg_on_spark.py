"""Spark reads an archive's Iceberg table, with all packages that are declared for its version."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.pipeline import packaged_spark
from tests.pipeline.archive.archives import expected, some, with_logs
from tests.pipeline.jobs.test_mirror import filled_topic
from tidelog.pipeline.errors import OK
from tidelog.protocol.records.batch import Record

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
from tests.pipeline.archive import test_iceberg, test_iceberg_back

pytestmark = pytest.mark.spark
_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
jars, table, bootstrap, topic, delta = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.jars", jars)
builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
for key in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
    builder = builder.config(key, "1")
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
for key in ("spark.driver.host", "spark.driver.bindAddress"):
    builder = builder.config(key, "127.0.0.1")
spark = builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC").getOrCreate()
frame = spark.read.format("iceberg").load(table)
rows = frame.selectExpr("partition", "offset", "timestamp_ms", "unix_micros(timestamp)").collect()
old = frame.where("timestamp < timestamp'1000-01-01'").count()
log = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
log = log.load()
log.select("offset", "value").write.format("delta").save(delta)
kept = spark.read.format("delta").load(delta).orderBy("offset").collect()
kept = [[row.offset, bytes(row.value).decode()] for row in kept]
# As Iceberg's own programs write files anew, but listed by the test: Spark has no part in the catalog.
spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
days = frame.selectExpr("*", "floor(unix_micros(timestamp) / 86400000000) as day").coalesce(1)
days.write.partitionBy("day").parquet(delta + "-days")
print("ROWS", json.dumps([sorted(map(list, rows)), old, kept]))
"""


@pytest.fixture(scope="module")
def packaged():
    """The Python that has a PySpark, and the jars that go with it."""
    fetched = packaged_spark.fetch()
    if not fetched:
        pytest.skip(fetched.reason)
    return packaged_spark.installed()


def test_spark_reads_what_was_archived(packaged, broker, topic, tmp_path):
    """With all packages of its version at once: Iceberg's runtime, Kafka's connector, Delta."""
    filled_topic(broker.bootstrap, topic, [Record(0, n, b"k", b"%d" % n) for n in range(5)])
    with_logs(tmp_path, [(0, some(60, 1)), (1, some(40, 2))])
    assert test_iceberg.fill(tmp_path) == OK
    with_logs(tmp_path, [(0, some(20, 3))])
    assert test_iceberg.fill(tmp_path, run="two") == OK
    location = test_iceberg.table(tmp_path).metadata_location
    environment = {**os.environ, "PYSPARK_PYTHON": str(packaged.python), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [
            *(packaged.python, "-c", _PROGRAM, ",".join(map(str, packaged.jars)), location),
            *(broker.bootstrap, topic, str(tmp_path / "delta")),
        ],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows, old, kept = json.loads(done.stdout.partition("ROWS ")[2])
    wanted = {
        (partition, one.offset, one.timestamp)
        for (_, partition), records in expected(tmp_path).items()
        for one in records
    }
    assert {tuple(row[:3]) for row in rows} == wanted
    assert len(rows) == len(wanted) == 120
    for _, _, time_ms, micros in rows:
        is_held = time_ms != -1 and -(2**63) <= time_ms * 1000 < 2**63
        assert micros == (time_ms * 1000 if is_held else None)
    assert old == sum(time_ms == -62135596800000 for _, _, time_ms, _ in rows) > 0
    assert kept == [[n, str(n)] for n in range(5)]
    made = {}
    for path in (tmp_path / "delta-days").glob("day=*/*.parquet"):
        day = path.parent.name.removeprefix("day=")
        made[None if day.startswith("__") else int(day)] = path
    test_iceberg_back.replace(tmp_path, made)
    assert test_iceberg_back.verify(tmp_path) == OK
    copy = f"{topic}-copy"
    assert test_iceberg_back.restore(tmp_path, broker, copy) == OK
    test_iceberg_back.assert_records(tmp_path, broker, copy)
