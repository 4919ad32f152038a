"""A transaction whose group another broker coordinates: that one asks the transaction coordinator."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.broker.asking import try_to_create
from tests.broker.coordinators.transactions.requests import NONE, Transactional
from tests.broker.subject import eventually
from tests.oracle import wire
from tidelog.cluster import BrokerCluster

GROUP, TRANSACTION = 0, 1
GROUPS = 3


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Raw connections to two brokers."""
    directory = tmp_path_factory.mktemp("cluster") / "data"
    with BrokerCluster(directory, 2) as brokers, ExitStack() as stack:
        yield {
            number: stack.enter_context(wire.Connection(brokers[number].bootstrap, timeout_s=60))
            for number in (1, 2)
        }


def coordinated_by(connection, broker, key_type, count):
    """Names that a broker coordinates."""

    def found():
        names = [f"name-{number}" for number in range(50)]
        answer = connection.ask("FindCoordinator", 4, key_type=key_type, coordinator_keys=names)
        keys = [each["key"] for each in answer["coordinators"] if each["node_id"] == broker]
        return keys[:count] if len(keys) >= count else None

    return eventually(found, what="names that the broker coordinates")


@pytest.mark.parametrize("version", [3, 5])  # verifies, and adds the group's partition
def test_offsets_are_committed_also_when_the_brokers_are_connected_already(asked, version):
    topic = f"t-{version}"
    assert try_to_create(asked[1], topic, placed=(1, 2))["error_code"] == NONE
    (named,) = coordinated_by(asked[1], 2, TRANSACTION, 1)
    groups = coordinated_by(asked[1], 1, GROUP, GROUPS)
    producer = Transactional(asked[2], named)
    assert eventually(lambda: producer.init() == NONE)
    committer = Transactional(asked[1], named)
    committer.given = producer.given
    for offset in range(3):
        for group in groups:
            if version < 5:
                assert producer.add_group(group) == NONE
            codes = committer.commit_offsets(group, topic, {0: offset}, version=version)
            assert codes == [NONE]
        assert producer.end(commit=True) == NONE
