"""Scripts speak of times, not of power losses: nothing waits for the disk here."""

import pytest

from storage import files
from tests.simulation.disks import Unsynced


@pytest.fixture(autouse=True)
def unsynced():
    before = files.use(Unsynced())
    yield
    files.use(before)
