"""What the checker counts as promised, and what a compacted log may lack."""

from __future__ import annotations

import pytest

from tests.simulation.replication.checking.ledger import BrokenInvariantError, Ledger
from tests.simulation.replication.checking.prefixes import is_prefix
from tests.simulation.replication.cluster.log import KEYS, NO_EPOCH, Batch, Log
from tests.simulation.replication.world import FAULTS_MS, World

STEP_MS = 1


def begun(seed):
    """Return a world, and a leader in it whose followers have more than it knows yet."""
    world = World(seed, has_storage=False)
    while world.timeline.now_ms < FAULTS_MS:
        world.timeline.run_until(world.timeline.now_ms + STEP_MS, world.checker.after_step)
        for broker in world.brokers.values():
            for replica in broker.replicas.values():
                if replica.leader is not None and copied(world, replica) > promised(world, replica):
                    return world, replica
    raise AssertionError("no leader was behind its followers")


def copied(world, replica):
    """Return up to which offset all in-sync replicas have a leader's log."""
    part = world.checker.stored.parts[replica.key]
    logs = [world.brokers[member].disk.logs.get(replica.key) for member in part.isr]
    is_enough = len(part.isr) >= world.checker.stored.full(replica.key)
    return min(0 if log is None else log.end for log in logs) if is_enough else 0


def promised(world, replica):
    return world.checker.stored.ledgers[replica.key].end


def test_what_a_leader_commits_in_the_step_in_which_it_dies_is_promised():
    world, replica = begun(seed=1)
    end = copied(world, replica)
    replica.log.advance(end)
    replica.broker.stop("killed in the middle")
    world.checker.after_step()
    assert promised(world, replica) == end


def committed(seed):
    """Return a world, a leader with three replicas that all have its first batch, and the batch."""
    world = World(seed, has_storage=False)
    while world.timeline.now_ms < FAULTS_MS:
        world.timeline.run_until(world.timeline.now_ms + STEP_MS, world.checker.after_step)
        for broker in world.brokers.values():
            for replica in broker.replicas.values():
                if replica.leader is None or len(replica.assignment.record.replicas) != 3:
                    continue
                batch = next(iter(replica.log.batches), None)
                if batch is not None and copied(world, replica) >= batch.end:
                    replica.log.advance(max(batch.end, replica.log.high_watermark))
                    return world, replica, batch
    raise AssertionError("no leader had a batch that all have")


def without(world, replica, member):
    """Remove a replica: by a reassignment that its leader has not heard of, and from its broker."""
    stored = world.checker.stored
    part = stored.parts[replica.key]
    stored.parts[replica.key] = part._replace(
        replicas=tuple(each for each in part.replicas if each != member),
        isr=tuple(each for each in part.isr if each != member),
    )
    world.brokers[member].disk.logs.pop(replica.key)


def test_a_replica_that_a_reassignment_has_removed_may_have_deleted_its_copy():
    world, replica, batch = committed(seed=1)
    replica.rules = replica.rules._replace(min_insync=3)
    followers = [each for each in replica.assignment.record.replicas if each != replica.broker.id]
    without(world, replica, followers[0])
    world.checker.acknowledges(replica, batch, -1)  # two replicas are left, and both have it
    world.brokers[followers[1]].disk.logs[replica.key].truncate(batch.base)
    with pytest.raises(BrokenInvariantError, match="acknowledged with 1 copies of 2"):
        world.checker.acknowledges(replica, batch, -1)


def log_of(*offsets):
    """Return a log in which each key comes again after `KEYS` offsets."""
    log = Log()
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
