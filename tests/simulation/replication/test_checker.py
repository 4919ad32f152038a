"""What the checker counts as copies, what a compacted log may lack, and who goes on when it is cut off."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.simulation.replication.brokers.views import Replica
from tests.simulation.replication.checking.cut_off import LEASE_MS, CutOff
from tests.simulation.replication.checking.invariants import Checker
from tests.simulation.replication.checking.ledger import BrokenInvariantError, Ledger
from tests.simulation.replication.checking.log import KEYS, NO_EPOCH, Batch, Log
from tests.simulation.replication.checking.prefixes import is_prefix
from tests.simulation.replication.checking.stored import Part
from tests.simulation.replication.timeline import Timeline
from tidelog.broker.lifecycle.lease import Lease

KEY = "topic/0"


def broker_with(number, log):
    """Return a broker as the checker sees it."""
    logs = {} if log is None else {KEY: log}
    disk = SimpleNamespace(logs=logs)
    return SimpleNamespace(id=number, disk=disk, is_lossy=False, must_confirm=False)


def test_a_replica_that_a_reassignment_has_removed_may_have_deleted_its_copy():
    log = log_of(0, 1)
    brokers = {1: broker_with(1, log), 2: broker_with(2, None), 3: broker_with(3, log_of(0, 1))}
    coordinator = SimpleNamespace(store=None)
    checker = Checker(
        SimpleNamespace(coordinator=coordinator, brokers=brokers, timeline=Timeline(1))
    )
    checker.stored.parts[KEY] = Part((1, 3), (1, 3), (), 1, 1, 1, -1)
    checker.stored.ledgers[KEY] = Ledger(KEY)
    rules = SimpleNamespace(min_insync=3, needs_flush=False)
    leader = SimpleNamespace(
        leader_epoch=1, rules=rules, record=SimpleNamespace(replicas=(1, 2, 3))
    )
    replica = Replica(brokers[1], KEY, log, leader, 1)  # it has not heard of the reassignment
    checker.acknowledges(replica, log.batches[1], -1)  # two replicas are left, and both have it
    brokers[3].disk.logs[KEY] = log_of(0)
    with pytest.raises(BrokenInvariantError, match="acknowledged with 1 copies of 2"):
        checker.acknowledges(replica, log.batches[1], -1)
    # min.insync.replicas was raised between the move of the high watermark and the answer.
    checker.stored.ledgers[KEY].committed_with = {1: 2, 2: 1}
    checker.acknowledges(replica, log.batches[1], -1)


def log_of(*offsets):
    """Return a log in which each key comes again after `KEYS` offsets."""
    log = Log()
    log.end = log.high_watermark = offsets[-1] + 1
    log.batches = [Batch(each, 1, each, NO_EPOCH, 5, None, -1, -1, -1) for each in offsets]
    return log


@pytest.mark.parametrize("lacks", ["leader", "follower"])
@pytest.mark.parametrize(("lacking", "is_compacted"), [(1, True), (KEYS + 1, False)])
def test_what_a_compacted_log_may_lack_after_an_unclean_election(lacks, lacking, is_compacted):
    end = 2 * KEYS
    whole, part = log_of(*range(end)), log_of(*(n for n in range(end) if n != lacking))
    leader, follower = (part, whole) if lacks == "leader" else (whole, part)
    ledger = Ledger("topic-0")
    ledger.is_compacted = True
    ledger.begin_anew(2, [1, 2])
    assert is_prefix(follower, leader, ledger) == is_compacted


@pytest.mark.parametrize(
    ("in_sync", "elr", "leader", "is_unclean"),
    [((), (1,), -1, False), ((2,), (), 2, False), ((), (1, 2), -1, False), ((), (1,), -1, True)],
)
def test_who_alone_could_be_elected_goes_on_when_it_is_cut_off(in_sync, elr, leader, is_unclean):
    timeline = Timeline(1)
    timeline.now_ms = 60_000
    part = Part((1, 2), in_sync, elr, leader, 2, 1, 1)
    stored = SimpleNamespace(parts={KEY: part}, ledgers={KEY: Ledger(KEY)})
    broker = SimpleNamespace(id=1, lease=Lease(LEASE_MS, 0))
    cut_off = SimpleNamespace(
        leader_epoch=1,
        followers=(),
        maximal_isr=frozenset({1}),
        record=SimpleNamespace(elr=()),
        rules=SimpleNamespace(allows_unclean=is_unclean),
    )
    checker = CutOff(stored, timeline)
    if elr == (1,) and not is_unclean:
        checker.check(broker, KEY, cut_off)
    else:
        with pytest.raises(BrokenInvariantError, match="was to be suspended"):
            checker.check(broker, KEY, cut_off)
