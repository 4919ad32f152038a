"""How well partitions are replicated, by an image, and what the watch counts between two images."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace
from uuid import UUID

import pytest

from tidelog.broker.metadata.brokers.members import LiveBroker, Members, Offline, Registration
from tidelog.broker.metadata.brokers.records import (
    LiveBrokerRecord,
    OfflineRecord,
    RegistrationRecord,
)
from tidelog.broker.metadata.image import Image, Topic
from tidelog.broker.metadata.partition_health import health_of_partitions, state_of, why_missing
from tidelog.broker.metadata.records import NO_LEADER, PartitionRecord
from tidelog.broker.metrics.cluster_watch import ClusterWatch

ID = UUID(int=1)
WHOLE = PartitionRecord((1, 2, 3), (1, 2, 3), 1, 5)


def image(*records, away=(), fenced=(), stopping=(), offline=None):
    live = {
        broker: LiveBroker(
            broker, 7, LiveBrokerRecord("i", (), None, broker in fenced, broker in stopping), 7
        )
        for broker in (1, 2, 3)
        if broker not in away
    }
    registered = {broker: Registration(broker, 7, RegistrationRecord("i")) for broker in (1, 2, 3)}
    topic = Topic("t", ID, records, {}, (1,) * len(records))
    members = Members(live, registered, offline or {})
    topics = MappingProxyType({"t": topic})
    by_id = MappingProxyType({ID: topic})
    return Image(9, "c", topics, by_id, {}, 0, MappingProxyType({}), members)


def only(found):
    (health,) = health_of_partitions(found)
    return health


def test_a_partition_with_all_replicas_in_sync_misses_none():
    health = only(image(WHOLE))
    assert (health.missing, health.is_offline, health.is_led_by_non_preferred) == ((), False, False)


def test_a_replica_that_is_being_added_is_not_missing():
    record = WHOLE._replace(isr=(1,), adding=(3,))
    assert only(image(record)).missing == (2,)


def test_another_leader_than_the_preferred_one():
    assert only(image(WHOLE._replace(leader=2))).is_led_by_non_preferred


@pytest.mark.parametrize(
    "found",
    [image(WHOLE._replace(leader=NO_LEADER, isr=())), image(WHOLE, away={1})],
    ids=["no leader", "a leader without a session"],
)
def test_nobody_leads(found):
    health = only(found)
    assert health.is_offline
    assert not health.is_led_by_non_preferred


@pytest.mark.parametrize(
    ("broken", "state", "why"),
    [
        ({"away": {2}}, "away", "the broker has no session"),
        ({"fenced": {2}}, "fenced", "the broker has not caught up with the metadata"),
        ({"stopping": {2}}, "stopping", "the broker is stopping"),
        ({}, "serving", "it is behind the leader"),
        (
            {"offline": {2: Offline(2, OfflineRecord((), {ID: (0,)}), 8)}},
            "serving",
            "its log has failed",
        ),
        (
            {"offline": {2: Offline(2, OfflineRecord((), {}, {ID: (0,)}), 8)}},
            "serving",
            "its disk is full",
        ),
        (
            {"offline": {2: Offline(2, OfflineRecord((), {ID: (1,)}), 8)}},
            "serving",
            "it is behind the leader",
        ),
    ],
)
def test_why_a_replica_is_not_in_sync(broken, state, why):
    found = image(WHOLE._replace(isr=(1, 3)), **broken)
    health = only(found)
    assert health.missing == (2,)
    assert (state_of(found, 2), why_missing(found, health, 2)) == (state, why)


@pytest.mark.parametrize(
    ("before", "after", "counted"),
    [
        (WHOLE, WHOLE._replace(isr=(1, 2)), (1, 0, 0, 0)),
        (WHOLE._replace(isr=(1,)), WHOLE, (0, 1, 0, 0)),
        (WHOLE._replace(leader=2), WHOLE._replace(leader_epoch=6), (0, 0, 1, 0)),
        (
            WHOLE._replace(leader=NO_LEADER, isr=()),
            WHOLE._replace(isr=(1,), is_recovering=True),
            (0, 0, 1, 1),
        ),
        (WHOLE._replace(leader=2), WHOLE._replace(leader=2, isr=(2,)), (0, 0, 0, 0)),
        (WHOLE, WHOLE._replace(partition_epoch=8), (0, 0, 0, 0)),
    ],
    ids=["shrinks", "expands", "elected", "unclean", "led by another", "something else"],
)
def test_the_watch_counts_what_concerns_partitions_led_here(before, after, counted):
    watch = ClusterWatch(SimpleNamespace(node_id=1))
    watch.compare(image(before), image(after))
    found = (watch.isr_shrinks, watch.isr_expands, watch.elections, watch.unclean_elections)
    assert found == counted
