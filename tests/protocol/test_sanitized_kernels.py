"""The compiled kernels under sanitizers: the fuzz of records is clean, and an injected fault ends it.

The faults are injected in a copy of the kernels, which is built and fuzzed by the same tool: a read beyond
the end of a buffer, and an operation without a defined result.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "protocol/records/_kernels.pyx"
NO_SANITIZERS = 3
READ = "cdef int value = p[0] << 8 | p[1]"
BUGS = {
    "AddressSanitizer": "cdef int value = p[0] << 8 | p[4097]",
    "left shift of negative value": "cdef int value = <int>(<signed char>p[0]) << 8 | p[1]",
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]


def fuzz(directory, *more):
    """The exit status of the tool, and what it printed. `more` are further arguments of it."""
    pytest.importorskip("Cython")
    done = subprocess.run(
        [sys.executable, "tools/fuzz_kernels.py", "--build-dir", str(directory), *more],
        cwd=ROOT,
        env=os.environ | {"TIDELOG_FUZZ_FRAMES": "20000"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == NO_SANITIZERS:
        pytest.skip("the compiler has no sanitizers")
    return done.returncode, done.stdout + done.stderr


def test_the_fuzz_of_records_is_clean(tmp_path):
    status, said = fuzz(tmp_path)
    assert status == 0, said[-8_000:]


@pytest.mark.parametrize("report", BUGS)
def test_an_injected_fault_is_reported(tmp_path, report):
    package = tmp_path / "protocol/records"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    injected = package / SOURCE.name
    assert SOURCE.read_text().count(READ) == 1
    injected.write_text(SOURCE.read_text().replace(READ, BUGS[report]))
    tests = ("-s", "tests/protocol/records/test_fuzz.py")
    status, said = fuzz(tmp_path / "build", "--source", str(injected), *tests)
    assert status != 0
    assert report in said
