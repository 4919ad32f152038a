"""Quotas that are set by way of one broker hold on every broker, and on one that was killed and is back.

A quota of Q bytes a second lets ten seconds' worth pass at once. So what a client is told depends on the
sizes of its requests alone, not on how fast the machine is.
"""

from __future__ import annotations

import time

import pytest

from tests.broker import asking
from tests.broker.api.test_alter_client_quotas import alter, described, entity, removal, setting
from tests.broker.asking import new_name, produce_fields
from tests.broker.subject import eventually
from tests.oracle import recordset

IDS = (1, 2)
ANONYMOUS = "ANONYMOUS"  # the user of everybody who did not log in
RECORDS = recordset.batch(asking.values("v" * 12_000))
LOW, HIGH = 1_000.0, 100_000_000.0  # RECORDS are more than ten seconds' worth of the first alone
PARTITIONS = {1: 0, 2: 1}  # by the broker that leads it


@pytest.fixture
def cluster(brokers):
    brokers.start(*IDS)
    brokers.add_topic("t", [1], [2])
    for broker in IDS:
        eventually(lambda broker=broker: throttle_ms(brokers, broker, new_name()) == 0)
    return brokers


def throttle_ms(brokers, broker, client_id):
    """For how long a client is told to wait that produces by way of one broker; None if it may not yet."""
    with brokers[broker].connect() as connection:
        connection.client_id = client_id
        fields = produce_fields("t", RECORDS, partition=PARTITIONS[broker])
        answer = connection.ask("Produce", 9, **fields)
    (part,) = answer["responses"][0]["partition_responses"]
    return answer["throttle_time_ms"] if part["error_code"] == 0 else None


def change(brokers, by, *changes):
    """Changes quotas by way of one broker, and waits until every broker has the same."""
    with brokers[by].connect() as connection:
        assert alter(connection, *changes) == [0] * len(changes)
        wanted = described(connection)
    for broker in IDS:
        with brokers[broker].connect() as connection:
            eventually(lambda connection=connection: described(connection) == wanted)
    return wanted


def test_set_changed_and_removed_by_way_of_any_broker(cluster):
    client = new_name("client")
    change(cluster, 1, (entity(client_id=client), setting(value=LOW)))
    assert all(throttle_ms(cluster, broker, client) > 0 for broker in IDS)
    assert all(throttle_ms(cluster, broker, new_name()) == 0 for broker in IDS)

    change(cluster, 2, (entity(client_id=client), setting(value=HIGH)))
    assert all(throttle_ms(cluster, broker, client) == 0 for broker in IDS)

    change(cluster, 1, (entity(client_id=client), setting(value=LOW)))
    assert all(throttle_ms(cluster, broker, client) > 0 for broker in IDS)

    assert change(cluster, 2, (entity(client_id=client), removal())) == {}
    assert all(throttle_ms(cluster, broker, client) == 0 for broker in IDS)


def test_the_wait_is_enforced_by_each_broker_for_itself(cluster):
    client = new_name("client")
    change(cluster, 1, (entity(client_id=client), setting(value=LOW)))
    for broker in IDS:
        with cluster[broker].connect() as connection:
            connection.client_id = client
            fields = produce_fields("t", RECORDS, partition=PARTITIONS[broker])
            begun = time.monotonic()
            told_ms = connection.ask("Produce", 9, **fields)["throttle_time_ms"]
            connection.ask("ApiVersions", 0)
            assert (time.monotonic() - begun) * 1000 >= told_ms > 0


def test_a_quota_outlives_a_kill_of_the_broker_that_took_it(cluster):
    client = new_name("client")
    wanted = change(cluster, 1, (entity(client_id=client), setting(value=LOW)))
    cluster[1].kill()
    assert throttle_ms(cluster, 2, client) > 0
    cluster.start(1)
    with cluster[1].connect() as connection:
        assert described(connection) == wanted
    eventually(lambda: throttle_ms(cluster, 1, new_name()) == 0)
    assert throttle_ms(cluster, 1, client) > 0


def test_the_most_specific_quota_holds_on_every_broker(cluster):
    named, other = new_name("named"), new_name("other")
    both = entity(user=ANONYMOUS, client_id=named)
    change(cluster, 1, (entity(user=None), setting(value=LOW)), (both, setting(value=HIGH)))
    for broker in IDS:
        assert throttle_ms(cluster, broker, named) == 0  # of the user and the client id
        assert throttle_ms(cluster, broker, other) > 0  # of the default user

    # A quota of the client id alone comes after that of the default user.
    change(cluster, 2, (entity(client_id=named), setting(value=HIGH)), (both, removal()))
    assert all(throttle_ms(cluster, broker, named) > 0 for broker in IDS)

    change(cluster, 1, (entity(user=None), removal()))
    assert all(throttle_ms(cluster, broker, named) == 0 for broker in IDS)
