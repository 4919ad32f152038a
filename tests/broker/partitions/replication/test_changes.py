"""Changes of the ISR whose outcome is not known yet: the maximal ISR (KIP-497)."""

from __future__ import annotations

from tests.broker.partitions.replication.scene import EPOCH, LAG_MS, ME, ONE, TWO, Led, Log, kinds
from tidelog.broker.partitions.replication.messages import Assignment, BrokerStatus, StepDown


def shrinking():
    """A leader that asks for an ISR without TWO, and has all but its acknowledgement."""
    led = Led()
    led.append(5)
    led.tick(LAG_MS)
    led.fetch(ONE, 5)
    led.tick(1)
    return led, led.change


def test_a_shrink_counts_only_when_it_is_stored():
    led, change = shrinking()
    assert led.leader.maximal_isr == {ME, ONE, TWO}
    assert led.high_watermark == 0
    led.apply(change)
    assert led.leader.maximal_isr == {ME, ONE}
    assert led.high_watermark == 5


def test_a_new_member_counts_as_soon_as_it_is_proposed():
    led = Led((ME, ONE))
    led.fetch(TWO, 0)
    assert led.leader.maximal_isr == {ME, ONE, TWO}
    led.append()
    led.fetch(ONE, 1)
    led.tick(LAG_MS + 1)
    assert led.high_watermark == 0


def test_min_insync_counts_the_stored_isr_only():
    led = Led((ME,), min_insync=2)
    led.fetch(ONE, 0)
    change = led.change
    led.append()
    led.fetch(ONE, 1)
    assert led.high_watermark == 0
    led.apply(change)
    assert led.high_watermark == 1


def test_a_refused_change_is_taken_back():
    led = Led((ME, ONE))
    led.fetch(TWO, 0)
    led.refuse(led.change)
    assert led.leader.maximal_isr == {ME, ONE}


def test_after_a_refusal_the_next_proposal_waits_for_a_tick():
    """The image may lag behind what was refused; a fetch comes every millisecond."""
    led = Led((ME, ONE))
    led.fetch(TWO, 0)
    led.refuse(led.change)
    led.fetch(TWO, 0)
    assert led.changes == []
    led.tick()
    led.fetch(TWO, 0)
    assert led.changes


def test_an_unknown_outcome_keeps_both():
    """The change may still be applied: a lost answer proves nothing."""
    led, change = shrinking()
    led.leader.on_change_unknown(change)
    led.see()  # a read of the old value proves nothing either
    assert led.leader.maximal_isr == {ME, ONE, TWO}
    assert led.high_watermark == 0


def test_an_unknown_outcome_is_settled_by_another_change_on_the_same_revision():
    led, change = shrinking()
    led.leader.on_change_unknown(change)
    led.fetch(TWO, 5)  # meanwhile it is back
    led.tick()
    second = led.change
    assert second.mod_revision == change.mod_revision
    assert second.record.nonce != change.record.nonce
    assert second.record.isr == (ME, ONE, TWO)
    led.apply(second)
    assert led.leader.maximal_isr == {ME, ONE, TWO}
    assert led.tick() == []


def test_the_second_is_refused_because_the_first_was_applied():
    led, change = shrinking()
    led.leader.on_change_unknown(change)
    led.tick()
    second = led.change
    led.stored, led.revision = change.record, led.revision + 1
    led.refuse(second)
    assert led.leader.maximal_isr == {ME, ONE}
    assert led.high_watermark == 5


def test_a_refusal_of_the_second_says_nothing_of_the_first():
    """It may be refused for another reason, and what was read after it may be old."""
    led = Led((ME, ONE))
    led.fetch(TWO, 0)
    led.leader.on_change_unknown(led.change)
    led.tick()
    led.refuse(led.change)
    assert led.leader.maximal_isr == {ME, ONE, TWO}


def test_a_newer_revision_settles_every_older_proposal():
    led, change = shrinking()
    led.leader.on_change_unknown(change)
    led.store(adding=(3,), replicas=(ME, ONE, TWO, 3))
    assert led.leader.maximal_isr == {ME, ONE, TWO}
    led.tick()
    assert led.change.mod_revision == led.revision  # a new one, not a settlement
    led.leader.on_change_unknown(led.change)
    led.store(isr=(ME, ONE))
    assert led.leader.maximal_isr == {ME, ONE}


def test_the_members_of_every_proposal_without_an_outcome_count():
    led = Led((ME,), min_insync=1)
    led.fetch(ONE, 0)
    for isr in ((ME, ONE), (ME,)):
        assert led.change.record.isr == isr
        led.leader.on_change_unknown(led.change)
        led.tick()
    assert led.leader.maximal_isr == {ME, ONE}


def test_metadata_never_goes_back():
    led, change = shrinking()
    led.apply(change)
    old = Assignment(led.stored._replace(isr=(ME, ONE, TWO)), led.revision - 1)
    led.leader.on_assignment(old, led.brokers, led.rules, led.now_ms)
    assert led.leader.isr == (ME, ONE)


def test_no_two_proposals_have_the_same_nonce():
    led = Led()
    led.append()
    led.now_ms = LAG_MS
    nonces = set()
    for _ in range(5):
        led.tick(1)
        nonces.add(led.change.record.nonce)
        led.leader.on_change_unknown(led.change)
    assert len(nonces) == 5
    for registered in ({ME: BrokerStatus(999)}, {}):
        again = Led()
        again.brokers = {ONE: BrokerStatus(101), **registered}
        again.see()
        again.append()
        again.tick(LAG_MS + 1)
        assert again.change.record.nonce not in nonces


def test_another_leader_ends_it():
    led = Led()
    led.store(leader=ONE, leader_epoch=EPOCH + 1)
    assert kinds(led.actions) == [StepDown]
    assert led.tick() == []  # told once


def test_its_own_next_epoch_ends_it_too():
    led = Led(log=Log(*[4] * 3))
    led.store(leader_epoch=EPOCH + 1)
    assert isinstance(led.actions[0], StepDown)


def test_a_partition_that_is_gone_ends_it():
    led, change = shrinking()
    actions = led.leader.on_change_refused(change, None, led.now_ms)
    assert isinstance(actions[0], StepDown)
