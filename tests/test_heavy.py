"""The heavy tests, shared out among processes: who shares a broker stays together, nothing told is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).resolve().parents[1]
SHORT = """
import os
import pytest

@pytest.mark.parametrize("number", range(3))
def test_short(number, summarize):
    summarize(f"short {number}", f"ran in {os.getpid()}")
"""
LONG = """
import os
import time
import pytest

@pytest.fixture(scope="session")
def dear():
    return os.getpid()

@pytest.mark.parametrize("number", range(4))
def test_long(dear, number, summarize):
    summarize(f"{__name__} {number}", f"ran in {dear}")
    assert number < 3
"""


def told(tmp_path, *options):
    """What a run of two folders of tests prints: the last lines, and where each test ran."""
    for name, text in (("tools/test_a", LONG), ("tools/test_b", LONG), ("test_c", SHORT)):
        file = tmp_path / "tests" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--rootdir", tmp_path]
    done = subprocess.run(
        [*command, *options, tmp_path], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    found = re.findall(r"-+ (.+) -+\nran in (\d+)\n", done.stdout)
    return done, dict(found)


def test_what_shares_a_broker_runs_in_one_process_and_all_is_told(tmp_path):
    done, places = told(tmp_path, "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder")
    assert "2 failed, 9 passed" in done.stdout, done
    assert len(places) == 11
    sharing = {place for title, place in places.items() if not title.startswith("short")}
    assert len(sharing) == 1
    assert len(set(places.values())) == 2


def test_without_processes_all_is_told_too(tmp_path):
    done, places = told(tmp_path)
    assert "2 failed, 9 passed" in done.stdout, done
    assert len(places) == 11
