"""Jobs in processes of their own under each kind of master, and what they print when data is damaged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline import spark_cluster
from tests.pipeline.archive.archives import contents, expected
from tests.pipeline.jobs.test_mirror import everything, plain
from tests.pipeline.spark_cluster import ROOT
from tidelog.client import Client
from tidelog.pipeline.errors import FAILED, OK, USAGE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
HERE = (sys.executable, "-m", "tidelog", "pipeline")


@pytest.fixture(autouse=True)
def _pyspark():
    pytest.importorskip("pyspark", reason="PySpark is not installed: make test-spark installs it")


def archive(root, *more, through=HERE):
    """Archives two partitions, by a task each."""
    what = ("--logs", root / "logs", "--upto", "log-end", "--to", root / "archive")
    how = ("--out", root / "runs", "--run", "one")
    return subprocess.run(
        [*map(str, (*through, "archive", *what, *how, *more))],
        cwd=root,
        env={**spark_cluster.environ(), "TMPDIR": str(root)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


PROGRAM = Path(__file__).with_name("every_job.py")


def every_job(root, broker, topic, *masters, through=(sys.executable,)):
    """Runs the program, which has modules of our names beside it; returns what it reports."""
    for name in ("config", "storage", "pipeline"):
        (root / f"{name}.py").write_text("raise RuntimeError('theirs')\n", encoding="utf-8")
    done = subprocess.run(
        [*map(str, (*through, PROGRAM, root, broker.bootstrap, topic, *masters))],
        cwd=root,
        env={**spark_cluster.environ(), "TIDELOG_SPARK_LOG": "WARN"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert done.returncode == 0, "\n".join([done.stdout, *told])[-6000:]
    (line,) = done.stdout.splitlines()
    return json.loads(line)


def check(found, root, broker, topic, master):
    assert found.pop("jobs") >= 8, "each job has run its tasks in Spark"
    assert found == {
        "master": master,
        "audit": 290,
        "whatif": 290,
        "archive": 290,
        "compact": True,
        "verify": [],
        "restore": 290,
        "mirror": 290,
        "backfill": 20,
    }
    assert contents(root) == expected(root)
    with Client(broker.bootstrap) as client:
        for partition in range(2):
            copies = [
                plain(everything(client, f"{topic}-{name}", partition))
                for name in ("restored", "mirrored")
            ]
            assert copies[0] == copies[1]
            assert len(copies[0]) == (200, 90)[partition]
        assert [one.timestamp for one in everything(client, f"{topic}-filled", 0)] == list(
            range(20)
        )


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_every_job_in_a_program_of_its_own(root, broker, topic, master):
    check(every_job(root, broker, topic, master), root, broker, topic, master)


def test_every_job_by_spark_submit_on_a_standalone_master(root, broker, topic):
    """The applications are registered there. They cannot reach another master: none is named."""
    with spark_cluster.standalone(root) as cluster:
        through = (spark_cluster.submit(), "--master", cluster.master, "--name", "theirs")
        found = every_job(root, broker, topic, through=through)
        check(found, root, broker, topic, cluster.master)
        through = (
            spark_cluster.submit(),
            "--master",
            cluster.master,
            ROOT / "pipeline" / "submit.py",
        )
        done = archive(root, "--to", root / "again", through=through)
        assert done.returncode == OK, done.stderr
        ended = [("theirs", "FINISHED"), ("tidelog archive", "FINISHED")]
        assert sorted(cluster.completed()) == ended


def test_spark_submit_keeps_progress_and_failures_out_of_standard_output(root):
    """spark-submit itself copies standard error of a Python program to standard output."""
    through = (spark_cluster.submit(), "--master", "local[2]", ROOT / "pipeline" / "submit.py")
    done = archive(root, through=through)
    assert done.returncode == OK, done.stderr
    assert done.stdout.startswith("archive one: 290 records")
    assert '"state"' not in done.stdout
    assert [line for line in done.stderr.splitlines() if line.startswith('{"job": "archive"')]
    refused = archive(root, "--from", "soon", through=through)
    assert refused.returncode == USAGE
    assert refused.stdout == ""
    assert "tidelog pipeline archive: " in refused.stderr


LISTENING = """
import json, os
from pathlib import Path
from tidelog.pipeline import spark_start
spark_start.acquire("audit", None, {})
own = {os.readlink(one) for one in Path(f"/proc/{os.getppid()}/fd").iterdir()}
table = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}")]
listening = [row for row in table if row[3] == "0A" and f"socket:[{row[9]}]" in own]
print(json.dumps(sorted({row[1].partition(":")[0] for row in listening})))
"""


def test_spark_submit_with_a_local_master_listens_on_loopback_alone(root):
    """The JVM runs before a job can name an address for Spark's UI."""
    (root / "program.py").write_text(LISTENING, encoding="utf-8")
    environ = {k: v for k, v in spark_cluster.environ().items() if k != "SPARK_LOCAL_IP"}
    done = subprocess.run(
        [spark_cluster.submit(), "--master", "local[2]", root / "program.py"],
        cwd=root,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found, "the driver of Spark listens for its executors"
    assert all(one.endswith("0100007F") for one in found), f"127.0.0.1 as /proc/net has it: {found}"


def test_executors_in_processes_of_their_own_say_nothing_but_progress(root):
    done = archive(root, "--master", "local-cluster[2,1,1024]")
    assert done.returncode == OK, done.stderr
    assert contents(root) == expected(root)
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert said[-1]["state"] == "done"


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
    assert not list(root.glob("tidelog-spark-*.log")), "nobody is told to read Spark's log"


def test_spark_that_does_not_start_is_one_sentence(root):
    done = archive(root, "--master", "local", "--conf", "spark.submit.deployMode=nonsense")
    assert done.returncode == FAILED
    (log,) = root.glob("tidelog-spark-*.log")
    assert done.stderr.splitlines()[-1] == (
        "tidelog pipeline archive: Spark does not start: Deploy mode must be either client or cluster"
        f" (Spark's log: {log})"
    )
    assert "SparkException" in log.read_text()
