"""Leader epochs of logs that came from elsewhere: they go on where they were, and all answers agree.

A directory as Kafka leaves one, its leader epochs in the headers of batches and in
leader-epoch-checkpoint, is put into a broker of ours. In Kafka a looked-up offset comes with the epoch of
its own record; the log's end with the current one.
"""

from __future__ import annotations

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, TopicPartition

from tests.broker import asking
from tests.broker.inside import Inside
from tests.oracle import recordset
from tests.oracle.recordset import Rec

FENCED, UNKNOWN_EPOCH = 74, 75
BATCHES = ((0, 0), (1, 0), (2, 4), (3, 4), (4, 7), (5, 7))  # offset, leader epoch
CHECKPOINT = "0\n3\n0 0\n4 2\n7 4\n"
AFTER_ONE_THAT_WROTE_NOTHING = "0\n4\n0 0\n4 2\n7 4\n9 6\n"
LATEST, EARLIEST, LARGEST = -1, -2, -3


def bring(path, checkpoint):
    """Write a partition's directory `old-0` as Kafka does; a record's time is a second per offset."""
    directory = path / "old-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(
        b"".join(
            recordset.batch(
                [Rec(1_000 * offset, b"v%d" % offset)], base_offset=offset, leader_epoch=epoch
            )
            for offset, epoch in BATCHES
        )
    )
    if checkpoint is not None:
        (directory / "leader-epoch-checkpoint").write_text(checkpoint)
    return directory


@pytest.fixture
def brought(tmp_path):
    bring(tmp_path, CHECKPOINT)
    with Inside(tmp_path) as broker:
        yield broker


def metadata_epoch(connection, topic="old"):
    answer = connection.ask(
        "Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False
    )
    return answer["topics"][0]["partitions"][0]["leader_epoch"]


def end_of(connection, epoch, current=-1):
    wanted = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    answer = connection.ask(
        "OffsetForLeaderEpoch",
        4,
        replica_id=-1,
        topics=[{"topic": "old", "partitions": [wanted]}],
    )["topics"][0]["partitions"][0]
    return answer["error_code"], answer["leader_epoch"], answer["end_offset"]


def test_every_answer_names_the_same_epoch(brought):
    with brought.connect() as connection:
        assert metadata_epoch(connection) == 7
        for epoch, code in ((-1, 0), (7, 0), (0, FENCED), (6, FENCED), (8, UNKNOWN_EPOCH)):
            assert asking.fetch(connection, "old", epoch=epoch)["error_code"] == code
            assert asking.list_offset(connection, "old", 0, epoch=epoch)["error_code"] == code
            assert end_of(connection, 0, current=epoch)[0] == code


def test_a_looked_up_offset_has_the_epoch_of_its_record(brought):
    with brought.connect() as connection:
        for offset, epoch in BATCHES:
            got = asking.list_offset(connection, "old", 1_000 * offset)
            assert (got["offset"], got["leader_epoch"]) == (offset, epoch)
        for target, expected in ((EARLIEST, (0, 0)), (LARGEST, (5, 7)), (LATEST, (6, 7))):
            got = asking.list_offset(connection, "old", target)
            assert (got["offset"], got["leader_epoch"]) == expected
        got = asking.list_offset(connection, "old", 99_000)
        assert (got["offset"], got["leader_epoch"]) == (-1, -1)


def test_epochs_end_where_the_next_begins(brought):
    with brought.connect() as connection:
        for epoch, found, end in ((0, 0, 2), (3, 0, 2), (4, 4, 4), (6, 4, 4), (7, 7, 6)):
            assert end_of(connection, epoch) == (0, found, end)
        assert end_of(connection, 8) == (0, -1, -1)


def test_what_is_appended_is_of_the_last_epoch(brought, tmp_path):
    with brought.connect() as connection:
        assert asking.produce(connection, "old", asking.batch_of("new"))["base_offset"] == 6
        batches, _ = recordset.parse(asking.fetch(connection, "old", 6)["records"])
        assert [batch["leader_epoch"] for batch in batches] == [7]
    checkpoint = tmp_path / "old-0" / "leader-epoch-checkpoint"
    assert checkpoint.read_text() == CHECKPOINT


def test_it_is_the_same_while_the_partition_is_closed(tmp_path):
    bring(tmp_path, CHECKPOINT)
    with Inside(tmp_path):
        pass
    with Inside(tmp_path) as again, again.connect() as connection:
        assert metadata_epoch(connection) == 7
        assert asking.fetch(connection, "old", epoch=7)["error_code"] == 0
        assert metadata_epoch(connection) == 7


@pytest.mark.parametrize(
    ("checkpoint", "epoch", "appended"),
    [
        (None, 7, "0\n1\n7 6\n"),
        ("junk", 7, "0\n1\n7 6\n"),
        (AFTER_ONE_THAT_WROTE_NOTHING, 9, AFTER_ONE_THAT_WROTE_NOTHING),
    ],
)
def test_an_epoch_that_the_checkpoint_does_not_tell_of_batches(
    tmp_path, checkpoint, epoch, appended
):
    directory = bring(tmp_path, checkpoint)
    with Inside(tmp_path) as broker, broker.connect() as connection:
        assert asking.fetch(connection, "old", epoch=epoch)["error_code"] == 0
        assert metadata_epoch(connection) == epoch
        assert end_of(connection, epoch) == (0, epoch, 6)
        if epoch == 9:
            assert end_of(connection, 8) == (0, 7, 6)
        asking.produce(connection, "old", asking.batch_of("new"))
        batches, _ = recordset.parse(asking.fetch(connection, "old", 6)["records"])
        assert [batch["leader_epoch"] for batch in batches] == [epoch]
        assert (directory / "leader-epoch-checkpoint").read_text() == appended


def test_a_client_that_checks_epochs_reads_all_of_it(brought):
    """The client asks where the epoch of its position ended before it goes on (KIP-320)."""
    consumer = Consumer(
        {
            "bootstrap.servers": brought.bootstrap,
            "group.id": "nobody's",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    (found,) = consumer.offsets_for_times([TopicPartition("old", 0, 2_000)], timeout=60)
    assert (found.offset, found.leader_epoch) == (2, 4)
    consumer.assign([found])
    read = []
    while True:
        message = consumer.poll(60)
        assert message is not None, f"nothing more after {read}"
        if message.error():
            break
        read.append((message.offset(), message.leader_epoch(), message.timestamp()))
    consumer.close()
    assert read == [(o, e, (TIMESTAMP_CREATE_TIME, 1_000 * o)) for o, e in BATCHES[2:]]
