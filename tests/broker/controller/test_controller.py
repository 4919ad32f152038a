"""What the controller writes for brokers that die, stop, are fenced or cannot lead; and two do no harm."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given

from tests.broker.partitions.replication.cluster import Cluster
from tests.broker.partitions.replication.cluster import decided as decided_on
from tests.broker.partitions.replication.states import brokers, min_insyncs, state, states, written
from tidelog.broker.controller import controller
from tidelog.broker.metadata.brokers.records import OfflineRecord, live_key, put_offline
from tidelog.broker.metadata.eligible_leaders import TopicRules
from tidelog.broker.metadata.records import CreationRecord, partition_key, put_creation
from tidelog.broker.metadata.store import Compare
from tidelog.protocol.errors import InvalidReplicaAssignment


@pytest.fixture
def cluster():
    """Three brokers, and the topic t with one partition that 1 leads."""
    found = Cluster()
    found.live(1, 2, 3)
    found.topic_id = found.create("t", state("1* 2 3", "1 2 3"))
    found.elect_controller()
    return found


def test_nothing_is_written_while_all_is_well(cluster):
    assert cluster.settle() == []


def offline(broker, *directories, **lists):
    """What a broker says of partition t-0 on its disks."""

    def put(cluster):
        lists_of_t = {name: {cluster.topic_id: (0,)} for name in lists}
        cluster.put(put_offline(broker, OfflineRecord(directories, **lists_of_t)))

    return put


# What happens to the partition "1* 2 3" with all in sync -> what it is then
OUTCOMES = {
    "a dead leader is replaced and leaves the ISR": (
        [lambda of: of.die(1)], ("1 2* 3", "2 3", "")),
    "a dead follower leaves the ISR at once": (
        [lambda of: of.die(3)], ("1* 2 3", "1 2", "")),
    "a fenced broker leads nothing and is in no ISR (KIP-631)": (
        [lambda of: of.live(1, is_fenced=True)], ("1 2* 3", "2 3", "")),
    "nor does one that is stopping (KIP-841)": (
        [lambda of: of.live(1, is_stopping=True)], ("1 2* 3", "2 3", "")),
    "a log that failed moves its leader": (
        [offline(1, "d", partitions=True)], ("1 2* 3", "2 3", "")),
    "one that is the last in sync leads nothing": (
        [lambda of: of.die(2, 3), offline(1, "d", partitions=True)], ("1 2 3", "", "1 2 3")),
    "a full disk moves its leader to who can write": (
        [offline(1, full=True)], ("1 2* 3", "2 3", "")),
    "it leads on for readers if nobody else can": (
        [offline(1, full=True), lambda of: of.die(2, 3)], ("1* 2 3", "1", "2 3")),
    "a slow disk moves its leader, and stays in the ISR": (
        [offline(1, slow=True)], ("1 2* 3", "1 2 3", "")),
    "to one that is not slow itself": (
        [offline(1, slow=True), offline(2, slow=True)], ("1 2 3*", "1 2 3", "")),
    "a slow disk keeps what nobody faster can lead": (
        [offline(broker, slow=True) for broker in (1, 2, 3)], ("1* 2 3", "1 2 3", "")),
}  # fmt: skip


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_outcomes(cluster, outcome):
    events, expected = OUTCOMES[outcome]
    for each in events:
        each(cluster)
    cluster.settle()
    assert written(cluster.state()) == expected
    assert (cluster.state().leader_epoch > 5) == (cluster.state().leader != 1)


def test_an_election_compares_all_that_it_was_decided_on(cluster):
    """Facts of the design: the controller, the partition, who is gone, and who leads."""
    cluster.die(1)
    image = cluster.image
    (found,) = decided_on(image, image.controller.epoch, cluster.rules)
    assert set(found.compares) == {
        Compare("controller", "create", "=", image.controller.epoch),
        Compare(partition_key(cluster.topic_id, 0), "mod", "=", image.mod_revision("t", 0)),
        Compare(live_key(1), "mod", "=", 0),
        Compare(live_key(2), "mod", "=", image.brokers[2].mod_revision),
    }
    assert found.why == "election"


def test_a_failed_log_moves_no_other_leader(cluster):
    cluster.create("other", state("1* 2 3", "1 2 3"))
    offline(1, "d", partitions=True)(cluster)
    cluster.settle()
    assert written(cluster.state("other")) == ("1* 2 3", "1 2 3", "")


def test_a_full_disk_leads_until_somebody_who_can_write_is_back(cluster):
    offline(1, full=True)(cluster)
    cluster.die(2, 3)
    cluster.settle()
    cluster.live(3)
    cluster.settle()
    assert written(cluster.state()) == ("1 2 3*", "3", "1 2")


def test_a_slow_disk_gets_no_leader_back_before_it_is_fast(cluster):
    offline(1, slow=True)(cluster)
    cluster.settle()
    assert cluster.settle(settled={1}) == []
    offline(1)(cluster)
    cluster.settle(settled={1})
    assert written(cluster.state()) == ("1* 2 3", "1 2 3", "")


def test_a_creation_whose_broker_has_ended_becomes_a_deletion(cluster):
    epoch, mine, other = cluster.image.brokers[2].epoch, UUID(int=21), UUID(int=22)
    cluster.put(put_creation(mine, CreationRecord("mine", 2, epoch)))
    cluster.put(put_creation(other, CreationRecord("other", 3, cluster.image.brokers[3].epoch)))
    assert cluster.settle() == []
    cluster.die(2)
    cluster.live(2)
    cluster.settle()
    assert set(cluster.image.creations) == {other}
    assert cluster.image.deletions == {mine: "mine"}


def test_an_election_is_refused_when_the_dead_broker_is_back(cluster):
    cluster.die(1)
    decided = decided_on(cluster.image, cluster.image.controller.epoch, cluster.rules)
    cluster.live(1)
    assert not any(cluster.commit(each) for each in decided)
    assert written(cluster.state()) == ("1* 2 3", "1 2 3", "")


def test_an_election_is_refused_when_the_new_leader_has_started_again(cluster):
    cluster.die(1)
    decided = decided_on(cluster.image, cluster.image.controller.epoch, cluster.rules)
    cluster.die(2)
    cluster.live(2)
    assert not any(cluster.commit(each) for each in decided)


def test_of_two_controllers_one_elects(cluster):
    cluster.die(1)
    epoch = cluster.image.controller.epoch
    one, two = (decided_on(cluster.image, epoch, cluster.rules) for _ in range(2))
    assert [cluster.commit(each) for each in one + two] == [True, False]
    assert cluster.state().leader_epoch == 6


def test_a_controller_that_was_paused_writes_nothing_any_more(cluster):
    cluster.die(1)
    epoch = cluster.image.controller.epoch
    decided = decided_on(cluster.image, epoch, cluster.rules)
    cluster.elect_controller(2)
    assert not any(cluster.commit(each) for each in decided)
    assert decided_on(cluster.image, epoch, cluster.rules) == []


def test_many_elections_are_few_transactions_below_the_limits_of_etcd():
    cluster = Cluster()
    cluster.live(*range(1, 31))
    cluster.create("t", *(state(f"1* {2 + n % 29} 31", f"1 {2 + n % 29}") for n in range(1_000)))
    cluster.elect_controller()
    cluster.die(1)
    done = cluster.settle()
    assert sum(len(each.operations) for each in done) == 1_000
    assert len(done) <= 12
    assert max(len(each.operations) for each in done) <= 120


def test_the_sessions_that_all_compare_make_no_further_transaction():
    cluster = Cluster()
    cluster.live(1, 2, 3)
    cluster.create("t", *[state("1* 2 3", "1 2 3")] * 360)
    cluster.elect_controller()
    cluster.die(1)
    done = cluster.settle()
    assert [len(each.operations) for each in done] == [120, 120, 120]
    assert max(len(each.compares) for each in done) <= 128


def test_new_leaders_come_before_followers_that_leave_the_isr():
    cluster = Cluster()
    cluster.live(1, 2, 3)
    for number in range(6):
        leader = "1 2* 3" if number % 2 else "1* 2 3"
        cluster.create(f"t{number}", state(leader, "1 2 3"))
    cluster.elect_controller()
    cluster.die(1)
    epoch = cluster.image.controller.epoch
    for led_by in ([1, 1, 1], [2, 2, 2]):
        decided = decided_on(cluster.image, epoch, cluster.rules, limit=4)
        changes = [each for transaction in decided for each in transaction.changes]
        assert [each.before.leader for each in changes] == led_by
        assert all(cluster.commit(each) for each in decided)


def test_a_refused_batch_is_made_smaller(cluster):
    cluster.create("many", *[state("1* 2 3", "1 2 3")] * 10)
    cluster.die(1)
    epoch = cluster.image.controller.epoch
    decided = decided_on(cluster.image, epoch, cluster.rules, limit=4)
    assert [len(each.operations) for each in decided] == [4, 4, 3]


def test_the_preferred_leader_returns_when_it_has_settled(cluster):
    cluster.set("t", 0, state("1 2* 3", "1 2 3"))
    assert cluster.settle() == []
    assert cluster.settle(settled={2, 3}) == []
    (done,) = cluster.settle(settled={1})
    assert (written(cluster.state()), done.why) == (("1* 2 3", "1 2 3", ""), "preferred leader")


def test_what_an_awaited_broker_leads_stays(cluster):
    cluster.die(1, 2)
    assert cluster.settle(awaited={1, 2}) == []
    cluster.settle()
    assert written(cluster.state()) == ("1 2 3*", "3", "1 2")


def test_a_lower_min_insync_replicas_clears_the_elr_of_an_isr_that_is_large_enough_now(cluster):
    cluster.set("t", 0, state("1* 2 3", "1", "2 3"))
    cluster.die(2, 3)
    assert cluster.settle() == []
    cluster.min_insync = 1
    cluster.settle()
    assert written(cluster.state()) == ("1* 2 3", "1", "")


def test_a_higher_min_insync_replicas_takes_nobody_out_of_the_elr(cluster):
    """Kafka clears it. Here the leader's high watermark stands still, so its members stay complete."""
    cluster.set("t", 0, state("1* 2 3", "1", "2 3"))
    cluster.die(2, 3)
    cluster.min_insync = 3
    assert cluster.settle() == []


def test_an_unclean_election_is_named(cluster):
    cluster.set("t", 0, state("1* 2 3", "1", "2"))
    cluster.die(1, 2)
    cluster.settle()
    assert written(cluster.state()) == ("1 2 3", "", "1 2")
    cluster.allows_unclean = True
    (done,) = cluster.settle()
    assert (done.why, written(cluster.state())) == ("unclean election", ("1 2 3*", "3", ""))
    assert cluster.state().is_recovering


def test_partitions_that_no_broker_has_claimed_are_left_alone(cluster):
    cluster.set("t", 0, state("", "", leader_epoch=-1))
    assert cluster.settle() == []


def test_a_new_partition_is_in_sync_where_brokers_can_lead(cluster):
    cluster.live(2, is_fenced=True)
    record, compares = controller.new_partition(cluster.image, (2, 3, 1))
    assert written(record) == ("2 3* 1", "3 1", "")
    assert compares == tuple(
        Compare(live_key(broker), "mod", "=", cluster.image.brokers[broker].mod_revision)
        for broker in (3, 1)
    )


def test_a_new_partition_needs_somebody_to_lead_it(cluster):
    cluster.die(1)
    with pytest.raises(InvalidReplicaAssignment, match=r"none of the brokers \[1, 9\]"):
        controller.new_partition(cluster.image, (1, 9))


def test_one_broker_becomes_the_controller():
    cluster = Cluster()
    epochs = {broker: cluster.live(broker, is_fenced=True) for broker in (1, 2)}
    claims = [
        controller.claim(cluster.image, broker, epoch, cluster.leases[broker])
        for broker, epoch in epochs.items()
    ]
    assert [cluster.commit(each) for each in claims] == [True, False]
    assert cluster.image.controller.broker == 1
    assert controller.claim(cluster.image, 2, epochs[2], cluster.leases[2]) is None
    cluster.die(1)
    assert cluster.image.controller is None


def test_who_has_another_session_or_is_stopping_does_not_become_the_controller():
    cluster = Cluster()
    epoch = cluster.live(1)
    assert controller.claim(cluster.image, 1, epoch - 1, 1) is None
    claim = controller.claim(cluster.image, 1, epoch, cluster.leases[1])
    cluster.die(1)
    epoch = cluster.live(1, is_stopping=True)
    late = claim._replace(operations=(claim.operations[0]._replace(lease=cluster.leases[1]),))
    assert not cluster.commit(late)
    assert controller.claim(cluster.image, 1, epoch, 1) is None


def test_topics_have_rules_of_their_own(cluster):
    cluster.create("loose", state("1* 2 3", "1 2 3"))
    cluster.die(1, 2)
    epoch = cluster.image.controller.epoch
    for each in decided_on(
        cluster.image, epoch, lambda topic: TopicRules(1 if topic.name == "loose" else 2)
    ):
        assert cluster.commit(each)
    assert written(cluster.state()) == ("1 2 3*", "3", "1 2")
    assert written(cluster.state("loose")) == ("1 2 3*", "3", "")


@given(states(), brokers, brokers, min_insyncs)
def test_a_partition_that_is_well_has_no_next_state(record, able, settled, min_insync):
    if controller.is_well(record, able, settled):
        rules = TopicRules(min_insync, allows_unclean=True)
        assert controller.next_state(record, able, able, rules, settled) is None
