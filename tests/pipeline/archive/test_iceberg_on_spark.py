"""Spark reads an archive's Iceberg table, with the runtime that Iceberg publishes for a version of Spark.

There is none for the newest Spark for some months. The Python of TIDELOG_ICEBERG_PYTHON may then have an
older PySpark; without it this one is asked, and the test is skipped where no runtime goes with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys

import pytest

from pipeline.errors import OK
from tests.oracle.apache_kafka import cache_root, maven_available
from tests.pipeline import spark_kafka
from tests.pipeline.archive.test_archive import expected, some, with_logs

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")
from tests.pipeline.archive import test_iceberg

pytestmark = pytest.mark.spark
RUNTIMES = {
    "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1",
    "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
}
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
def python():
    """The Python that has a PySpark, and the jar that goes with it."""
    program = os.environ.get("TIDELOG_ICEBERG_PYTHON", sys.executable)
    asked = [program, "-c", "import importlib.metadata as m; print(m.version('pyspark'))"]
    version = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    artifact = RUNTIMES.get(".".join(version.split(".")[:2]))
    if artifact is None:
        known = ", ".join(RUNTIMES)
        pytest.skip(f"Iceberg has no runtime for PySpark {version or '(none)'}: {known} have one")
    directory = cache_root() / "iceberg"
    directory.mkdir(parents=True, exist_ok=True)
    _, name, release = artifact.split(":")
    jar = directory / f"{name}-{release}.jar"
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may start at once
        if not jar.exists():
            maven = maven_available()
            if not maven:
                pytest.skip(maven.reason)
            if not spark_kafka.copy(artifact, directory):
                pytest.skip(f"Maven could not fetch {artifact}")
    return program, jar


def test_spark_reads_what_was_archived(python, tmp_path):
    (tmp_path / "logs").mkdir()
    with_logs(tmp_path, [(0, some(60, 1)), (1, some(40, 2))])
    assert test_iceberg.fill(tmp_path) == OK
    with_logs(tmp_path, [(0, some(20, 3))])
    assert test_iceberg.fill(tmp_path, run="two") == OK
    program, jar = python
    location = test_iceberg.table(tmp_path).metadata_location
    environment = {**os.environ, "PYSPARK_PYTHON": program, "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [program, "-c", _PROGRAM, str(jar), location],
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
