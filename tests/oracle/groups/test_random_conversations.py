"""Random conversations of members with Apache Kafka 3.9.1 and tidelog at once: they part nowhere.

The conversations are in lockstep.py. TIDELOG_CONVERSATIONS says how many.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.oracle import wire
from tests.oracle.brokers import Tidelog, make_topics, wait_for_coordinators
from tests.oracle.groups.lockstep import IN_ORDER, played

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

KAFKA = "3.9.1"
SETTINGS = {
    "group.min.session.timeout.ms": "100",
    "group.max.size": "4",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
TOPICS = {"committed-a": 3, "committed-b": 1}
CONVERSATIONS = int(os.environ.get("TIDELOG_CONVERSATIONS", "60"))


def prepare(bootstrap):
    """Make the topics offsets are committed for, and wake the coordinator."""
    with wire.Connection(bootstrap, timeout_s=60) as connection:
        make_topics(connection, TOPICS)
    wait_for_coordinators(bootstrap)


@pytest.fixture(scope="module")
def brokers(apache_kafka, tmp_path_factory):
    with (
        apache_kafka(KAFKA, **SETTINGS, **IN_ORDER) as theirs,
        Tidelog(tmp_path_factory.mktemp("tidelog"), SETTINGS) as ours,
    ):
        both = theirs.bootstrap, ours.bootstrap
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(prepare, both))
        yield both


def test_random_conversations(brokers, summarize):
    outcomes = [played(brokers, seed) for seed in range(CONVERSATIONS)]
    partings = [f"seed {seed}: {parting}" for seed, (_, parting) in enumerate(outcomes) if parting]
    assert not partings, "\n".join(partings)
    asked = [count for count, _ in outcomes]
    assert sum(asked) > 20 * CONVERSATIONS, "they are hardly worth something"
    told = f"{sum(asked)} requests in {len(asked)} conversations, all of them answered alike"
    summarize(f"random groups of tidelog and Apache Kafka {KAFKA}", told)


def of_another_generation(said):
    api, version, fields = said
    if api == "Heartbeat":
        fields = {**fields, "generation_id": fields["generation_id"] + 5}
    return api, version, fields


def without_its_leader(said):
    """As if whoever leads were forgotten: its assignment comes from nobody."""
    api, version, fields = said
    if api == "SyncGroup":
        fields = {**fields, "assignments": []}
    return api, version, fields


def leaves_nothing(said):
    api, version, fields = said
    return (api, version, {**fields, "member_id": "x"}) if api == "LeaveGroup" else said


def commits_elsewhere(said):
    api, version, fields = said
    if api == "OffsetCommit":
        (topic,) = fields["topics"]
        (partition,) = topic["partitions"]
        more = partition["committed_offset"] + 1
        partitions = [{**partition, "committed_offset": more}]
        fields = {**fields, "topics": [{**topic, "partitions": partitions}]}
    return api, version, fields


@pytest.mark.parametrize(
    "twist", [of_another_generation, without_its_leader, leaves_nothing, commits_elsewhere]
)
def test_whoever_does_something_else_is_noticed(brokers, twist):
    """What one broker is told otherwise stands for a broker that takes it otherwise."""
    for seed in range(CONVERSATIONS):
        _, parting = played(brokers, seed, twist=twist, patience_s=8)
        if parting is not None:
            return
    pytest.fail("both brokers seem to be right")
