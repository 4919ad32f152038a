"""Kafka's metadata log as it lies on disk: snapshots, changes, transactions, and a torn end."""

from uuid import UUID

import pytest

from tidelog.broker.logs.adoption.errors import AdoptionError
from tidelog.broker.logs.adoption.kafka_metadata import KafkaPartition, read_metadata
from tidelog.protocol import cluster_metadata as kafka
from tidelog.protocol.message import Codec
from tidelog.protocol.records.batch import build
from tidelog.protocol.records.layout import Record
from tidelog.protocol.wire import write_uvarint

ID = UUID(int=7)
NUMBERS = {
    kafka.TopicCreated: 2,
    kafka.PartitionCreated: 3,
    kafka.ConfigChange: 4,
    kafka.PartitionChange: 5,
    kafka.TopicRemoved: 9,
    kafka.ProducerIds: 15,
    kafka.TransactionBegun: 23,
    kafka.TransactionEnded: 24,
    kafka.TransactionAborted: 25,
}
TOPIC = kafka.TopicCreated(name="t", topic_id=ID)
PARTITION = kafka.PartitionCreated(
    partition_id=0,
    topic_id=ID,
    replicas=[1, 2],
    isr=[1, 2],
    leader=1,
    leader_epoch=0,
    partition_epoch=0,
)


def value(message, version=0):
    """The value of a record."""
    head = b"".join(write_uvarint(each) for each in (1, NUMBERS[type(message)], version))
    return head + Codec(type(message), version, flexible=True).encode(message)


def batch(first, *messages, epoch=1, control=False):
    """A batch of messages (or of bytes)."""
    values = [each if isinstance(each, bytes) else value(each) for each in messages]
    records = [Record(first + at, 0, None, each) for at, each in enumerate(values)]
    return build(records, leader_epoch=epoch, is_control=control)


def snapshot(*messages):
    """The batches of a snapshot, with Kafka's header and footer."""
    count = len(messages)
    edges = [
        Record(at, 0, b"\0\0\0" + bytes([kind]), b"\0\0") for at, kind in ((0, 3), (count + 1, 4))
    ]
    header, footer = (build([each], leader_epoch=1, is_control=True) for each in edges)
    return header, batch(1, *messages), footer


def put(directory, name, *batches):
    """Writes a file of the metadata log."""
    log = directory / "__cluster_metadata-0"
    log.mkdir(exist_ok=True)
    (log / name).write_bytes(b"".join(batches))


def partitions(found):
    return found.topics[0].partitions


def test_a_directory_without_a_metadata_log_knows_nothing(tmp_path):
    assert read_metadata(tmp_path) is None


def config(kind, resource, name, value):
    return kafka.ConfigChange(resource_type=kind, resource_name=resource, name=name, value=value)


def test_changes_are_applied_in_order(tmp_path):
    later = (
        [kafka.PartitionChange(partition_id=0, topic_id=ID, isr=[2], leader=2)],
        [kafka.PartitionChange(partition_id=0, topic_id=ID, isr=[2, 1])],
        [kafka.ProducerIds(broker_id=1, next_producer_id=3000)],
        [config(2, "t", "a", "1")],
        [config(2, "t", "b", "1")],
        [config(2, "t", "a", None)],
        [config(4, "1", "c", "1")],
        [b"\x01\x14\x00\x00"],  # NoOpRecord
        [config(4, "", "min.insync.replicas", "2"), config(4, "2", "d", None)],
    )
    put(
        tmp_path,
        "00000000000000000000.log",
        batch(0, TOPIC, PARTITION),
        batch(2, b"\x00\x00", control=True),
        *(batch(first, *messages, epoch=2) for first, messages in enumerate(later, 3)),
    )
    found = read_metadata(tmp_path)
    assert (found.epoch, found.end_offset, found.next_producer_id) == (2, 13, 3000)
    assert found.topics[0].configs == {"b": "1"}
    assert found.broker_configs == {"1": {"c": "1"}, "": {"min.insync.replicas": "2"}}
    assert partitions(found) == {0: KafkaPartition((1, 2), (2, 1), (), 1, 2, is_moving=False)}


def test_a_snapshot_stands_for_what_is_before_it(tmp_path):
    moved = kafka.PartitionChange(
        partition_id=0, topic_id=ID, adding_replicas=[3], replicas=[1, 2, 3]
    )
    put(tmp_path, "00000000000000000000.log", batch(8, b"nonsense"), batch(9, moved, epoch=3))
    put(
        tmp_path,
        "00000000000000000003-0000000001.checkpoint",
        *snapshot(TOPIC, PARTITION, PARTITION),
    )
    put(tmp_path, "00000000000000000009-0000000002.checkpoint", *snapshot(TOPIC, PARTITION))
    found = read_metadata(tmp_path)
    assert (found.epoch, found.end_offset) == (3, 10)
    assert partitions(found)[0] == KafkaPartition((1, 2, 3), (1, 2), (), 0, 1, is_moving=True)


def test_a_topic_that_was_deleted_is_gone_with_its_settings(tmp_path):
    again = kafka.TopicCreated(name="t", topic_id=UUID(int=9))
    removed = kafka.TopicRemoved(topic_id=ID)
    put(
        tmp_path,
        "00000000000000000000.log",
        batch(0, TOPIC, PARTITION, config(2, "t", "a", "1"), removed, again),
    )
    (topic,) = read_metadata(tmp_path).topics
    assert (topic.topic_id, topic.configs, topic.partitions) == (UUID(int=9), {}, {})


@pytest.mark.parametrize(
    ("end", "isr"),
    [
        (kafka.TransactionEnded(), (1,)),
        (kafka.TransactionAborted(reason="no"), (1, 2)),
        (None, (1, 2)),
    ],
)
def test_a_transaction_counts_when_it_has_ended(tmp_path, end, isr):
    shrunk = kafka.PartitionChange(partition_id=0, topic_id=ID, isr=[1])
    last = [] if end is None else [end]
    messages = [TOPIC, PARTITION, kafka.TransactionBegun(name="x"), shrunk, *last]
    put(tmp_path, "00000000000000000000.log", batch(0, *messages))
    assert partitions(read_metadata(tmp_path))[0].isr == isr


@pytest.mark.parametrize("cut", [1, 40])
def test_a_torn_end_is_left_out(tmp_path, cut):
    torn = batch(2, kafka.PartitionChange(partition_id=0, topic_id=ID, isr=[1]))
    damaged = torn[:-1] + bytes([torn[-1] ^ 1])
    for end in (torn[:-cut], damaged):
        put(tmp_path, "00000000000000000000.log", batch(0, TOPIC, PARTITION), end)
        found = read_metadata(tmp_path)
        assert (found.end_offset, partitions(found)[0].isr) == (2, (1, 2))


def test_a_snapshot_that_is_not_whole_is_refused(tmp_path):
    header, middle, footer = snapshot(TOPIC, PARTITION)
    damaged = middle[:-1] + bytes([middle[-1] ^ 1])
    for batches in ((header, middle), (header, middle, footer[:-1]), (header, damaged, footer), ()):
        put(tmp_path, "00000000000000000009-0000000002.checkpoint", *batches)
        with pytest.raises(AdoptionError, match=r"snapshot .*0002\.checkpoint .* is damaged"):
            read_metadata(tmp_path)


def test_records_that_are_missing_before_others_are_refused(tmp_path):
    put(tmp_path, "00000000000000000000.log", batch(0, TOPIC), batch(1, PARTITION)[:-1])
    put(tmp_path, "00000000000000000002.log", batch(2, PARTITION))
    with pytest.raises(AdoptionError, match=r"offsets 1 to 1 are missing before 0+2\.log"):
        read_metadata(tmp_path)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x02\x02\x00", "a frame of version 2"),
        (b"\x01\x03\x09", "PartitionCreated of version 9"),
        (kafka.PartitionChange(partition_id=5, topic_id=ID), "5"),
    ],
)
def test_metadata_that_are_not_understood_are_refused(tmp_path, message, reason):
    put(tmp_path, "00000000000000000000.log", batch(0, TOPIC, message))
    with pytest.raises(AdoptionError, match=reason):
        read_metadata(tmp_path)
