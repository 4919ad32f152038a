"""OffsetForLeaderEpoch: where an epoch ended, in every version; wrong beliefs get 74 and 75."""

from __future__ import annotations

import pytest

from tests.broker.asking import all_versions, batch_of, new_topic, produce

UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_LEADER_EPOCH = 3, 75


@pytest.fixture
def topic(connection):
    name = new_topic(connection)
    for _ in range(3):
        produce(connection, name, batch_of("x", "y"))
    return name


def ask(connection, version, topic, leader_epoch, *, partition=0, current=-1):
    wanted = {
        "partition": partition,
        "current_leader_epoch": current,
        "leader_epoch": leader_epoch,
    }
    answer = connection.ask(
        "OffsetForLeaderEpoch",
        version,
        replica_id=-1,
        topics=[{"topic": topic, "partitions": [wanted]}],
    )["topics"][0]
    assert answer["topic"] == topic
    return answer["partitions"][0]


@pytest.mark.parametrize("version", all_versions("OffsetForLeaderEpoch"))
def test_the_current_epoch_ends_at_the_end_of_the_log(connection, topic, version):
    got = ask(connection, version, topic, 0)
    assert (got["error_code"], got["partition"], got["end_offset"]) == (0, 0, 6)
    assert got.get("leader_epoch", 0) == 0


@pytest.mark.parametrize("version", all_versions("OffsetForLeaderEpoch"))
def test_unknown_partitions(connection, topic, version):
    for named, partition in [("nowhere", 0), (None, 5), (None, -1)]:
        got = ask(connection, version, named or topic, 0, partition=partition)
        assert (got["error_code"], got["end_offset"]) == (UNKNOWN_TOPIC_OR_PARTITION, -1)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_epoch_from_the_future(connection, topic, version):
    """As the client's own belief it is an error; as the epoch asked for it is unknown."""
    assert ask(connection, version, topic, 0, current=7)["error_code"] == UNKNOWN_LEADER_EPOCH
    got = ask(connection, version, topic, 7)
    assert (got["error_code"], got["leader_epoch"], got["end_offset"]) == (0, -1, -1)


@pytest.mark.parametrize("version", [1, 4])
def test_an_empty_log(connection, version):
    """Who knows its epoch has lost nothing: unknown would mean that the log was cut off."""
    name = new_topic(connection)
    got = ask(connection, version, name, 0)
    assert (got["error_code"], got["leader_epoch"], got["end_offset"]) == (0, 0, 0)
    got = ask(connection, version, name, 1)
    assert (got["error_code"], got["leader_epoch"], got["end_offset"]) == (0, -1, -1)
