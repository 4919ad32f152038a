"""Elections: who leads when brokers go and come, rule by rule, and what holds after any of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.replication.states import brokers, min_insyncs, state, states, written
from tidelog.broker.metadata.records import NO_LEADER
from tidelog.broker.replication.controller import election
from tidelog.broker.replication.controller.election import elect, prefer
from tidelog.broker.replication.eligible_leaders import effective_min, elr_after, may_advance

# replicas (* leads) | ISR | ELR | who is able | min.insync.replicas -> the same three afterwards
RULES = {
    "the first replica that is in sync and able leads": (
        ("1* 2 3", "1 2 3", ""), {2, 3}, 2, ("1 2* 3", "2 3", "")),
    "the order of the replicas decides, not that of the ISR": (
        ("3 1* 2", "1 2 3", ""), {2, 3}, 2, ("3* 1 2", "2 3", "")),
    "a leader that is able stays, and the dead leave the ISR": (
        ("1* 2 3", "1 2 3", ""), {1, 2}, 2, ("1* 2 3", "1 2", "")),
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
    assert prefer(state("1 2* 3", "2 3", "1"), {1, 2}) is None
    assert prefer(state("1 2* 3", "1 2 3"), {2}) is None
    assert prefer(state("1* 2 3", "1 2 3"), {1, 2}) is None


def test_the_high_watermark_stands_below_min_insync_replicas_and_while_replicas_are_eligible():
    assert may_advance(state("1* 2 3", "1 2"), 2)
    assert not may_advance(state("1* 2 3", "1"), 2)
    assert not may_advance(state("1* 2 3", "1", "2"), 1)  # the setting was lowered since


@given(states(), brokers, min_insyncs, st.booleans())
def test_after_any_election(before, able, min_insync, allows_unclean):
    after = elect(before, able, min_insync, allows_unclean=allows_unclean)
    if after is None:
        assert set(before.isr) <= able
        assert (before.leader == NO_LEADER) == (not before.isr)
        return
    _is_lawful(before, after, able, min_insync)
    complete = {*before.isr, *before.elr}
    assert {*after.isr, *after.elr} <= complete or after.is_recovering
    assert election.is_unclean(before, after) == (after.leader not in {*complete, NO_LEADER})
    if election.is_unclean(before, after):
        assert not complete & able  # nobody who has all records could lead
        assert allows_unclean or not complete
    again = elect(after, able, min_insync, allows_unclean=allows_unclean)
    assert again is None, "an election settles what it can"


@given(states(), brokers)
def test_after_any_preferred_election(before, able):
    after = prefer(before, able)
    if after is not None:
        assert (after.leader, after.isr, after.elr) == (before.replicas[0], before.isr, before.elr)
        assert after.leader in {*after.isr} & able
        assert after.leader_epoch == before.leader_epoch + 1


@given(states(), st.data(), min_insyncs)
def test_an_elr_is_empty_or_has_all_who_were_complete(before, data, min_insync):
    isr = data.draw(st.sets(st.sampled_from(before.replicas)))
    elr = elr_after(before, isr, min_insync)
    if len(isr) >= effective_min(before, min_insync):
        assert elr == ()
    else:
        assert set(elr) == {*before.isr, *before.elr} - isr


def _is_lawful(before, after, able, min_insync):
    """What a checker of the whole cluster asks of a stored state (docs/decisions/0033)."""
    isr, elr, replicas = set(after.isr), set(after.elr), set(after.replicas)
    assert after.leader in isr or (after.leader == NO_LEADER and not isr)
    assert isr <= replicas
    assert elr <= replicas
    assert not isr & elr
    assert isr <= able
    assert len(isr) < effective_min(after, min_insync) or not elr
    assert after.partition_epoch == before.partition_epoch + 1
    assert after.leader_epoch == before.leader_epoch + (after.leader != before.leader)
    assert after.nonce == ""
    assert (after.last_leader == NO_LEADER) == (after.leader != NO_LEADER)
