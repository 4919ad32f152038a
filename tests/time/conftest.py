"""Scripts speak of times, not of power losses: nothing waits for the disk here."""

import pytest

from tests.simulation.disks import Unsynced
from tidelog.storage import files


@pytest.fixture(autouse=True)
def unsynced():
    before = files.use(Unsynced())
    yield
    files.use(before)
