"""Who may request a change over HTTP: this machine alone, with the right to alter the cluster."""

import http.client
import json
from types import SimpleNamespace
from uuid import UUID

import pytest

from tests.broker import asking
from tests.broker.inside import Inside
from tidelog.broker.http.answers import HttpError
from tidelog.broker.http.changes import local_peer, reset_topic
from tidelog.broker.http.routes.declared import ROUTES
from tidelog.broker.metadata.records import PartitionRecord
from tidelog.broker.pools import Pool
from tidelog.broker.security.authorizer import Authorizer
from tidelog.protocol.acl import Operation, ResourceType


def request_from(host):
    peer = None if host is None else (host, 5, 0, 0)
    transport = SimpleNamespace(get_extra_info={"peername": peer}.get)
    return SimpleNamespace(transport=transport)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_this_machine_may_request_a_change(host):
    assert local_peer(request_from(host)) == host


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "0.0.0.0", "::", "fe80::1%eth0", "::ffff:10.0.0.1", "", "localhost", None]
)
def test_no_other_machine_may(host):
    with pytest.raises(
        HttpError, match="accepted from this machine alone, over loopback"
    ) as refused:
        local_peer(request_from(host))
    assert refused.value.status == 403


def test_a_connection_that_is_gone_is_nobodys():
    with pytest.raises(HttpError):
        local_peer(SimpleNamespace(transport=None))


CHANGES = [route for route in ROUTES if route.method == "POST"]


class Only(Authorizer):
    """Allows one operation on one kind of resource."""

    def __init__(self, operation, resource_type):
        self.only = (operation, resource_type)

    def allows(self, session, operation, resource_type, name):
        assert session.host == "127.0.0.1"
        return (operation, resource_type) == self.only


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    with Inside(tmp_path_factory.mktemp("changes")) as inside:
        yield inside


def post(inside, path):
    """Status and the name of the error."""
    host, _, port = inside.http.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("POST", path, "{}", {"Content-Type": "application/json"})
    answer = connection.getresponse()
    told = json.loads(answer.read())
    connection.close()
    return answer.status, told.get("error")


@pytest.mark.parametrize("route", CHANGES, ids=lambda route: route.path)
def test_a_change_needs_the_right_to_alter_the_cluster(inside, route):
    topic = asking.new_name()
    with inside.connect() as connection:
        asking.create(connection, topic)
    path = route.path.format(topic=topic)
    before = inside.node.authorizer
    try:
        inside.node.authorizer = Only(Operation.DESCRIBE, ResourceType.CLUSTER)
        assert post(inside, path) == (403, "CLUSTER_AUTHORIZATION_FAILED")
        inside.node.authorizer = Only(Operation.ALTER, ResourceType.CLUSTER)
        status, error = post(inside, path)
        assert (status, error) in [(409, "NO_LEAP"), (409, "OTHER_TOPIC")]
    finally:
        inside.node.authorizer = before


@pytest.mark.parametrize("route", CHANGES, ids=lambda route: route.path)
def test_a_change_is_no_question(inside, route):
    status, text = inside.page(route.path.format(topic="t"))
    assert (status, json.loads(text)["error"]) == (405, "METHOD_NOT_ALLOWED")


@pytest.fixture
def maintenance():
    pool = Pool("maintenance", 1)
    yield pool
    pool.stop()


async def test_a_partition_is_reset_to_what_the_clock_shows_at_its_turn(maintenance):
    """Else what was appended since a reading would be ahead of it, and a healthy log be corrected."""
    topic_id, shown, resets = UUID(int=7), [0], []

    def now_ms():
        shown[0] += 1_000
        return shown[0]

    def reset(now_ms):
        resets.append(now_ms)

    led_here = (PartitionRecord.led_by(1),) * 3
    topic = SimpleNamespace(name="t", topic_id=topic_id, partitions=3, assignments=led_here)
    node = SimpleNamespace(
        metadata=SimpleNamespace(image=SimpleNamespace(topics={"t": topic}, brokers={}), node_id=1),
        replicas=SimpleNamespace(check_leads=lambda *_: None),
        clock=SimpleNamespace(now_ms=now_ms),
        pools=SimpleNamespace(maintenance=maintenance),
        partitions=SimpleNamespace(
            get=lambda *_: SimpleNamespace(append_clock=SimpleNamespace(reset=reset))
        ),
    )
    answer = await reset_topic(node, {"topic": "t", "topic_id": str(topic_id)})
    assert [row["partition"] for row in answer["partitions"]] == [0, 1, 2]
    assert resets == sorted(set(resets)), "each partition has a reading of its own"
    assert len(resets) == 3
