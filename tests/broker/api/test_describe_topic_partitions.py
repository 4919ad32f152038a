"""DescribeTopicPartitions: page by page, and the pages are the whole."""

from __future__ import annotations

import pytest

from tests.broker.asking import create, new_name

UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST = 3, 17, 42


def ask(connection, *names, limit=2_000, cursor=None):
    return connection.ask(
        "DescribeTopicPartitions",
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )


def pairs(answer):
    return [
        (topic["name"], partition["partition_index"])
        for topic in answer["topics"]
        for partition in topic["partitions"]
    ]


@pytest.fixture(scope="module")
def topics(broker):
    with broker.connect() as connection:
        found = sorted(new_name() for _ in range(3))
        return {
            name: (create(connection, name, partitions=count), count)
            for name, count in zip(found, (3, 1, 4), strict=True)
        }


def test_all_of_it(connection, topics):
    answer = ask(connection, *topics)
    assert answer["next_cursor"] is None
    for described, (name, (topic_id, count)) in zip(answer["topics"], topics.items(), strict=True):
        assert (described["name"], described["topic_id"]) == (name, topic_id)
        assert (described["error_code"], described["is_internal"]) == (0, False)
        assert [each["partition_index"] for each in described["partitions"]] == [*range(count)]
        for each in described["partitions"]:
            assert (each["leader_id"], each["replica_nodes"], each["isr_nodes"]) == (1, [1], [1])
            assert (each["error_code"], each["offline_replicas"]) == (0, [])


@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 4, 7, 8, 9])
def test_the_pages_are_the_whole(connection, topics, limit):
    found, cursor = [], None
    for _ in range(20):
        page = ask(connection, *topics, limit=limit, cursor=cursor)
        assert 1 <= len(pairs(page)) <= max(1, limit)
        found += pairs(page)
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [(name, i) for name, (_, count) in topics.items() for i in range(count)]


def test_no_names_are_all_topics(connection, topics):
    everything = pairs(ask(connection))
    assert set(pairs(ask(connection, *topics))) <= set(everything)
    assert everything == sorted(everything)
    first = next(iter(topics))
    behind = pairs(ask(connection, cursor={"topic_name": first, "partition_index": 1}))
    assert behind == [pair for pair in everything if pair >= (first, 1)]
    assert behind[0] == (first, 1)


def test_what_does_not_exist(connection, topics):
    known = next(iter(topics))
    answer = ask(connection, "nowhere", known, "bad name!", known)
    codes = {topic["name"]: topic["error_code"] for topic in answer["topics"]}
    assert codes == {
        "bad name!": INVALID_TOPIC_EXCEPTION,
        "nowhere": UNKNOWN_TOPIC_OR_PARTITION,
        known: 0,
    }
    assert len(answer["topics"]) == 3


@pytest.mark.parametrize(("name", "index"), [(None, -1), ("elsewhere", 0), ("", 0)])
def test_a_cursor_that_points_nowhere(connection, topics, name, index):
    known = next(iter(topics))
    cursor = {"topic_name": known if name is None else name, "partition_index": index}
    answer = ask(connection, known, cursor=cursor)
    assert [topic["error_code"] for topic in answer["topics"]] == [INVALID_REQUEST]
