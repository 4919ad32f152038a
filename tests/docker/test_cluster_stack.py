"""The cluster of compose.cluster.yaml: what was acknowledged inside and outside is there after faults.

Run with `make test-docker`. Grafana is not started: its files are judged in test_dashboard.py.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from tests.docker import engine
from tests.docker.cluster_stack import BROKERS, MEMBERS, ClusterStack, SteadyProducer, everything
from tests.docker.compose_stack import needs_compose

pytestmark = pytest.mark.docker

TOPIC = "steady"


@pytest.fixture(scope="module")
def stack(image):
    needs_compose()
    etcd = engine.image("ETCD_IMAGE")
    if etcd is None:
        pytest.skip(f"{engine.OFFICIAL['ETCD_IMAGE']} cannot be pulled; ETCD_IMAGE names another")
    stack = ClusterStack(image, etcd)
    try:
        stack.up()
        yield stack
    finally:
        stack.remove()


@pytest.fixture
def producers(stack):
    admin = KafkaAdminClient(bootstrap_servers=stack.outside)
    admin.create_topics([NewTopic(TOPIC, num_partitions=6, replication_factor=3)])
    admin.close()
    begun = []
    try:
        begun.append(SteadyProducer.outside(stack, TOPIC, 50))
        begun.append(SteadyProducer.inside(stack, TOPIC, 50))
        yield [each.until_begun() for each in begun]
    finally:
        for each in begun:
            each.remove()


def go_on(stack, producers):
    """Every producer goes on, and then nothing is left of the fault."""
    for each in producers:
        each.until_more()
    stack.until_well()


@pytest.mark.timeout(600)
def test_nothing_is_lost_or_doubled_while_containers_stop_and_are_cut_off(stack, producers):
    for service in (*BROKERS, *MEMBERS):
        stack.stop(service)
        for each in producers:
            each.until_more()
        stack.do("start", service)
        go_on(stack, producers)
    for service in (BROKERS[0], MEMBERS[0]):
        stack.disconnect(service)
        for each in producers:
            each.until_more(200)
        stack.connect(service)
        go_on(stack, producers)
    for each in producers:
        each.end()
        assert not each.failed
    acked = set.union(*(each.acked for each in producers))
    found = Counter(everything(stack.outside, TOPIC))
    assert not acked - set(found)
    assert [name for name, count in found.items() if count > 1] == []
    print(f"\n{len(acked)} records acknowledged, {len(found)} read")


def test_the_volume_of_another_broker_or_cluster_is_refused_with_what_helps(stack):
    stack.stop(BROKERS[1])
    store = "KAFKA_METADATA_STORE=etcd://etcd-1:2379,etcd-2:2379,etcd-3:2379"
    told = stack.ends_with("broker-2", "KAFKA_NODE_ID=4", store)
    assert "/var/lib/tidelog belongs to broker 2 of this cluster: start it with" in told
    assert "(KAFKA_NODE_ID=2 of a container), or give broker 4 another directory" in told
    told = stack.ends_with("broker-2", "KAFKA_NODE_ID=2", f"{store}/other")
    assert re.search(
        "belongs to broker 2 of cluster [^ ,]+, and this is cluster [^ ,]+: give", told
    )
    assert "of a container another volume), or start broker 2 with the metadata of its" in told
    stack.do("start", BROKERS[1])
    stack.until_well()


def test_the_health_check_passes_when_a_broker_is_unfenced_and_not_before(stack):
    health = engine.inspect("image", stack.image)
    test = (health["Config"].get("Healthcheck") or health["Healthcheck"])["Test"]
    stack.execute(BROKERS[2], *test[1:])
    for service in MEMBERS[1:]:
        stack.stop(service)
    stack.stop(BROKERS[2])
    stack.do("start", BROKERS[2])
    stack.execute(BROKERS[2], *test[1:], status=1)  # nobody can register it
    for service in MEMBERS[1:]:
        stack.do("start", service)
    stack.until_well()
    stack.execute(BROKERS[2], *test[1:])


def test_prometheus_scrapes_brokers_and_etcd_and_knows_the_alerts(stack):
    stack.check_prometheus(["tidelog"] * 3 + ["etcd"] * 3 + ["prometheus"])
    stack.check_health()
