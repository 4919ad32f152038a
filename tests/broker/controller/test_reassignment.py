"""Reassignments (KIP-455): they grow, wait until the new replicas have caught up, and shrink in one step."""

from __future__ import annotations

import pytest

from tests.broker.partitions.replication.cluster import Cluster
from tests.broker.partitions.replication.states import state, written
from tidelog.broker.controller import reassignment
from tidelog.broker.controller.reassignment import (
    begin,
    cancel,
    complete,
    original,
    target,
)
from tidelog.protocol.errors import InvalidReplicaAssignment, NoReassignmentInProgress

ALL = range(1, 9)


def test_new_replicas_are_added_beside_the_old_ones():
    after = begin(state("1* 2 3", "1 2 3"), (3, 4, 5), ALL)
    assert written(after) == ("3 4 5 1* 2", "1 2 3", "")
    assert (after.adding, after.removing) == ((4, 5), (1, 2))
    assert (after.leader_epoch, after.partition_epoch) == (5, 10)


WHOLE = ("1* 2 3", "1 2 3")
# state | target | ISR meanwhile | who is able | min.insync.replicas -> the state then, and its leader epoch
STEPS = {
    "it waits until all new replicas are in sync": (WHOLE, (3, 4, 5), (1, 3, 4), ALL, 2, None),
    "also where the old ones have left": (WHOLE, (3, 4, 5), (4, 5), ALL, 2, None),
    "the old replicas go in one step with another leader": (
        WHOLE, (3, 4, 5), (3, 4, 5, 1, 2), {4, 5}, 2, (("3 4* 5", "3 4 5", ""), 6)),
    # A replica that is removed, wiped and added again must not come back on what it once had.
    "a leader epoch ends even if the leader stays": (
        WHOLE, (1, 2), (1, 2, 3), ALL, 2, (("1* 2", "1 2", ""), 6)),
    "a leader that cannot lead gets no new epoch": (
        WHOLE, (1, 2), (1, 2, 3), {2, 3}, 1, (("1 2*", "1 2", ""), 6)),
    "nobody able to lead delays the step": (WHOLE, (1, 2), (1, 2, 3), (), 1, None),
    "nor do the old replicas lead": (("1* 2", "1 2"), (3, 4), (3, 4, 1, 2), {1, 2}, 2, None),
    "only new replicas end no leader epoch": (
        ("1* 2", "1 2"), (1, 2, 3), (1, 2, 3), ALL, 2, (("1* 2 3", "1 2 3", ""), 5)),
    "removing waits while too few would be in sync": (
        ("1* 2 3", "1 3"), (1, 2), (1, 3), ALL, 2, None),
    "as min.insync.replicas says": (
        ("1* 2 3", "1 3"), (1, 2), (1, 3), ALL, 1, (("1* 2", "1", ""), 6)),
}  # fmt: skip


@pytest.mark.parametrize("step", STEPS)
def test_steps(step):
    before, replicas, isr, able, min_insync, expected = STEPS[step]
    growing = begin(state(*before), replicas, ALL)
    leader = growing.leader if growing.leader in isr else isr[0]
    after = complete(growing._replace(isr=isr, leader=leader), able, min_insync)
    assert (after and (written(after), after.leader_epoch)) == expected
    assert after is None or not reassignment.is_in_progress(after)


def test_only_another_order_is_no_reassignment():
    after = begin(state("1* 2 3", "1 2 3"), (3, 2, 1), ALL)
    assert (written(after), reassignment.is_in_progress(after)) == (("3 2 1*", "1 2 3", ""), False)


@pytest.mark.parametrize("isr", ["1 2 3", "1 2"])
def test_a_cancelled_reassignment_keeps_the_old_replicas_also_if_one_is_down(isr):
    growing = begin(state("1* 2 3", isr), (3, 4, 5), ALL)._replace(isr=(4, 1, 2))
    back = cancel(growing)
    assert original(back) == target(back) == (3, 1, 2)  # their order is the newer one, as in Kafka
    assert written(complete(back, ALL, 2)) == ("3 1* 2", "1 2", "")


def test_cancelling_waits_while_the_new_replicas_alone_are_in_sync():
    growing = begin(state("1* 2", "1"), (3, 4), ALL)._replace(isr=(3, 4), leader=3)
    assert complete(cancel(growing), ALL, 2) is None


def test_another_target_drops_what_the_first_was_adding():
    first = begin(state("1* 2 3", "1 2 3"), (3, 4, 5), ALL)
    second = begin(first, (1, 2, 6), ALL)
    assert (set(original(second)), target(second)) == ({1, 2, 3}, (1, 2, 6))
    assert set(second.adding) == {4, 5, 6}
    assert set(target(cancel(second))) == {1, 2, 3}


@pytest.mark.parametrize("replicas", [(), (4, 4), (1, 9)])
def test_an_impossible_target_is_refused(replicas):
    with pytest.raises(InvalidReplicaAssignment):
        begin(state("1* 2 3", "1 2 3"), replicas, ALL)


def test_nothing_to_cancel_is_said():
    with pytest.raises(NoReassignmentInProgress):
        cancel(state("1* 2 3", "1 2 3"))


def test_the_controller_takes_the_last_step():
    cluster = Cluster()
    cluster.live(1, 2, 3, 4)
    growing = begin(state("1* 2", "1 2"), (3, 4), ALL)
    cluster.create("t", growing)
    cluster.elect_controller()
    assert cluster.settle() == []
    cluster.set("t", 0, growing._replace(isr=(3, 4, 1, 2)))
    (done,) = cluster.settle()
    assert (done.why, written(cluster.state())) == ("reassignment", ("3* 4", "3 4", ""))
