"""FindCoordinator: this broker for every group and transaction; share groups are refused."""

from __future__ import annotations

import pytest

from tests.broker.asking import all_versions
from tests.oracle import wire

INVALID_REQUEST = 42
GROUP, TRANSACTION, SHARE = 0, 1, 2


def ask(connection, version, key_type, *keys):
    answer = connection.ask(
        "FindCoordinator", version, key=keys[0], key_type=key_type, coordinator_keys=list(keys)
    )
    if version < 4:
        return [answer]
    assert [each["key"] for each in answer["coordinators"]] == list(keys)
    return answer["coordinators"]


@pytest.mark.parametrize("version", all_versions("FindCoordinator"))
def test_every_version(broker, connection, version):
    here = (0, 1, "127.0.0.1", broker.port)
    for kind in (GROUP, TRANSACTION, SHARE)[: 3 if version else 1]:
        for found in ask(connection, version, kind, "a", "b"):
            named = (found["error_code"], found["node_id"], found["host"], found["port"])
            assert named == (here if kind != SHARE else (INVALID_REQUEST, -1, "", -1))
            assert kind != SHARE or found["error_message"]


@pytest.mark.parametrize(
    ("kind", "topic"), [(GROUP, "__consumer_offsets"), (TRANSACTION, "__transaction_state")]
)
def test_it_creates_the_topic_of_the_coordinators(start, kind, topic):
    with wire.Connection(start().bootstrap) as connection:
        (found,) = ask(connection, 2, kind, "a")
        assert (found["error_code"], found["node_id"]) == (0, 1)
        listed = connection.ask("Metadata", 9, topics=None)["topics"]
        assert [each["name"] for each in listed] == [topic]
