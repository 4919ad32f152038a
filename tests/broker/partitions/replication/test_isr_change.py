"""A leader's change of its ISR: what the transaction compares, and when the store refuses it."""

from __future__ import annotations

import pytest

from tests.broker.partitions.replication.cluster import Cluster
from tests.broker.partitions.replication.states import state
from tidelog.broker.metadata.brokers.records import OfflineRecord, put_offline
from tidelog.broker.partitions.replication import isr_change
from tidelog.broker.partitions.replication.messages import ChangeIsr


class Leader:
    """The topic t, led by broker 1 in one session, with the ISR 1 and 2."""

    def __init__(self):
        self.cluster = Cluster()
        self.cluster.live(1, 2, 3)
        self.topic_id = self.cluster.create("t", state("1* 2 3", "1 2"))
        self.epoch = self.cluster.image.brokers[1].epoch

    def proposed(self, isr, added=()):
        image = self.cluster.image
        record = self.cluster.state()._replace(
            isr=isr, partition_epoch=self.cluster.state().partition_epoch + 1, nonce="n"
        )
        epochs = {broker: image.brokers[broker].epoch for broker in added}
        return ChangeIsr(record, image.mod_revision("t", 0), epochs)

    def transaction(self, proposed):
        image = self.cluster.image
        return isr_change.transaction(image, self.topic_id, 0, proposed, 1, self.epoch)

    def unable(self):
        return isr_change.cannot_store(self.cluster.image, (1, 2, 3), self.topic_id, 0)


@pytest.fixture
def leader():
    return Leader()


def test_a_replica_is_added(leader):
    proposed = leader.proposed((1, 2, 3), (3,))
    assert leader.cluster.commit(leader.transaction(proposed))
    assert leader.cluster.state() == proposed.record


@pytest.mark.parametrize("why", ["partitions", "full"])
def test_a_replica_that_cannot_store_is_not_added(leader, why):
    leader.cluster.put(put_offline(3, OfflineRecord(**{why: {leader.topic_id: (0,)}})))
    assert leader.transaction(leader.proposed((1, 2, 3), (3,))) is None
    assert leader.unable() == {3}
    leader.cluster.put(put_offline(3, OfflineRecord(**{why: {leader.topic_id: (1,)}})))
    assert leader.transaction(leader.proposed((1, 2, 3), (3,))) is not None
    assert leader.unable() == set()


def test_a_replica_is_removed_dead_or_not(leader):
    leader.cluster.die(2)
    assert leader.cluster.commit(leader.transaction(leader.proposed((1,))))


def test_a_partition_that_has_changed_is_not_overwritten(leader):
    made = leader.transaction(leader.proposed((1,)))
    leader.cluster.set("t", 0, state("1 2* 3", "2", leader_epoch=6))
    assert not leader.cluster.commit(made)


def test_a_change_that_is_applied_after_its_leader_has_started_again_is_refused(leader):
    made = leader.transaction(leader.proposed((1, 2, 3), (3,)))
    leader.cluster.die(1)
    leader.cluster.live(1)
    assert not leader.cluster.commit(made)


def test_a_replica_that_has_started_since_its_fetch_is_not_added(leader):
    """KIP-903: what the older process had may be lost."""
    proposed = leader.proposed((1, 2, 3), (3,))
    made = leader.transaction(proposed)
    leader.cluster.die(3)
    leader.cluster.live(3)
    assert not leader.cluster.commit(made)
    assert leader.transaction(proposed) is None


@pytest.mark.parametrize("reason", ["is_fenced", "is_stopping"])
def test_a_fenced_or_stopping_replica_is_not_added(leader, reason):
    """KIP-841. The store refuses it, too, if the leader does not know yet."""
    proposed = leader.proposed((1, 2, 3), (3,))
    made = leader.transaction(proposed)
    leader.cluster.live(3, **{reason: True})
    assert not leader.cluster.commit(made)
    assert leader.transaction(proposed) is None


def test_a_replica_without_a_session_is_not_added(leader):
    proposed = leader.proposed((1, 2, 3), (3,))
    leader.cluster.die(3)
    assert leader.transaction(proposed) is None


def test_of_two_proposals_on_one_state_one_is_stored(leader):
    """So an outcome that is unknown is settled by another proposal: either it or the first one is stored."""
    first, second = leader.proposed((1,)), leader.proposed((1, 2, 3), (3,))
    made = [leader.transaction(each) for each in (first, second)]
    assert [leader.cluster.commit(each) for each in reversed(made)] == [True, False]
    assert leader.cluster.state() == second.record
