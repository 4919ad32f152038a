"""Quotas that are set by way of one broker hold on every broker, and on one that was killed and is back.

A quota of Q bytes a second lets ten seconds' worth pass at once. So what a client is told depends on the
sizes of its requests alone, not on how fast the machine is.
"""

from __future__ import annotations

import pytest

from tests.broker import asking
from tests.broker.api.test_alter_client_quotas import alter, described, entity, removal, setting
from tests.broker.asking import new_name, produce_fields
from tests.broker.subject import eventually
from tests.oracle import recordset

pytestmark = pytest.mark.slow

IDS = (1, 2)
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

    cluster[2].kill()
    assert throttle_ms(cluster, 1, client) > 0
    cluster.start(2)
    eventually(lambda: throttle_ms(cluster, 2, new_name()) == 0)
    assert throttle_ms(cluster, 2, client) > 0

    assert change(cluster, 2, (entity(client_id=client), removal())) == {}
    assert all(throttle_ms(cluster, broker, client) == 0 for broker in IDS)
