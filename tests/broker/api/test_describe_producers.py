"""DescribeProducers: who appends idempotently, to which sequence, and since when."""

from __future__ import annotations

import pytest

from tests.broker.asking import create, new_topic, produce, values
from tests.oracle import recordset

UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION = 3, 17
NOW_MS = 1_700_000_000_000


def look(connection, topic, *indexes):
    wanted = [{"name": topic, "partition_indexes": list(indexes)}]
    answer = connection.ask("DescribeProducers", 0, topics=wanted)
    (described,) = answer["topics"]
    assert described["name"] == topic
    return described["partitions"]


def append(connection, topic, producer_id, epoch, sequence, count):
    records = recordset.batch(
        values(*["x"] * count),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    assert produce(connection, topic, records)["error_code"] == 0


def test_sequences_epochs_and_append_times(start):
    broker = start({"clock": "manual"})
    with broker.connect() as connection:
        create(connection, "t", partitions=2)
        broker.clock.set(NOW_MS)
        append(connection, "t", 4_000, 0, 0, 3)
        broker.clock.step(1_000)
        append(connection, "t", 4_000, 0, 3, 2)
        append(connection, "t", 4_001, 5, 0, 1)
        expected = [
            {
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "last_sequence": sequence,
                "last_timestamp": NOW_MS + 1_000,
                "coordinator_epoch": -1,
                "current_txn_start_offset": -1,
            }
            for producer_id, epoch, sequence in ((4_000, 0, 4), (4_001, 5, 0))
        ]
        first, second = look(connection, "t", 0, 1)
        assert first["active_producers"] == expected
        assert (second["error_code"], second["active_producers"]) == (0, [])


@pytest.mark.parametrize(
    ("topic", "index", "code"),
    [
        ("nowhere", 0, UNKNOWN_TOPIC_OR_PARTITION),
        (None, 7, UNKNOWN_TOPIC_OR_PARTITION),
        (None, -1, UNKNOWN_TOPIC_OR_PARTITION),
        ("bad name!", 0, INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_does_not_exist(connection, topic, index, code):
    if topic is None:
        topic = new_topic(connection)
    (partition,) = look(connection, topic, index)
    assert (partition["error_code"], partition["active_producers"]) == (code, [])
    assert len(partition["error_message"]) > 10
