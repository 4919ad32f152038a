"""A stored log as the simulated broker sees it, when storage does only a part of a change."""

from __future__ import annotations

import itertools
import random
from uuid import UUID

import pytest

from tests.simulation.replication.checking.ledger import BrokenInvariantError, Ledger
from tests.simulation.replication.checking.lookups import check_lookups
from tests.simulation.replication.cluster.disk import BEGIN_MS
from tests.simulation.replication.cluster.requests import Produce
from tests.simulation.replication.cluster.settings import Settings
from tests.simulation.replication.planted import PLANTED, planted
from tests.simulation.replication.real.disk import RealDisk
from tests.storage.replicas.replica import Router
from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage import files

KEY = "topic/0"
BATCHES = 8
SETTINGS = Settings(
    min_insync=1,
    is_stamped=False,
    format=2,
    needs_flush=False,
    allows_unclean=False,
    retention_ms=-1,
    retention_event_ms=-1,
)


@pytest.fixture
def logs(tmp_path):
    """Return a leader's log with some batches, an empty log that follows, and its disk."""
    router, moments = Router(), itertools.count(BEGIN_MS)
    before = files.use(router)
    disks = [
        RealDisk(random.Random(1), lambda _: None, lambda: next(moments), tmp_path / name, router)
        for name in ("leader", "follower")
    ]
    leader, follower = (_opened(disk) for disk in disks)
    leader.begin_epoch(1)
    follower.follow(1)
    for number in range(BATCHES):
        request = Produce(KEY, number, 1, 1, BEGIN_MS + number, -1, -1, -1)
        leader.produce(request, SETTINGS, 1, broker=None)
    yield leader, follower, disks[1]
    for disk in disks:
        disk.kill()
    files.use(before)


def deleted_in_part(logs):
    """Copy all batches to the follower, and delete some of the leader's; return what was promised."""
    leader, follower, _ = logs
    follower.append_as_follower(leader.read(0, leader.end, BATCHES))
    for log in (leader, follower):
        log.advance(leader.end)
    ledger = Ledger(KEY)
    ledger.add(leader, leader.end)
    leader.delete_before(BATCHES // 2)
    assert (leader.start, follower.start) == (BATCHES // 2, 0)
    return ledger


def look_up_all(ledger, logs):
    for seed in range(5):
        for entry in ledger.entries:
            check_lookups(random.Random(seed), ledger, entry, logs)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_lookups_are_compared_where_both_replicas_have_batches(logs, is_compacted):
    ledger = deleted_in_part(logs)
    ledger.is_compacted = is_compacted
    assert len({entry.time for entry in ledger.entries}) == BATCHES
    look_up_all(ledger, logs[:2])
    look_up_all(ledger, logs[1:2])


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("asked", [slice(0, 2), slice(0, 1), slice(1, 2)])
def test_a_wrong_answer_is_noticed_where_log_starts_differ(logs, is_compacted, asked):
    ledger = deleted_in_part(logs)
    ledger.is_compacted = is_compacted
    mistake = PLANTED["a lookup passes by what was appended at the time"]
    with planted(mistake), pytest.raises(BrokenInvariantError, match=r"^invariant 11: "):
        look_up_all(ledger, logs[asked])


def _opened(disk):
    disk.start(1)
    disk.configure("topic", SETTINGS)
    return disk.open_log(KEY, UUID(int=1))


def test_what_a_full_disk_had_room_for_is_seen(logs):
    leader, follower, disk = logs
    answer = leader.read(0, leader.end, BATCHES)
    disk._power.room = len(b"".join(answer.data.records)) // 2
    with pytest.raises(KafkaStorageError, match="the disk is full"):
        follower.append_as_follower(answer)
    assert 0 < follower.partition.log_end_offset < leader.end
    assert follower.end == follower.partition.log_end_offset
    assert follower.batches == leader.batches[: len(follower.batches)]
    disk.repair()
    follower.append_as_follower(leader.read(follower.end, leader.end, BATCHES))
    assert (follower.end, follower.batches) == (leader.end, leader.batches)
