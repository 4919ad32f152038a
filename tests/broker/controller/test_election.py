"""Elections: who leads when brokers go and come, rule by rule, and what holds after any of them."""

from __future__ import annotations

import pytest

from tests.broker.partitions.replication.states import state, written
from tidelog.broker.controller import election
from tidelog.broker.controller.election import elect, prefer
from tidelog.broker.metadata.eligible_leaders import may_advance
from tidelog.broker.metadata.records import NO_LEADER

# replicas (* leads) | ISR | ELR | who is able | min.insync.replicas -> the same three afterwards
RULES = {
    "the first replica that is in sync and able leads": (
        ("1* 2 3", "1 2 3", ""), {2, 3}, 2, ("1 2* 3", "2 3", "")),
    "the order of the replicas decides, not that of the ISR": (
        ("3 1* 2", "1 2 3", ""), {2, 3}, 2, ("3* 1 2", "2 3", "")),
    "a leader that is able stays, and the dead leave the ISR": (
        ("1* 2 3", "1 2 3", ""), {1, 2}, 2, ("1* 2 3", "1 2", "")),
    "wherever they stand in it": (
        ("1* 2 3", "1 2 3", ""), {1, 3}, 2, ("1* 2 3", "1 3", "")),
    "who leaves the ISR below min.insync.replicas is eligible (KIP-966)": (
        ("1* 2 3", "1 2", ""), {1}, 2, ("1* 2 3", "1", "2")),
    "all who leave it in one change are": (
        ("1* 2 3", "1 2 3", ""), {1}, 2, ("1* 2 3", "1", "2 3")),
    "who was eligible before stays eligible": (
        ("1* 2 3", "1 2", "3"), {1}, 3, ("1* 2 3", "1", "2 3")),
    "an ISR that is large enough clears the ELR": (
        ("1* 2 3", "1 2", "3"), {1, 2}, 2, ("1* 2 3", "1 2", "")),
    "an ISR needs no more members than there are replicas": (
        ("1* 2", "1 2", ""), {1, 2}, 3, None),
    "without the ISR an eligible replica leads, alone in the ISR": (
        ("1* 2 3", "1", "2 3"), {2, 3}, 2, ("1 2* 3", "2", "1 3")),
    "nobody leads while ISR and ELR are down": (
        ("1* 2 3", "1", "2"), {3}, 2, ("1 2 3", "", "1 2")),
    "with one replica too": (("1*", "1", ""), set(), 1, ("1", "", "1")),
    "it leads again when it is back": (("1", "", "1"), {1}, 1, ("1*", "1", "")),
    "of two who may lead, the one in the ISR does": (
        ("1 2 3*", "3 2", "1"), {1, 2}, 3, ("1 2* 3", "2", "1 3")),
    "an ISR that its leader has left elects one of its own": (
        ("1 2 3", "2 3", ""), {3}, 2, ("1 2 3*", "3", "2")),
    "and is the ELR when it is down too": (("1 2 3", "2", ""), {1}, 2, ("1 2 3", "", "2")),
    "who is no replica any more is not eligible": (
        ("2 3", "", "1 2"), set(), 2, ("2 3", "", "2")),
    "nothing changes while all is well": (("1* 2 3", "1 2 3", ""), {1, 2, 3}, 2, None),
    "nor while nobody can lead": (("1 2", "", "1"), {2}, 1, None),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_rules(rule):
    before, able, min_insync, expected = RULES[rule]
    after = elect(state(*before), able, min_insync)
    assert (after and written(after)) == expected


def test_only_another_leader_is_another_leader_epoch():
    before = state("1* 2 3", "1 2 3", leader_epoch=5, partition_epoch=9)
    for able, leader_epoch in (({1, 2}, 5), ({2, 3}, 6), (set(), 6)):
        after = elect(before, able, 2)
        assert (after.leader_epoch, after.partition_epoch) == (leader_epoch, 10)


def test_the_last_leader_is_known_while_nobody_leads():
    gone = elect(state("1 2*", "2"), set(), 2)
    assert (gone.leader, gone.last_leader) == (NO_LEADER, 2)
    back = elect(gone, {2}, 2)
    assert (back.leader, back.last_leader, back.is_recovering) == (2, NO_LEADER, False)


def test_the_last_known_leader_leads_when_nobody_has_all_records():
    """KIP-966: all of ISR and ELR have come back unclean. That is told loudly."""
    lost = state("1 2 3", "", "", last_leader=2)
    after = elect(lost, {1, 2, 3}, 2)
    assert (written(after), after.is_recovering) == (("1 2* 3", "2", ""), True)
    assert election.is_unclean(lost, after)
    assert elect(lost, {1, 3}, 2) is None


def test_the_last_known_leader_waits_for_an_eligible_replica_that_is_down():
    assert elect(state("1 2 3", "", "3", last_leader=2), {1, 2}, 2) is None


def test_an_unclean_election_needs_the_setting():
    down = state("1 2 3", "", "2 3", last_leader=2)
    assert elect(down, {1}, 2) is None
    after = elect(down, {1}, 2, allows_unclean=True)
    assert (written(after), after.is_recovering) == (("1* 2 3", "1", ""), True)
    assert election.is_unclean(down, after)


def test_the_setting_elects_nobody_uncleanly_while_somebody_is_eligible():
    after = elect(state("1 2 3", "", "3", last_leader=2), {1, 2, 3}, 2, allows_unclean=True)
    assert (written(after), after.is_recovering) == (("1 2 3*", "3", ""), False)


def test_an_election_from_isr_or_elr_is_clean():
    for before, able in ((state("1* 2", "1 2"), {2}), (state("1* 2", "1", "2"), {2})):
        assert not election.is_unclean(before, elect(before, able, 2))


def test_the_preferred_leader_takes_over_from_the_isr_only():
    assert written(prefer(state("1 2* 3", "1 2 3"), {1, 2})) == ("1* 2 3", "1 2 3", "")
    assert written(prefer(state("2 1* 3", "1 2 3"), {1, 2})) == ("2* 1 3", "1 2 3", "")
    assert prefer(state("1 2* 3", "2 3", "1"), {1, 2}) is None
    assert prefer(state("1 2* 3", "1 2 3"), {2}) is None
    assert prefer(state("1* 2 3", "1 2 3"), {1, 2}) is None


def test_the_high_watermark_stands_below_min_insync_replicas_and_while_replicas_are_eligible():
    assert may_advance(state("1* 2 3", "1 2"), 2)
    assert not may_advance(state("1* 2 3", "1"), 2)
    assert not may_advance(state("1* 2 3", "1", "2"), 1)  # the setting was lowered since
