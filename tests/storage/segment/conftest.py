"""What the tests of segments share: a count of the bytes that are read from logs."""

import os
from pathlib import Path

import pytest

from tidelog.storage import filenames, files


class Reads(files.System):
    """Counts the bytes that are read from .log files."""

    def __init__(self):
        self.bytes = 0

    def read(self, number, size, position):
        data = super().read(number, size, position)
        if Path(os.readlink(f"/proc/self/fd/{number}")).suffix == filenames.LOG_SUFFIX:
            self.bytes += len(data)
        return data


@pytest.fixture
def reads():
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    system = Reads()
    before = files.use(system)
    yield system
    files.use(before)
