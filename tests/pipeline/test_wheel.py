"""The pipeline from a wheel, beside a user's own `config` and `storage`: here and in Spark's workers."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.tidelog.test_wheel import (  # noqa: F401 - fixtures
    environment,
    project,
    run,
    wheel,
    with_dependencies,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a compiler on a busy machine
ON_SPARK = """
import config
from tidelog.pipeline.session import Session
from tidelog.pipeline.times import to_iso
assert config.THEIRS

with Session("wheel", master="local[1]") as session:
    assert session.run(to_iso, [0, -1]) == ["1970-01-01T00:00:00.000Z", "1969-12-31T23:59:59.999Z"]
print("worked")
"""


def plain_environ():
    """The environment without what a session of Spark in this process has set for its workers."""
    ours = ("PYTHONPATH", "PYTHONSAFEPATH")
    return {name: value for name, value in os.environ.items() if name not in ours}


def test_its_pipeline_is_found_beside_a_users_own_packages(with_dependencies, project):  # noqa: F811
    python, _ = with_dependencies
    code = "import sys; from tidelog.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [python, "-c", code, "pipeline", "mirror", "--help"],
        cwd=project,
        env=plain_environ(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "--to-brokers" in done.stdout


@pytest.mark.spark
def test_its_workers_find_it_too(with_dependencies, project):  # noqa: F811
    pytest.importorskip("pyspark", reason="PySpark is not installed: make test-spark installs it")
    python, _ = with_dependencies
    done = subprocess.run(
        [python, "-c", ON_SPARK],
        cwd=project,
        env=plain_environ(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["worked"]
