"""A leader that is none any more, over both shells: the cluster is asked again, or the caller is told.

The broker answers NOT_LEADER_OR_FOLLOWER on command, and counts the requests for metadata.
"""

from __future__ import annotations

import pytest

from tests.client.shells import Asyncio
from tidelog.client import Client, RequestError
from tidelog.client.calls import records as calls
from tidelog.client.calls import topics
from tidelog.process import BrokerProcess
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records.batch import Record, build

pytestmark = pytest.mark.timeout(60)
NOT_LEADER = "NOT_LEADER_OR_FOLLOWER"


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    settings = {"control.listener": "127.0.0.1:0"}
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings) as process:
        yield process


@pytest.fixture
def broker(one):
    """The broker of this file, with nothing planted."""
    yield one
    one.faults.clear()


@pytest.fixture(params=["sync", "asyncio"])
def client(request, broker):
    shell = Client if request.param == "sync" else Asyncio
    made = shell(broker.bootstrap, timeout_s=20)
    yield made
    made.close()


@pytest.fixture
def place(client, topic):
    """A topic whose leader the client knows."""
    client.perform(topics.create(topic, 1, {}))
    assert client.perform(calls.list_offset(topic, 0, calls.LATEST)).offset == 0
    return topic


def counted(broker):
    """Requests for metadata from now on, as a fault that only counts."""
    return broker.faults.add(api="Metadata", delay="1ms")


def test_a_known_leader_is_not_looked_up_again(broker, client, place):
    looked_up = counted(broker)
    for _ in range(3):
        client.perform(calls.list_offset(place, 0, calls.LATEST))
    assert looked_up.hits == 0


@pytest.mark.parametrize("refusals", [1, 3])
def test_a_question_is_asked_again_after_a_look_at_the_metadata(broker, client, place, refusals):
    looked_up = counted(broker)
    refused = broker.faults.add(api="ListOffsets", error=NOT_LEADER, times=refusals)
    assert client.perform(calls.list_offset(place, 0, calls.LATEST)).offset == 0
    assert (refused.hits, looked_up.hits) == (refusals, refusals)


def test_a_fetch_finds_the_new_leader_too(broker, client, place):
    client.perform(calls.append(place, 0, build([Record(0, 5, None, b"v")])))
    looked_up = counted(broker)
    refused = broker.faults.add(api="Fetch", topic=place, error=NOT_LEADER, times=1)
    assert len(client.perform(calls.fetch_records(place, 0, 0)).records) > 0
    assert (refused.hits, looked_up.hits) == (1, 1)


def test_what_may_be_written_is_not_sent_twice_and_the_leader_is_forgotten(broker, client, place):
    looked_up = counted(broker)
    refused = broker.faults.add(api="Produce", topic=place, error=NOT_LEADER, times=1)
    append = calls.append(place, 0, build([Record(0, 5, None, b"v")]))
    with pytest.raises(RequestError) as caught:
        client.perform(append)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.hits, looked_up.hits) == (1, 0)
    assert client.perform(append).base_offset == 0
    assert looked_up.hits == 1


@pytest.mark.parametrize("shell", [Client, Asyncio])
def test_a_leader_that_never_comes_is_said_in_time(broker, topic, shell):
    patient = shell(broker.bootstrap, timeout_s=20)
    patient.perform(topics.create(topic, 1, {}))
    patient.close()
    hasty = shell(broker.bootstrap, timeout_s=3)
    hasty.perform(calls.list_offset(topic, 0, calls.LATEST))
    refused = broker.faults.add(api="ListOffsets", error=NOT_LEADER)
    with pytest.raises(RequestError, match=NOT_LEADER):
        hasty.perform(calls.list_offset(topic, 0, calls.LATEST))
    hasty.close()
    assert refused.hits > 1
