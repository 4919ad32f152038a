"""The jobs as functions: the same reports as the commands, results that print, errors that are sentences."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tidelog.jobs
from tests.client.conftest import broker, either, kafka, topic  # noqa: F401 - fixtures
from tests.pipeline.archive.archives import with_logs
from tests.pipeline.jobs.test_mirror import KEEP, fill, some
from tidelog.client import Client, GroupOffset
from tidelog.pipeline import cli

ROOT = Path(__file__).parents[3]
NOW = 1_767_225_600_000
ORDINARY = {"upto": "log-end", "at": NOW, "run": "r"}


@pytest.fixture
def root(tmp_path):
    with_logs(tmp_path, [(0, some(200, 1, odd=False)), (1, some(90, 2, odd=False))])
    return tmp_path


def of_command(*arguments):
    """The report.json of a command."""
    cli.main([str(one) for one in arguments])
    out, run = arguments[arguments.index("--out") + 1], arguments[arguments.index("--run") + 1]
    return json.loads((out / run / "report.json").read_text())


def test_an_audit_is_the_commands(root, capsys):
    found = tidelog.jobs.audit(logs=root / "logs", out=root / "called", **ORDINARY)
    assert capsys.readouterr() == ("", ""), "a program prints what it wants"
    how = ("--upto", "log-end", "--at", NOW, "--run", "r")
    report = of_command("audit", "--logs", root / "logs", "--out", root / "typed", *how)
    assert json.loads(json.dumps(found.report)) == report
    assert str(found) == capsys.readouterr().out.replace("typed", "called").rstrip("\n")
    assert isinstance(found, tidelog.jobs.AuditResult)
    assert (found.run, found.directory) == ("r", root / "called" / "r")
    assert found.page == (found.directory / "report.html").read_text()
    assert [one["level"] for one in found.findings] == [one["level"] for one in report["findings"]]
    assert found.has_findings == (found.status == 1)
    shown = found._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<html" not in shown, "the page is quoted"


def test_an_archive_there_and_back(root, broker, topic, capsys):  # noqa: F811
    how = {"out": root / "runs", "report": "none"}
    logs = {"logs": root / "logs", "upto": "log-end", "to": root / "archive"}
    made = tidelog.jobs.archive(**logs, **how, file_bytes="8000")
    assert (made.records, made.files) == (290, len(list((root / "archive").rglob("*.parquet"))))
    assert not tidelog.jobs.archive_verify(root / "archive", **how).findings
    small = tidelog.jobs.archive_compact(root / "archive", **how)
    assert 0 < small.made < small.replaced
    assert "files became" in str(small)
    where = {"to_brokers": broker.bootstrap, "rename": {"t": topic}, "create": True}
    keep = {"set": {"retention.ms": -1, "retention.time.basis": "append"}}
    back = tidelog.jobs.restore(root / "archive", **where, **how, **keep)
    assert (back.records, len(back.partitions)) == (290, 2)
    with pytest.raises(tidelog.jobs.UsageError, match="already holds records"):
        tidelog.jobs.restore(root / "archive", **where, **how, **keep)
    more = tidelog.jobs.restore(root / "archive", **where, **how, **keep, append=True)
    assert more.records == 290
    next((root / "archive").rglob("*.parquet")).unlink()
    bad = tidelog.jobs.archive_verify(root / "archive", **how)
    assert bad.has_findings
    assert "missing" in bad.findings[0]
    assert bad._repr_html_().startswith("<pre>")
    assert capsys.readouterr() == ("", "")


def test_a_refusal_is_an_error_that_has_the_result(root, broker, topic):  # noqa: F811
    """A program that did not look at the status took it for a restore."""
    how = {"out": root / "runs", "report": "none"}
    tidelog.jobs.archive(logs=root / "logs", upto="log-end", to=root / "archive", **how)
    where = {"to_brokers": broker.bootstrap, "rename": {"t": topic}, "create": True}
    with pytest.raises(
        tidelog.jobs.Refused, match="nothing was written: retention would"
    ) as caught:
        tidelog.jobs.restore(root / "archive", **where, **how)
    assert isinstance(caught.value, tidelog.jobs.JobError)
    found = caught.value.result
    assert isinstance(found, tidelog.jobs.CopyResult)
    assert (found.status, found.records) == (1, 0)
    assert "refused unless --accept-deletion" in str(found)
    trial = tidelog.jobs.restore(root / "archive", **where, **how, dry_run=True)
    assert trial.has_findings, "a dry run has done what it was asked for"
    with Client(broker.bootstrap) as client:
        assert not client.has_topic(topic)


def test_a_mirror_and_a_failover(broker, topic, tmp_path):  # noqa: F811
    both = {"brokers": broker.bootstrap, "to_brokers": broker.bootstrap}
    copy = f"{topic}-copy"
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, KEEP)
        fill(client, topic, 0, some(50, 1))
        client.offset_commit("g", {(topic, 0): GroupOffset(20, "")})
    made = tidelog.jobs.mirror(
        **both, topics=[topic], rename={topic: copy}, create=True, out=tmp_path, run="m"
    )
    assert made.records == 50
    where = {"from_": broker.bootstrap, "to": broker.bootstrap, "topics": topic}
    found = tidelog.jobs.failover(
        group="g", **where, map=tmp_path / "m", apply=True, out=tmp_path, run="f"
    )
    assert found.is_applied
    (row,) = found.partitions
    assert (row["offset"], row["status"]) == (20, "ok")


def test_a_whatif_with_a_broken_guard(root):
    found = tidelog.jobs.whatif(
        logs=root / "logs",
        policy="short:retention.ms=1",
        guard=["max_deleted_records=0"],
        at="2400-01-01T00:00Z",
        out=root,
    )
    assert found.has_findings
    assert [one["guard"] for one in found.broken_guards] == ["max_deleted_records"]


def test_a_dry_run_has_a_text_and_no_report(root):
    found = tidelog.jobs.audit(logs=root / "logs", dry_run=True, out=root / "out", **ORDINARY)
    assert "2 partitions, 290 offsets" in str(found)
    assert found.report == {}
    assert not (root / "out").exists()


def test_a_failure_is_a_sentence(root):
    log = min((root / "logs" / "t-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(tidelog.jobs.JobError, match=r"00\.log: the batch at byte .* fails its CRC"):
        tidelog.jobs.audit(logs=root / "logs", out=root / "out", **ORDINARY)
    with pytest.raises(tidelog.jobs.UsageError, match="not-there is not a directory"):
        tidelog.jobs.whatif(logs="not-there", policy="a:retention.ms=1")
    with pytest.raises(
        tidelog.jobs.UsageError, match=r"^audit has no keyword log: did you mean logs"
    ):
        tidelog.jobs.audit(log=root / "logs")
    with pytest.raises(
        tidelog.jobs.UsageError, match=r"has no keyword x \(see help\(tidelog.jobs.a"
    ):
        tidelog.jobs.audit(x=1)
    with pytest.raises(tidelog.jobs.UsageError, match=r"^archive_compact: missing .* 'directory'"):
        tidelog.jobs.archive_compact()
    with pytest.raises(tidelog.jobs.UsageError, match="names the archive, a directory or an URI"):
        tidelog.jobs.archive_verify()


def test_partitions_that_stop_are_an_error(broker, topic, tmp_path):  # noqa: F811
    """Their sentences are in it; nothing is only printed."""
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, KEEP)
        fill(client, topic, 0, some(50, 1))
        client.create_topic(f"{topic}-copy", 1, {"message.timestamp.before.max.ms": "1000"})
    both = {"brokers": broker.bootstrap, "to_brokers": broker.bootstrap}
    with pytest.raises(tidelog.jobs.JobError, match=f"{topic}-copy-0: .*INVALID_TIMESTAMP"):
        tidelog.jobs.mirror(**both, topics=topic, rename={topic: f"{topic}-copy"}, out=tmp_path)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"master": "local[2]"}, "master=local[2] and spark are both given"),
        ({"conf": {"spark.x": "y"}}, "conf and spark are both given"),
    ],
)
def test_a_session_and_another_master_contradict_each_other(root, given, sentence):
    with pytest.raises(tidelog.jobs.UsageError) as caught:
        tidelog.jobs.audit(logs=root / "logs", spark=object(), **given)
    assert str(caught.value).startswith(sentence)


BARE = """
import sys
import tidelog.jobs
help(tidelog.jobs.audit)
print([name for name in ("pyspark", "pyarrow", "pipeline", "config") if name in sys.modules])
"""


def program(directory, text):
    """What a program of a user's prints, who has modules of our names."""
    for name in ("config", "storage", "protocol", "client", "broker", "pipeline"):
        (directory / f"{name}.py").write_text("raise RuntimeError('theirs')\n", encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, "-c", text, str(directory)],
        cwd=directory,
        env={**environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_sees_only_names_of_tidelog(tmp_path):
    said = program(tmp_path, BARE)
    # From Python 3.13 on help() breaks long signatures into lines.
    assert "audit(*,spark:'SparkSession|None'=None" in "".join(said.split())
    assert said.endswith("[]\n")


ON_SPARK = """
import sys
from pathlib import Path
import tidelog.jobs
from pyspark.sql import SparkSession

root = Path(sys.argv[1])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
spark.range(1).count()
before = spark.sparkContext.getConf().getAll()
jobs = lambda: spark.sparkContext._jsc.sc().statusStore().jobsList(None).size()
begun = jobs()
how = {"logs": root / "logs", "upto": "log-end", "at": 0, "run": "r", "split_bytes": "2k"}
alone = tidelog.jobs.audit(out=root / "alone", **how)
assert jobs() == begun, "what is small is done here"
theirs = tidelog.jobs.audit(spark=spark, out=root / "runs", **how)
assert jobs() > begun
assert theirs.report == alone.report
assert spark.range(3).count() == 3, "it was not stopped"
assert spark.sparkContext.getConf().getAll() == before
log = min((root / "logs" / "t-0").glob("*.log"))
log.write_bytes(log.read_bytes()[:200] + b"????" + log.read_bytes()[204:])
try:
    tidelog.jobs.archive(spark=spark, logs=root / "logs", upto="log-end", to=root / "archive")
except tidelog.jobs.JobError as error:
    print(error)
"""


@pytest.mark.spark
def test_a_users_session_does_the_work_and_stays(root):
    pytest.importorskip("pyspark", reason="PySpark is not installed: make test-spark installs it")
    said = program(root, ON_SPARK)
    assert "t-0/00000000000000000000.log: " in said
    assert said.count("\n") == 1, "a failure is one sentence"
