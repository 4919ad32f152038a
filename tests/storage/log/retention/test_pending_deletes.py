"""When the files of deleted segments are removed, whatever the clock does meanwhile."""

import pytest

from tidelog.storage.log.retention.pending_deletes import PendingDeletes

LATE_MS = 10**15


@pytest.fixture
def paths(tmp_path):
    paths = [tmp_path / f"{number}.deleted" for number in range(3)]
    for path in paths:
        path.touch()
    return paths


def test_files_are_removed_once_the_delay_is_over(paths):
    pending = PendingDeletes()
    pending.add(paths, 1_000, 500, version=1)
    pending.remove_due(1_499, None)
    assert len(pending) == 3
    pending.remove_due(1_500, None)
    assert not any(path.exists() for path in paths)
    assert len(pending) == 0


def test_after_a_step_back_of_the_clock_the_delay_counts_anew(paths):
    pending = PendingDeletes()
    pending.add(paths, LATE_MS, 500, version=1)
    pending.remove_due(2_000, None)
    assert len(pending) == 3
    pending.remove_due(2_499, None)
    assert len(pending) == 3
    pending.remove_due(2_500, None)
    assert not any(path.exists() for path in paths)


def test_every_file_keeps_its_own_delay(paths):
    pending = PendingDeletes()
    pending.add(paths[:1], LATE_MS, 500, version=1)
    pending.add(paths[1:], LATE_MS, 700, version=2)
    for now_ms in (2_000, 2_500):
        pending.remove_due(now_ms, None)
    assert [path.exists() for path in paths] == [False, True, True]
    pending.remove_due(2_700, None)
    assert not any(path.exists() for path in paths)


def test_a_file_in_use_stays_also_when_it_is_due(paths):
    pending = PendingDeletes()
    pending.add(paths, LATE_MS, 500, version=4)
    pending.remove_due(0, None)
    pending.remove_due(500, 4)
    assert all(path.exists() for path in paths)
    pending.remove_due(500, 5)
    assert not any(path.exists() for path in paths)
