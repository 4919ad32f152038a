"""Registrations: refused, clean, unclean, fenced until caught up; what is offline; controlled shutdown."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.broker.partitions.replication.cluster import Cluster
from tests.broker.partitions.replication.states import state, written
from tidelog.broker.controller import controller
from tidelog.broker.lifecycle import controlled_shutdown, registration
from tidelog.broker.lifecycle.registration import DuplicateBrokerError, next_transactions
from tidelog.broker.metadata.brokers.records import OfflineRecord, live_key, put_live
from tidelog.broker.metadata.records import NO_LEADER
from tidelog.broker.metadata.store import Compare


@pytest.fixture
def cluster():
    """Three brokers, and the topic t with two partitions: 1 leads one, 2 the other."""
    found = Cluster()
    found.create("t", state("1* 2 3", "1 2 3"), state("2* 1 3", "2", "1"))
    for broker in (1, 2, 3):
        register(found, found.start(broker, f"first-{broker}"))
        unfence(found, broker)
    found.elect_controller()
    return found


def register(cluster, start, **options):
    """Carries a registration out; returns the texts that say why, in order."""
    done = []
    while found := next_transactions(cluster.image, start, cluster.rules, **options):
        assert all(cluster.commit(each) for each in found)
        done += [each.why for each in found]
    return done


def unfence(cluster, broker):
    live = cluster.image.brokers[broker]
    lease = cluster.leases[broker]
    cluster.put(put_live(broker, live.record._replace(is_fenced=False), lease))


def test_a_new_broker_registers_fenced(cluster):
    assert register(cluster, cluster.start(4, "a")) == ["clean start"]
    live, registered = cluster.image.brokers[4], cluster.image.registrations[4]
    assert live.record.is_fenced
    assert live.epoch == registered.epoch
    assert registered.record == ("a", ("d",), True, "")


def test_a_broker_id_that_is_in_use_is_refused(cluster):
    """KIP-631: nothing is written for the second process."""
    start = cluster.start(1, "second")._replace(is_clean=False)
    revision = cluster.image.revision
    with pytest.raises(DuplicateBrokerError, match=r"broker 1 is running already.*node\.id"):
        next_transactions(cluster.image, start, cluster.rules)
    assert cluster.image.revision == revision


def test_a_session_that_is_known_to_have_ended_is_replaced(cluster):
    before = cluster.image.brokers[1].epoch
    start = cluster.start(1, "second")
    assert register(cluster, start, has_ended=True) == ["end of a session", "clean start"]
    assert cluster.image.brokers[1].epoch > before


def test_a_clean_start_stays_where_it_was(cluster):
    cluster.die(1)
    register(cluster, cluster.start(1, "second"))
    assert written(cluster.state()) == ("1* 2 3", "1 2 3", "")


def test_an_unclean_start_leaves_isr_and_elr_before_its_session_begins(cluster):
    cluster.die(1)
    start = cluster.start(1, "second", is_clean=False)
    found = next_transactions(cluster.image, start, cluster.rules)
    for each in found:
        assert live_key(1) not in {operation.key for operation in each.operations}
        assert Compare(live_key(1), "mod", "=", 0) in each.compares
        assert cluster.commit(each)
    assert written(cluster.state("t", 0)) == ("1 2 3", "2 3", "")
    assert written(cluster.state("t", 1)) == ("2* 1 3", "2", "")
    assert cluster.state().last_leader == 1
    assert 1 not in cluster.image.brokers
    assert register(cluster, start) == ["unclean start"]
    assert not cluster.image.registrations[1].record.is_clean
    cluster.settle()
    assert written(cluster.state()) == ("1 2* 3", "2 3", "")


def test_the_last_replica_that_comes_back_unclean_is_elected_as_the_last_known_leader(cluster):
    cluster.set("t", 0, state("1* 2 3", "1"))
    cluster.die(1)
    register(cluster, cluster.start(1, "second", is_clean=False))
    assert (written(cluster.state()), cluster.state().last_leader) == (("1 2 3", "", ""), 1)
    unfence(cluster, 1)
    (done,) = cluster.settle()
    assert (done.why, cluster.state().leader, cluster.state().is_recovering) == (
        "unclean election",
        1,
        True,
    )


@pytest.mark.parametrize(("isr", "elr"), [("1 2", ""), ("1", "2")])
def test_who_was_complete_last_is_elected_not_a_leader_that_had_lost_its_records(cluster, isr, elr):
    """Broker 1 led and came back empty; broker 2 had every record until it came back unclean, too."""
    cluster.set("t", 0, state("1* 2 3", isr, elr))
    cluster.die(2)
    cluster.die(1)
    register(cluster, cluster.start(1, "emptied", is_clean=False))
    assert cluster.state().last_leader == 1
    unfence(cluster, 1)
    register(cluster, cluster.start(2, "without power", is_clean=False))
    assert (written(cluster.state()), cluster.state().last_leader) == (("1 2 3", "", ""), 2)
    cluster.settle()
    assert cluster.state().leader == NO_LEADER, "broker 2 is fenced"
    unfence(cluster, 2)
    cluster.settle()
    assert (cluster.state().leader, cluster.state().is_recovering) == (2, True)


def test_the_last_transaction_begins_the_session(cluster):
    """The caller makes the registration files durable between the two."""
    start = cluster.start(1, "second", is_clean=False)
    begins = []
    while found := next_transactions(cluster.image, start, cluster.rules, has_ended=True):
        for each in found:
            assert cluster.commit(each)
            begins.append((each.why, registration.begins_session(each)))
    assert begins == [
        ("end of a session", False),
        ("unclean broker leaves", False),
        ("unclean start", True),
    ]


def test_an_unclean_start_is_not_made_before_another_process_with_its_id(cluster):
    """A process that is given a wrong node.id must not put the right one out of its ISRs."""
    cluster.die(1)
    decided = next_transactions(
        cluster.image, cluster.start(1, "wrong", is_clean=False), cluster.rules
    )
    register(cluster, cluster.start(1, "right"))
    assert not any(cluster.commit(each) for each in decided)


def test_a_registration_that_was_overtaken_is_refused(cluster):
    cluster.die(1)
    (decided,) = next_transactions(cluster.image, cluster.start(1, "slow"), cluster.rules)
    register(cluster, cluster.start(1, "quick"))
    cluster.die(1)
    assert not cluster.commit(decided)


def test_an_unknown_outcome_settles_itself(cluster):
    cluster.die(1)
    start = cluster.start(1, "second")
    (decided,) = next_transactions(cluster.image, start, cluster.rules)
    assert cluster.commit(decided)  # and the answer is lost
    assert next_transactions(cluster.image, start, cluster.rules) == []


def test_a_fenced_broker_is_unfenced_after_it_has_left_all_isrs(cluster):
    cluster.die(1)
    register(cluster, cluster.start(1, "second"))
    epoch = cluster.image.brokers[1].epoch
    assert registration.unfence(cluster.image, 1, epoch, cluster.leases[1]) is None
    cluster.settle()
    assert cluster.commit(registration.unfence(cluster.image, 1, epoch, cluster.leases[1]))
    assert not cluster.image.brokers[1].record.is_fenced
    assert registration.unfence(cluster.image, 1, epoch, cluster.leases[1]) is None


def test_an_unfencing_of_an_older_session_is_refused(cluster):
    register(cluster, cluster.start(4, "a"))
    epoch = cluster.image.brokers[4].epoch
    decided = registration.unfence(cluster.image, 4, epoch, cluster.leases[4])
    cluster.die(4)
    register(cluster, cluster.start(4, "b"))
    late = decided._replace(operations=(decided.operations[0]._replace(lease=cluster.leases[4]),))
    assert not cluster.commit(late)
    assert registration.unfence(cluster.image, 4, epoch, cluster.leases[4]) is None


def test_a_process_whose_lease_has_ended_leads_on_where_nobody_was_elected(cluster):
    cluster.die(1)
    register(cluster, cluster.start(1, "again", is_fenced=False))
    assert cluster.settle() == []
    assert cluster.state().leader == 1


def test_what_cannot_be_led_is_reported(cluster):
    topic_id = cluster.image.topics["t"].topic_id
    epoch = cluster.image.brokers[1].epoch

    def report(offline):
        made = registration.report_offline(cluster.image, 1, epoch, offline)
        return made is not None and cluster.commit(made)

    full = OfflineRecord(full={topic_id: (0,)})
    assert report(full)
    assert not report(full)
    assert report(OfflineRecord())
    assert cluster.image.offline == {}
    assert report(OfflineRecord(("d",), {topic_id: (1,)}))
    assert report(full)
    assert cluster.image.offline[1].record == (("d",), {topic_id: (1,)}, {topic_id: (0,)}, {})


def test_a_report_of_an_older_session_is_refused(cluster):
    offline = OfflineRecord(full={UUID(int=1): (0,)})
    epoch = cluster.image.brokers[1].epoch
    decided = registration.report_offline(cluster.image, 1, epoch, offline)
    cluster.die(1)
    register(cluster, cluster.start(1, "second"))
    assert not cluster.commit(decided)


def test_what_was_offline_is_forgotten_with_the_registration(cluster):
    epoch = cluster.image.brokers[1].epoch
    offline = OfflineRecord(("d",), {UUID(int=9): (1,)})
    assert cluster.commit(registration.report_offline(cluster.image, 1, epoch, offline))
    cluster.die(1)
    assert cluster.image.offline
    register(cluster, cluster.start(1, "second", is_clean=False))
    assert not cluster.image.offline


def test_a_controlled_shutdown_moves_leaders_before_the_broker_stops(cluster):
    """KIP-841."""
    epoch = cluster.image.brokers[1].epoch
    seen = dict.fromkeys((2, 3), cluster.image.revision)
    assert cluster.commit(controlled_shutdown.begin(cluster.image, 1, epoch, cluster.leases[1]))
    assert controlled_shutdown.begin(cluster.image, 1, epoch, cluster.leases[1]) is None
    assert not controlled_shutdown.may_stop(cluster.image, 1, seen)
    cluster.settle()
    assert written(cluster.state()) == ("1 2* 3", "2 3", "")
    assert not controlled_shutdown.may_stop(cluster.image, 1, seen)
    seen = dict.fromkeys((2, 3), cluster.image.revision)
    assert controlled_shutdown.may_stop(cluster.image, 1, seen)
    assert cluster.commit(controlled_shutdown.end(cluster.image, 1, epoch))
    assert 1 not in cluster.image.brokers
    assert 1 in cluster.image.registrations


def test_the_others_say_once_that_they_have_seen_a_controlled_shutdown(cluster):
    epochs = {broker: live.epoch for broker, live in cluster.image.brokers.items()}

    def confirm(broker):
        image, lease = cluster.image, cluster.leases[broker]
        return controlled_shutdown.confirm(image, broker, epochs[broker], lease)

    assert confirm(2) is None
    cluster.commit(controlled_shutdown.begin(cluster.image, 1, epochs[1], cluster.leases[1]))
    assert confirm(2) is None
    cluster.settle()
    for broker in (2, 3):
        assert not controlled_shutdown.may_stop(cluster.image, 1, cluster.image.members.seen)
        assert cluster.commit(confirm(broker))
        assert confirm(broker) is None
    assert confirm(1) is None
    assert controlled_shutdown.may_stop(cluster.image, 1, cluster.image.members.seen)
    assert set(cluster.image.members.seen) == {2, 3}


def test_brokers_that_stop_together_do_not_wait_for_each_other(cluster):
    for broker in (1, 2, 3):
        epoch = cluster.image.brokers[broker].epoch
        begin = controlled_shutdown.begin(cluster.image, broker, epoch, cluster.leases[broker])
        assert cluster.commit(begin)
    assert all(controlled_shutdown.may_stop(cluster.image, broker, {}) for broker in (1, 2, 3))


def test_a_fenced_broker_need_not_have_seen_a_controlled_shutdown(cluster):
    epoch = cluster.image.brokers[1].epoch
    cluster.commit(controlled_shutdown.begin(cluster.image, 1, epoch, cluster.leases[1]))
    cluster.settle()
    register(cluster, cluster.start(4, "a"))
    seen = dict.fromkeys((2, 3), cluster.image.revision)
    assert controlled_shutdown.may_stop(cluster.image, 1, seen)


def test_a_controller_that_stops_makes_room_for_another(cluster):
    cluster.elect_controller(1)
    epoch = cluster.image.brokers[1].epoch
    assert cluster.commit(controlled_shutdown.end(cluster.image, 1, epoch))
    assert cluster.image.controller is None
    two = cluster.image.brokers[2].epoch
    assert controller.claim(cluster.image, 2, two, cluster.leases[2]) is not None


def test_the_last_replica_that_stops_leaves_the_partition_without_a_leader(cluster):
    cluster.set("t", 0, state("1*", "1"))
    epoch = cluster.image.brokers[1].epoch
    cluster.commit(controlled_shutdown.begin(cluster.image, 1, epoch, cluster.leases[1]))
    cluster.settle()
    assert written(cluster.state()) == ("1", "", "1")
    assert (cluster.state().leader, cluster.state().last_leader) == (NO_LEADER, 1)
