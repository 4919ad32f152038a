"""Spark reads an archive's Iceberg table, with the runtime that Iceberg publishes for a version of Spark."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.pipeline import iceberg_spark
from tests.pipeline.archive.archives import expected, some, with_logs
from tidelog.pipeline.errors import OK

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
from tests.pipeline.archive import test_iceberg

pytestmark = pytest.mark.spark
_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.jars", sys.argv[1])
for key in ("spark.driver.host", "spark.driver.bindAddress"):
    builder = builder.config(key, "127.0.0.1")
spark = builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC").getOrCreate()
frame = spark.read.format("iceberg").load(sys.argv[2])
rows = frame.selectExpr("partition", "offset", "timestamp_ms", "unix_micros(timestamp)").collect()
old = frame.where("timestamp < timestamp'1000-01-01'").count()
print("ROWS", json.dumps([sorted(map(list, rows)), old]))
"""


@pytest.fixture(scope="module")
def iceberg():
    """The Python that has a PySpark, and the jar that goes with it."""
    fetched = iceberg_spark.fetch()
    if not fetched:
        pytest.skip(fetched.reason)
    return iceberg_spark.installed()


def test_spark_reads_what_was_archived(iceberg, tmp_path):
    with_logs(tmp_path, [(0, some(60, 1)), (1, some(40, 2))])
    assert test_iceberg.fill(tmp_path) == OK
    with_logs(tmp_path, [(0, some(20, 3))])
    assert test_iceberg.fill(tmp_path, run="two") == OK
    location = test_iceberg.table(tmp_path).metadata_location
    environment = {**os.environ, "PYSPARK_PYTHON": str(iceberg.python), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [iceberg.python, "-c", _PROGRAM, str(iceberg.jar), location],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows, old = json.loads(done.stdout.partition("ROWS ")[2])
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
