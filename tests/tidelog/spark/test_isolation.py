"""`tidelog.spark` in a program that has modules of all our names: each keeps its own, in every process.

The program is a user's: its directory holds `config`, `storage`, `protocol`, `client`, `broker` and
`pipeline`. It runs from a checkout that is not on the path of the workers, and from a wheel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.pipeline.logs import Writer
from tests.tidelog.test_wheel import (  # noqa: F401 - fixtures
    environment,
    lent,
    wheel,
    with_dependencies,
)
from tidelog.pipeline import arrival
from tidelog.protocol.records.batch import Record

ROOMS = ("config", "protocol", "storage", "client", "broker", "pipeline")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # a compiler on a busy machine
ROOT = Path(__file__).parents[3]

PROGRAM = """
import json, os, sys
where, path = sys.argv[1:]
ROOMS = ("config", "storage", "protocol", "client", "broker", "pipeline")

def theirs():
    import importlib
    return {room: importlib.import_module(room).THEIRS for room in ROOMS}

theirs()
if where:
    sys.path.insert(0, where)
import tidelog.spark
if where:
    sys.path.remove(where)
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
tidelog.spark.register(spark)
table = spark.read.format("timelog").option("upto", "log-end").option("level", "time").load(path)

@udf("string")
def seen_by_worker(_):
    import config, json, os, sys
    has_read = "tidelog.pipeline.source.reading" in sys.modules
    return json.dumps([os.getpid(), has_read, config.SECRET, theirs()])

def read():
    return [list(row) for row in table.select("offset", "timestamp_ms").collect()]

def run_udf(frame):
    return [json.loads(row[0]) for row in frame.select(seen_by_worker(frame.columns[0])).collect()]

plain = spark.range(2)
workers = run_udf(plain)
rows = read()
workers += run_udf(table) + run_udf(plain)
again = read()
print("FOUND", json.dumps({
    "rows": rows,
    "again": again,
    "driver": theirs(),
    "workers": workers,
    "ours": [name for name, module in sys.modules.items() if name.partition(".")[0] in ROOMS
             and not str(getattr(module, "__file__", "")).startswith(os.getcwd())],
}))
spark.stop()
"""


@pytest.fixture
def project(tmp_path):
    """A user's program, and its modules of our names."""
    place = tmp_path / "project"
    place.mkdir()
    for name in ROOMS:
        (place / f"{name}.py").write_text(f"THEIRS = {name!r}\nSECRET = 7\n", encoding="utf-8")
    (place / "program.py").write_text(PROGRAM, encoding="utf-8")
    return place


@pytest.fixture
def log(tmp_path):
    """A log of three records."""
    writer = Writer(tmp_path / "log")
    for number in range(3):
        writer.append([Record(0, number * 1000, None, b"v")], now=1)
    writer.close()
    return tmp_path / "log"


def found(python, project, log, where):
    """What the program reports; workers find the user's modules in the working directory."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [python, "program.py", where, str(log)],
        cwd=project,
        env={**environ, "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("FOUND ")]
    return json.loads(line.removeprefix("FOUND "))


def judge(answer):
    expected = {name: name for name in ROOMS}
    assert answer["rows"] == answer["again"] == [[0, 0], [1, 1000], [2, 2000]]
    assert answer["driver"] == expected
    assert answer["ours"] == []
    assert all(seen[2:] == [7, expected] for seen in answer["workers"])
    assert any(has_read for _, has_read, *_ in answer["workers"]), "a reused worker ran the UDF"


@pytest.fixture
def bare(tmp_path):
    """A Python that has what tidelog needs, and no tidelog."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    (site_packages,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    with lent(site_packages):
        yield tmp_path / "bare" / "bin" / "python"


def test_from_a_checkout(bare, project, log):
    pytest.importorskip("pyspark", reason="PySpark is not installed: make test-spark installs it")
    judge(found(bare, project, log, str(ROOT)))


def test_from_a_wheel(with_dependencies, project, log):  # noqa: F811
    pytest.importorskip("pyspark", reason="PySpark is not installed: make test-spark installs it")
    python, _ = with_dependencies
    judge(found(python, project, log, ""))


LACKING = """
import sys
sys.path.insert(0, sys.argv[1])
import tidelog.spark
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
tidelog.spark.register(spark)
spark.read.format("timelog").load(sys.argv[2])
"""


def test_workers_without_dependencies_are_named(tmp_path, log):
    """The driver has pyarrow, and the Python of the workers has PySpark alone."""
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed")
    import py4j

    venv.create(tmp_path / "poor", with_pip=False, symlinks=True)
    (site_packages,) = (tmp_path / "poor").glob("lib/python*/site-packages")
    for package in (pyspark, py4j):
        place = Path(package.__file__).parent
        (site_packages / place.name).symlink_to(place)
    python = tmp_path / "poor" / "bin" / "python"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", LACKING, str(ROOT), str(log)],
        cwd=tmp_path,
        env={**environ, "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 1
    assert f"the Python of Spark's workers, {python}, has no " in done.stderr
    assert "set PYSPARK_PYTHON" in done.stderr


ARRIVING = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("arrival", sys.argv[1])
arrival = importlib.util.module_from_spec(spec)
spec.loader.exec_module(arrival)
arrival.arrive(sys.argv[2], "1")
"""


@pytest.mark.parametrize("files", [[], ["__init__.py"]])
def test_a_directory_called_tidelog_that_hides_ours_is_named(tmp_path, files):
    """In a worker beside the program, on a machine that has not the driver's directory."""
    (tmp_path / "tidelog").mkdir()
    for name in files:
        (tmp_path / "tidelog" / name).touch()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", ARRIVING, arrival.__file__, str(tmp_path / "nowhere")],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: in Spark's workers ({sys.executable}) tidelog is {tmp_path / 'tidelog'}, which is"
        " another package or a directory of that name: rename it, since it hides an installed tidelog"
    )


def test_another_version_in_the_workers_is_refused():
    with pytest.raises(ImportError, match=r"the driver has tidelog 9.9, and .* has tidelog "):
        arrival.arrive(str(ROOT), "9.9")
