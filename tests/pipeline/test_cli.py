"""The command line of the pipeline: statuses, sentences, and what must not be imported."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from client import RequestError
from pipeline import cli, tasks
from pipeline import session as session_module
from pipeline.errors import FAILED, FINDINGS, USAGE, PipelineError, SetupError, UsageError
from pipeline.runs.task_progress import watching
from pipeline.session import SMALL_BYTES, Session, check_java, check_pyspark, with_retries
from pipeline.source.splits import SourceError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def job(monkeypatch):
    """A job called audit that does what the test says."""
    module = types.ModuleType("pipeline.jobs.audit", "What it does.")
    module.arguments = lambda parser: parser.add_argument("--number", type=int)
    module.run = lambda options, session: 0
    monkeypatch.setattr(cli, "_module", lambda name: module)
    return module


def test_the_status_is_the_jobs(job):
    job.run = lambda options, session: FINDINGS if options.number == 5 else 7
    assert cli.main(["audit", "--number", "5"]) == FINDINGS


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (UsageError("not so"), USAGE, "not so"),
        (SetupError("no Java"), FAILED, "no Java"),
        (SourceError("it is gone"), FAILED, "it is gone"),
        (RequestError(3, "topic t"), FAILED, "topic t: UNKNOWN_TOPIC_OR_PARTITION: "),
        (OSError(2, "No such file", "x"), FAILED, "[Errno 2] No such file: 'x'"),
        (KeyError("k"), FAILED, "KeyError: 'k'"),
        (
            ModuleNotFoundError("No module named 'pyarrow.fs'", name="pyarrow.fs"),
            FAILED,
            "pyarrow is not installed: pip install '.[spark]' in a clone of tidelog",
        ),
        (
            RuntimeError(
                "An exception\nTraceback\npipeline.errors.PipelineError: it said so\n at org"
            ),
            FAILED,
            "it said so",
        ),
    ],
)
def test_a_failure_is_one_sentence(job, capsys, error, status, sentence):
    def run(options, session):
        raise error

    job.run = run
    assert cli.main(["audit"]) == status
    said = capsys.readouterr().err
    assert said.startswith(f"tidelog pipeline audit: {sentence}")
    assert said.count("\n") == 1


def test_where_it_failed_is_shown_on_demand(job, capsys):
    def run(options, session):
        raise PipelineError("so")

    job.run = run
    assert cli.main(["audit", "--traceback"]) == FAILED
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["audit", "--number", "x"], ["audit", "--num", "5"]]
)
def test_a_mistake_is_one_sentence(job, capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == USAGE
    assert capsys.readouterr().err.count("\n") == 1


def test_without_a_job_the_jobs_are_listed(capsys):
    assert cli.main([]) == USAGE
    said = capsys.readouterr().err
    assert all(name in said for name in cli.JOBS)


def test_help_imports_neither_pyspark_nor_pyarrow():
    jobs = sorted(path.stem for path in (ROOT / "pipeline" / "jobs").glob("[a-z]*.py"))
    code = (
        "import sys, contextlib, io\n"
        "from tidelog.cli import main\n"
        "for job in sys.argv[1:]:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "        main(['pipeline', job, '--help'])\n"
        "    assert 'usage: tidelog pipeline ' + job in out.getvalue(), job\n"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *[job for job in jobs if job in cli.JOBS]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.stderr, done.stdout) == ("", "[]\n")


def test_a_missing_java_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="no Java runtime was found below JAVA_HOME"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="no Java runtime was found on the PATH"):
        check_java()


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('java version "1.8.0_202"', "is Java 8"),
        ('openjdk version "11.0.2"', "is Java 11"),
        ("what?", "of an unknown version"),
    ],
)
def test_the_version_of_java_is_checked(monkeypatch, tmp_path, said, refused):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if refused is None:
        check_java()
    else:
        with pytest.raises(SetupError, match=refused):
            check_java()


@pytest.mark.parametrize(
    ("version", "refused"), [("4.1.0", False), ("4.0.9", True), ("5.0.0", True)]
)
def test_the_version_of_pyspark_is_checked(monkeypatch, version, refused):
    monkeypatch.setattr("pipeline.session.metadata.version", lambda name: version)
    if refused:
        with pytest.raises(SetupError, match=rf"PySpark {version} is installed"):
            check_pyspark()
    else:
        check_pyspark()


def test_without_spark_the_items_are_done_here():
    seen = []
    with Session("x", master="inline") as session:
        assert session.run(
            lambda item: item + os.getpid(), [1, 2], watch=lambda: seen.append(1)
        ) == [
            1 + os.getpid(),
            2 + os.getpid(),
        ]
        with pytest.raises(SetupError, match="needs Spark"):
            _ = session.spark
    assert len(seen) == 2


class Rows:
    """What the sessions below have for Spark: it does the work at once, and remembers what it was given."""

    def __init__(self):
        self.sparkContext, self.given, self.settled = self, [], []

    def parallelize(self, items, count):
        assert len(items) == count
        self.given.append(count)
        self._items = items
        return self

    def mapPartitions(self, task):
        self._task = task
        return self

    def collect(self):
        return list(self._task(iter(self._items)))


@pytest.fixture
def rows(monkeypatch):
    spark = Rows()
    monkeypatch.setattr(tasks, "settle", lambda: spark.settled.append(1))
    return spark


@pytest.mark.parametrize(
    ("master", "size_bytes", "on_spark"),
    [
        ("auto", SMALL_BYTES - 1, False),
        ("auto", SMALL_BYTES, True),
        ("auto", None, True),
        ("local[2]", 0, True),
        ("inline", 2**60, False),
    ],
)
def test_what_is_small_is_done_here_unless_told(rows, master, size_bytes, on_spark):
    with Session("x", master=master, spark=rows) as session:
        assert session.run(abs, [-3, 4, -5], size_bytes=size_bytes) == [3, 4, 5]
        assert session.run(abs, [], size_bytes=size_bytes) == []
    assert rows.given == ([3] if on_spark else [])
    assert len(rows.settled) == len(rows.given), "a worker's modules are settled before it works"


def test_spark_is_not_even_started_for_what_is_small(monkeypatch):
    monkeypatch.setattr("pipeline.session.check_pyspark", lambda: pytest.fail("started"))
    with Session("x", master="auto") as session:
        with watching(session, "x", 10) as watch:
            assert session.run(abs, [-1], watch=watch, size_bytes=10) == [1]
        assert not session.has_spark


def test_what_takes_long_after_all_goes_to_spark(rows, monkeypatch):
    """Sizes are estimates: a broker tells no bytes."""
    moments = iter((0.0, 4.9, 4.99, 5.0))
    clock = types.SimpleNamespace(monotonic=lambda: next(moments) + 100)
    monkeypatch.setattr(session_module, "time", clock)
    monkeypatch.setattr(session_module, "_HERE_S", 5.0)
    seen = []
    with Session("x", master="auto", spark=rows) as session:
        found = session.run(abs, [-1, -2, -3, -4], watch=lambda: seen.append(1), size_bytes=7)
    assert found == [1, 2, 3, 4]
    assert rows.given == [2], "two were begun in time"
    assert len(seen) >= 2


def test_an_audit_does_without_spark_what_is_small_and_others_say():
    for job, master in (("audit", "auto"), ("mirror", "local[*]"), ("whatif", "local[*]")):
        parser = cli._parser(job)
        known = {action.dest: action.default for action in _options_of(parser, job)}
        assert known["master"] == master


def _options_of(parser, job):
    (commands,) = (a for a in parser._actions if a.dest == "job")
    return commands.choices[job]._actions


def test_a_worker_settles_once(monkeypatch):
    frozen = []
    monkeypatch.setattr(tasks, "_is_settled", False)
    monkeypatch.setattr(tasks.gc, "freeze", lambda: frozen.append(1))
    tasks.settle()
    tasks.settle()
    assert frozen == [1]


def test_a_setting_given_wins():
    session = Session("x", conf=[("spark.driver.memory", "4g"), ("spark.x", "y")])
    assert session.settings()["spark.driver.memory"] == "4g"
    assert session.settings()["spark.x"] == "y"
    assert "spark.driver.memory" not in Session("x", master="spark://h:7077").settings()


@pytest.mark.parametrize(
    ("master", "meant"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_local_master_tries_again_too(master, meant):
    assert with_retries(master, 4) == meant


def test_what_spark_submit_is_given_finds_our_packages_first(tmp_path):
    for name in ("config", "client", "times"):  # a user's own, and names that our modules have
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('theirs')\n")
    done = subprocess.run(
        [sys.executable, str(ROOT / "pipeline" / "submit.py"), "mirror", "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: tidelog pipeline mirror" in done.stdout
