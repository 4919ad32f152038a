"""A process that serves does not ask the system for the same pages again and again.

What counts is the page faults of a new process, which the kernel counts.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tidelog.broker.network.memory.heap import keep_freed_memory

ROUNDS, BLOCKS, BLOCK_BYTES = 20, 3, 1 << 20
PAGES = ROUNDS * BLOCKS * BLOCK_BYTES // os.sysconf("SC_PAGE_SIZE")
PROGRAM = f"""
import resource
from tidelog.broker.network.memory.heap import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

is_set = keep_freed_memory()
before = faults()
for _ in range({ROUNDS}):
    frames = [bytearray({BLOCK_BYTES}) for _ in range({BLOCKS})]
    del frames
print(is_set, faults() - before)
"""
OURS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def run(**more: str) -> tuple[bool, int]:
    """Whether the thresholds were set, and the page faults of all rounds."""
    plain = {name: value for name, value in os.environ.items() if name not in OURS}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=plain | more,
        capture_output=True,
        text=True,
        check=True,
    )
    is_set, faults = done.stdout.split()
    return is_set == "True", int(faults)


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or "glibc" not in os.confstr("CS_GNU_LIBC_VERSION"),
    reason="glibc's malloc",
)
def test_pages_that_were_freed_are_used_again():
    is_set, faults = run()
    assert is_set
    assert faults < PAGES / ROUNDS * 2  # the first round takes each page once

    is_set, faults = run(MALLOC_TRIM_THRESHOLD_="131072")
    assert not is_set
    assert faults > PAGES / 2  # what is free goes back at once, so that each round begins anew


@pytest.mark.parametrize("name", OURS)
def test_what_the_environment_says_of_malloc_stays(name):
    assert keep_freed_memory({name: "1"}) is False
