"""ElectLeaders: nobody is elected where there is one broker, and the answer says why."""

from __future__ import annotations

import pytest

from tests.broker.asking import all_versions, create, new_topic, produce, records_for

UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST = 3, 42
PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, ELECTION_NOT_NEEDED = 80, 83, 84
PREFERRED, UNCLEAN = 0, 1


def elect(connection, topics, *, version=2, kind=PREFERRED):
    answer = connection.ask(
        "ElectLeaders",
        version,
        election_type=kind,
        topic_partitions=topics
        and [{"topic": name, "partitions": indexes} for name, indexes in topics.items()],
        timeout_ms=1_000,
    )
    return answer.get("error_code", 0), {
        (topic["topic"], each["partition_id"]): each["error_code"]
        for topic in answer["replica_election_results"]
        for each in topic["partition_result"]
    }


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
@pytest.mark.parametrize("version", all_versions("ElectLeaders"))
def test_every_version(connection, version, kind):
    topic = new_topic(connection, partitions=2)
    asked = {topic: [0, 1, 7, -1], "nowhere": [0]}
    assert elect(connection, asked, version=version, kind=kind) == (
        0,
        {
            (topic, 0): ELECTION_NOT_NEEDED,
            (topic, 1): ELECTION_NOT_NEEDED,
            (topic, 7): UNKNOWN_TOPIC_OR_PARTITION,
            (topic, -1): UNKNOWN_TOPIC_OR_PARTITION,
            ("nowhere", 0): UNKNOWN_TOPIC_OR_PARTITION,
        },
    )
    assert elect(connection, None, version=version, kind=kind) == (0, {})


def test_no_such_election(connection):
    topic = new_topic(connection)
    code, results = elect(connection, {topic: [0]}, kind=9)
    assert (code, set(results.values())) == (INVALID_REQUEST, {INVALID_REQUEST})


def test_a_log_that_is_offline(start):
    broker = start({"clock": "manual"})
    with broker.connect() as connection:
        create(connection, "t", partitions=2, flush_messages="1")
        broker.faults.add(storage="sync", error="EIO", topic="t", partition=1)
        assert produce(connection, "t", records_for(9, "x"), partition=1)["error_code"] != 0
        expected = {("t", 1): PREFERRED_LEADER_NOT_AVAILABLE}
        assert elect(connection, None) == (0, expected)
        assert elect(connection, {"t": [0, 1]}) == (0, {("t", 0): ELECTION_NOT_NEEDED} | expected)
        assert elect(connection, {"t": [1]}, kind=UNCLEAN) == (
            0,
            {("t", 1): ELIGIBLE_LEADERS_NOT_AVAILABLE},
        )
    broker.kill()  # a log that is offline is no end in order
