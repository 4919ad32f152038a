"""Where no container engine runs, CI lets exactly the tests be skipped that need one."""

from __future__ import annotations

import sys

import pytest

from tests.docker.engine import ROOT, run

pytestmark = pytest.mark.slow


def test_ci_allows_as_many_skips_as_tests_need_an_engine():
    lines = (ROOT / ".ci" / "skips").read_text(encoding="utf-8").splitlines()
    (allowed,) = (int(line.split()[1]) for line in lines if line.startswith("test-docker "))
    told = run(
        *(sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"),
        *("-m", "docker", ROOT / "tests" / "docker"),
        environ={"PYTEST_ADDOPTS": ""},
    )
    needing = [line for line in told.splitlines() if line.startswith("tests/docker/")]
    assert len(needing) == allowed, told
