"""The command line of the pipeline: statuses, sentences, and what must not be imported."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tidelog.client import RequestError
from tidelog.pipeline import cli
from tidelog.pipeline.declaring import Item, Options, declared
from tidelog.pipeline.errors import FAILED, FINDINGS, USAGE, PipelineError, SetupError, UsageError
from tidelog.pipeline.source.splits import SourceError

ROOT = Path(__file__).parents[2]


@declared
class Audit(Options):
    job = "audit"
    number: Item[int] = Item(parse=int)


@pytest.fixture
def job(monkeypatch):
    """A job called audit that does what the test says."""
    module = types.ModuleType("tidelog.pipeline.jobs.audit", "What it does.")
    module.OPTIONS = Audit
    module.run = lambda options, session: 0
    monkeypatch.setattr(cli, "module_of", lambda name: module)
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
        (OSError("Invalid data\n\n"), FAILED, "Invalid data"),
        (
            PipelineError("a.parquet: Invalid data\n\n in it"),
            FAILED,
            "a.parquet: Invalid data in it",
        ),
        (KeyError("k"), FAILED, "KeyError: 'k'"),
        (
            ModuleNotFoundError("No module named 'pyarrow.fs'", name="pyarrow.fs"),
            FAILED,
            "pyarrow is not installed: pip install '.[spark]' in a clone of tidelog",
        ),
        (
            RuntimeError(
                "An error occurred while calling o1.collect.\n: org.x.Y: Job aborted\n at"
            ),
            FAILED,
            "org.x.Y: Job aborted",
        ),
        (
            RuntimeError(
                "An error\n: org.x.Y: Job aborted\ntidelog.pipeline.errors.PipelineError: it said so\n at org"
            ),
            FAILED,
            "it said so",
        ),
        (
            RuntimeError("Traceback\ntidelog.pipeline.errors.UsageError: it said so\n at org"),
            FAILED,
            "it said so",
        ),
        (RuntimeError("Traceback\ntidelog.jobs.JobError: it said so\n"), FAILED, "it said so"),
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


@pytest.mark.parametrize(
    ("error", "has_log"),
    [
        (PipelineError("so"), False),
        (RuntimeError("a query failed\ntidelog.pipeline.errors.PipelineError: so"), False),
        (RuntimeError("so"), True),
    ],
)
def test_an_error_of_sparks_names_its_log(monkeypatch, error, has_log):
    monkeypatch.setattr(cli, "kept_log", lambda: Path("/tmp/spark.log"))
    assert cli.explained(error).endswith(" (Spark's log: /tmp/spark.log)") == has_log


@pytest.mark.parametrize("option", ["--verbose", "--traceback"])
def test_where_it_failed_is_shown_on_demand(job, capsys, option):
    def run(options, session):
        raise PipelineError("so")

    job.run = run
    assert cli.main(["audit", option]) == FAILED
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


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "audit --logs . --topcis orders",
            "audit: unrecognized arguments: --topcis orders: did you mean --topics? (see tidelog pipeline a",
        ),
        (
            "archive compact DIR --file-bites=1",
            "archive compact: unrecognized arguments: --file-bites=1: did you mean --file-bytes?",
        ),
        (
            "audit --logs . orders",
            "audit: unrecognized arguments: orders (see tidelog pipeline audit --help)",
        ),
    ],
)
def test_an_unknown_option_is_told_with_the_nearest(line, sentence, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(line.split())
    assert left.value.code == USAGE
    assert capsys.readouterr().err.startswith(f"tidelog pipeline {sentence}")
