"""CI runs a failed test once more, with its seed: what passes is listed, what fails again fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).resolve().parents[1] / ".ci" / "run_again.py"
TESTS = """
import pathlib, random, pytest

@pytest.mark.parametrize("number", range(5))
def test_fails_once(number):
    seen = pathlib.Path(f"seen {number}")
    drawn = str(random.random())
    if not seen.exists():
        seen.write_text(drawn)
        raise AssertionError
    assert seen.read_text() == drawn

def test_fails_always():
    raise AssertionError
"""


def run(directory, *chosen):
    """The exit status of the second run after a first one of the chosen tests, and what it lists."""
    (directory / "pytest.ini").write_text("[pytest]\naddopts = -p no:tidelog\n")
    (directory / "test_them.py").write_text(TESTS)
    names = [f"test_them.py::{name}" for name in chosen]
    first = [sys.executable, "-m", "pytest", "-q", "-n", "2", *names]
    assert subprocess.run(first, cwd=directory, check=False, capture_output=True).returncode == 1
    unsteady = directory / "unsteady"
    second = [sys.executable, str(SCRIPT), str(unsteady)]
    again = subprocess.run(second, cwd=directory, check=False, capture_output=True, text=True)
    return again.returncode, unsteady.read_text().splitlines() if unsteady.exists() else []


def test_what_passes_with_the_same_seed_is_listed(tmp_path):
    status, listed = run(tmp_path, "test_fails_once[0]", "test_fails_once[1]")
    assert status == 0
    assert sorted(line.split(" (--randomly-seed=")[0] for line in listed) == [
        "test_them.py::test_fails_once[0]",
        "test_them.py::test_fails_once[1]",
    ]


def test_what_fails_again_fails_the_run(tmp_path):
    assert run(tmp_path, "test_fails_always")[0] == 1


def test_more_than_three_are_not_run_again(tmp_path):
    assert run(tmp_path, *(f"test_fails_once[{number}]" for number in range(4))) == (1, [])
