"""Jobs in processes of their own under each kind of master, and what they print when data is damaged."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pipeline.errors import FAILED, OK
from tests.pipeline import spark_cluster
from tests.pipeline.archive.archives import contents
from tests.pipeline.archive.test_archive import expected, some, with_logs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
pytest.importorskip("pyspark", reason="PySpark is not installed: make test-spark installs it")
HERE = (sys.executable, "-m", "tidelog", "pipeline")


@pytest.fixture
def root(tmp_path):
    (tmp_path / "logs").mkdir()
    with_logs(tmp_path, [(0, some(200, 1)), (1, some(90, 2))])
    return tmp_path


def archive(root, *more, through=HERE):
    """Archives in two partitions and some tasks each."""
    what = ("--logs", root / "logs", "--upto", "log-end", "--to", root / "archive")
    how = ("--task-offsets", "70", "--out", root / "runs", "--run", "one")
    return subprocess.run(
        [*map(str, (*through, "archive", *what, *how, *more))],
        cwd=root,
        env=spark_cluster.environ(),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_executors_in_processes_of_their_own(root):
    done = archive(root, "--master", "local-cluster[2,1,1024]")
    assert done.returncode == OK, done.stderr
    assert contents(root) == expected(root)
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert said[-1]["state"] == "done", "nothing but progress is said"


def test_the_master_of_spark_submit(root):
    """The application is registered there. It cannot reach another master: none is named."""
    submit = spark_cluster.home() / "bin" / "spark-submit"
    with spark_cluster.standalone(root) as cluster:
        through = (submit, "--master", cluster.master, "--name", "given")
        done = archive(root, through=(*through, spark_cluster.ROOT / "pipeline" / "submit.py"))
        assert done.returncode == OK, done.stderr
        assert cluster.completed() == [("given", "FINISHED")]
    assert contents(root) == expected(root)


def test_a_fault_in_data_is_one_sentence(root):
    log = min((root / "logs" / "t-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    done = archive(root, "--master", "local[2]")
    assert done.returncode == FAILED
    *progress, sentence = done.stderr.splitlines()
    assert sentence.startswith(f"tidelog pipeline archive: {log}: the batch at byte ")
    assert sentence.endswith("fails its CRC")
    assert [json.loads(line)["job"] for line in progress] == ["archive"] * len(progress)
    assert not list((root / "archive").glob("_manifest/*"))
