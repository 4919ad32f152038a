"""A broker that is cut off from the metadata alone, from outside: clients that stay with it are refused.

They speak by the encoder of the oracle's tests, not by ours.
"""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from tests.broker import members
from tests.broker.asking import fetch, list_offset, new_name, produce, records_for
from tests.broker.partitions.load import Load, create, leader_of
from tests.broker.subject import eventually, page_at
from tests.oracle import wire
from tidelog.cli.brokers.diagnosis import findings
from tidelog.cli.brokers.gathering import gathered
from tidelog.cluster import BrokerCluster

pytestmark = pytest.mark.slow

LEASE_MS = 3_000
GROUP, TRANSACTION = 0, 1
NOT_LEADER, NOT_COORDINATOR = 6, 16
PRODUCE = 9
FIRST, LATEST = 10, 20  # committed offsets


@pytest.fixture
def cluster(tmp_path):
    settings = {
        "broker.session.timeout.ms": LEASE_MS,
        "offsets.topic.num.partitions": 9,
        "transaction.state.log.num.partitions": 9,
    }
    with BrokerCluster(tmp_path / "data", 3, settings) as made:
        create(made, "t", configs={"min.insync.replicas": "2"})
        eventually(lambda: len(leader_of(made, "t").isrs) == 3)
        yield made


@pytest.fixture
def asked(cluster):
    """Raw connections to the brokers."""
    with ExitStack() as stack:
        yield {
            number: stack.enter_context(wire.Connection(cluster[number].bootstrap, timeout_s=60))
            for number in (1, 2, 3)
        }


def coordinated_by(connection, broker, kind):
    """A group, or a transactional id, that a broker coordinates."""

    def found():
        names = [new_name("id") for _ in range(30)]
        answer = connection.ask("FindCoordinator", 4, key_type=kind, coordinator_keys=names)
        of_it = (each["key"] for each in answer["coordinators"] if each["node_id"] == broker)
        return next(of_it, None)

    return eventually(found)


def commit(connection, group, offset):
    return members.commit(connection, group, "t", offset, version=8)


def committed(connection, group):
    """The error and the offset that a group is told."""
    wanted = {"group_id": group, "topics": [{"name": "t", "partition_indexes": [0]}]}
    answer = connection.ask("OffsetFetch", 8, groups=[wanted], require_stable=False)["groups"][0]
    if answer["error_code"]:
        return answer["error_code"], None
    (found,) = answer["topics"][0]["partitions"]
    return found["error_code"], found["committed_offset"]


def init(connection, name):
    answer = connection.ask(
        "InitProducerId", 4, transactional_id=name, transaction_timeout_ms=10_000
    )
    return answer["error_code"]


def test_clients_that_stay_with_it_are_refused_while_another_broker_leads(cluster, asked):
    old = leader_of(cluster, "t").leader
    alive = next(each for each in asked if each != old)
    group = coordinated_by(asked[alive], old, GROUP)
    name = coordinated_by(asked[alive], old, TRANSACTION)
    eventually(lambda: commit(asked[old], group, FIRST) == 0)
    eventually(lambda: init(asked[old], name) == 0)

    cluster.cut(old)

    def latest(of=group):
        """Commits at the next coordinator, as soon as there is one."""
        for each in asked:
            if each != old and commit(asked[each], of, LATEST) == 0:
                return each
        return None

    eventually(latest)
    records = records_for(PRODUCE, "fork")
    eventually(
        lambda: produce(asked[old], "t", records, acks=1)["error_code"] == NOT_LEADER,
        what="acks=1 is refused",
    )
    assert produce(asked[old], "t", records, acks=-1)["error_code"] == NOT_LEADER
    assert fetch(asked[old], "t")["error_code"] == NOT_LEADER
    assert list_offset(asked[old], "t", -1)["error_code"] == NOT_LEADER
    eventually(lambda: committed(asked[old], group)[0] == NOT_COORDINATOR)
    assert commit(asked[old], group, FIRST) == NOT_COORDINATOR
    assert init(asked[old], name) == NOT_COORDINATOR
    status, why = eventually(lambda: _not_ready(cluster[old]))
    assert status == 503
    assert "every partition led here is suspended" in why
    assert page_at(cluster[alive].http, "/readyz") == (200, "ready\n")
    (finding,) = [
        each
        for each in findings(gathered(cluster[old].http))
        if each.finding == "leaders suspended"
    ]
    assert "t-0" in finding.partitions
    suspended = json.loads(page_at(cluster[old].http, "/v1/cluster")[1])["own"][
        "suspended_partitions"
    ]
    assert finding.partitions == suspended
    assert (
        f"tidelog_suspended_leaders {len(suspended)}.0" in page_at(cluster[old].http, "/metrics")[1]
    )
    # The line comes at the end of the round in which the leaders are suspended.
    eventually(lambda: cluster[old].log().count("partition leaders suspended"))
    assert cluster[old].log().count("partition leaders suspended") == 1

    cluster.heal()
    eventually(lambda: page_at(cluster[old].http, "/readyz") == (200, "ready\n"))
    eventually(lambda: len(leader_of(cluster, "t").isrs) == 3)


def _not_ready(broker):
    found = page_at(broker.http, "/readyz")
    return found if found[0] == 503 else None


def test_nobody_is_suspended_while_the_metadata_are_away_for_all(cluster, asked):
    create(cluster, "idle")
    load = Load(cluster)
    load.send("t", 10)
    load.flush()
    for broker in (1, 2, 3):
        cluster.cut(broker)
    suspended = "tidelog_suspended_leaders 0.0"
    for broker in (1, 2, 3):
        eventually(lambda of=cluster[broker]: of.log().count("session not renewed") >= 6)
    for broker in (1, 2, 3):
        assert suspended in page_at(cluster[broker].http, "/metrics")[1]
        assert page_at(cluster[broker].http, "/readyz") == (200, "ready\n")
    load.send("t", 100)
    load.flush()
    assert not load.refused
    idle = leader_of(cluster, "idle").leader
    answer = produce(asked[idle], "idle", records_for(PRODUCE, "a"))
    assert answer["error_code"] == 0
    cluster.heal()  # else each waits for the metadata when it stops
