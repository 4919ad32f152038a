"""A cluster as source: the same records as its log directory has, from our broker and from Apache Kafka."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kafka import KafkaAdminClient
from kafka import TopicPartition as Partition

from tests.oracle.brokers import wait_for_markers
from tests.pipeline.logs import seen_in, segments, truth
from tests.protocol.records.samples import random_records
from tidelog.client import Client
from tidelog.pipeline.source.access import plan, ranges, read
from tidelog.pipeline.source.append_times import UNKNOWN
from tidelog.pipeline.source.reading import HEADERS, TIMES, ReadOptions
from tidelog.pipeline.source.splits import (
    HIGH_WATERMARK,
    LOG_END,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Selection,
    SourceError,
    offsets_of,
)
from tidelog.protocol.records.batch import Record, build

WAIT_S = 60


@pytest.fixture(params=["tidelog", pytest.param("kafka", marks=pytest.mark.oracle)])
def cluster(request):
    """A running broker: `bootstrap` and `log_dir`."""
    return request.getfixturevalue("broker" if request.param == "tidelog" else "kafka")


def fill(cluster, topic, *, settings=None, partitions=2, batches=12):
    """Produce batches of all codecs with times of all kinds; Kafka gets those it takes."""
    rng = random.Random(3)
    with Client(cluster.bootstrap, timeout_s=60) as client:
        made = {"segment.bytes": "4000", "retention.ms": "-1", **(settings or {})}
        client.create_topic(topic, partitions, made)
        for partition in range(partitions):
            for number in range(batches):
                sent = random_records(rng, rng.choice([1, 5, 30]), headers=True)
                data = build(sent, compression=number % 5)
                client.produce(topic, partition, data)


def read_from(splits, options=None):
    found = {}
    for split in splits:
        for columns in read(split, options or ReadOptions()):
            found.setdefault((split.topic, split.partition), []).extend(seen_in(columns))
    return found


def told_by(cluster, topic, partition=0):
    """What a directory has, as its broker tells it: Apache Kafka knows no append times but its stamps."""
    directory = cluster.log_dir / f"{topic}-{partition}"
    rows = truth(directory)
    ours = any(directory.glob("*.appendtimes"))
    assert {one.append_time is not None for one in rows if one.time_type != 1} <= {ours}
    return rows


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_cluster_gives_what_its_directory_has(cluster, topic, kind):
    fill(cluster, topic, settings={"message.timestamp.type": kind})
    for size in (7, 1 << 20):
        selection = Selection(topics=(topic,), split_offsets=size)
        found = read_from(plan(selection, brokers=cluster.bootstrap))
        assert sorted(found) == [(topic, 0), (topic, 1)]
        for (_, partition), rows in found.items():
            assert rows == told_by(cluster, topic, partition)
            assert {one.time_type for one in rows} == {int(kind == "LogAppendTime")}


@pytest.mark.parametrize("batch_bytes", [1, 1000, 1 << 24])
def test_columns_of_any_size(broker, topic, batch_bytes):
    fill(broker, topic, partitions=1)
    splits = plan(Selection(topics=(topic,)), brokers=broker.bootstrap)
    found = read_from(splits, ReadOptions(batch_bytes=batch_bytes))
    assert found == {(topic, 0): told_by(broker, topic)}
    offsets, times, bytes_of_batches = [], [], 0
    for split in splits:
        for columns in read(split, ReadOptions(depth=TIMES, batch_bytes=batch_bytes)):
            offsets += columns.offset.tolist()
            times += columns.append_time_ms.tolist()
        for columns in read(split, ReadOptions(depth=HEADERS)):
            bytes_of_batches += int(columns.batches[:, 1].sum())
            assert set(columns.batches[:, 0].tolist()) == {-1}
    assert offsets == [one.offset for one in found[topic, 0]]
    assert times == [one.append_time for one in found[topic, 0]]
    assert UNKNOWN not in times
    assert bytes_of_batches == sum(
        path.stat().st_size for path in segments(broker.log_dir / f"{topic}-0")
    )


def test_offsets_are_frozen(broker, topic):
    fill(broker, topic, partitions=1, batches=4)
    selection = Selection(topics=(topic,))
    splits = plan(selection, brokers=broker.bootstrap)
    frozen = offsets_of(splits)
    assert frozen == ranges(selection, brokers=broker.bootstrap)
    before = read_from(splits)
    with Client(broker.bootstrap) as client:
        client.produce(topic, 0, build([Record(0, 5, None, b"later")]))
    assert read_from(splits) == before
    again = Selection(topics=(topic,), offsets=frozen)
    assert read_from(plan(again, brokers=broker.bootstrap)) == before
    assert ranges(selection, brokers=broker.bootstrap)[topic, 0][1] == frozen[topic, 0][1] + 1
    beyond = Selection(topics=(topic,), offsets={(topic, 0): (0, 10**6)})
    with pytest.raises(SourceError, match="ends at offset"):
        plan(beyond, brokers=broker.bootstrap)
    with pytest.raises(SourceError, match=f"there is no partition {topic}-9"):
        plan(Selection(topics=(topic,), offsets={(topic, 9): (0, 1)}), brokers=broker.bootstrap)


@pytest.mark.parametrize("low", [None, -86_400_000, -7, -6, -3, -1, 0, 5, 1_499_999_997_000, 2**60])
@pytest.mark.parametrize("high", [None, 0, 1_499_999_999_000])
def test_event_times_choose_records(cluster, topic, low, high):
    fill(cluster, topic, partitions=1)
    if low is None and high is None:
        low = 1
    selection = Selection(topics=(topic,), low_time=low, high_time=high)
    splits = plan(selection, brokers=cluster.bootstrap)
    found = read_from(splits, ReadOptions.of(selection)).get((topic, 0), [])
    assert found == [
        one
        for one in told_by(cluster, topic)
        if one.timestamp != -1
        and (low is None or low <= one.timestamp)
        and (high is None or one.timestamp < high)
    ]
    if low == 2**60:
        assert splits == []


def test_what_is_gone_is_an_error(broker, topic):
    fill(broker, topic, partitions=1, batches=4)
    (split,) = plan(Selection(topics=(topic,)), brokers=broker.bootstrap)
    everything = truth(broker.log_dir / f"{topic}-0")
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.delete_records({Partition(topic, 0): 5})
    admin.close()
    with pytest.raises(SourceError, match=f"{topic}-0 has no offset 0 any more"):
        list(read(split))
    fresh = read_from(plan(Selection(topics=(topic,)), brokers=broker.bootstrap))
    assert fresh == {(topic, 0): everything[5:]}


def test_mistakes_are_said(broker):
    with pytest.raises(SourceError, match="there is no topic nowhere"):
        plan(Selection(topics=("nowhere",)), brokers=broker.bootstrap)
    with pytest.raises(SourceError, match="upto=log-end needs log directories"):
        plan(Selection(upto=LOG_END), brokers=broker.bootstrap)


# --- transactions: Apache Kafka has them -------------------------------------------------------


def consumed(bootstrap, topic, isolation, end):
    """What librdkafka shows of a partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": isolation}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    offsets = []
    for _ in range(10_000):
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error():
            break
        offsets.append(message.offset())
    consumer.close()
    return [offset for offset in offsets if offset < end]


def transact(producer, topic, values, *, commit):
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush()
    (producer.commit_transaction if commit else producer.abort_transaction)(WAIT_S)


@pytest.mark.oracle
def test_transactions(kafka, topic):
    with Client(kafka.bootstrap) as client:
        client.create_topic(topic, 1, {"segment.bytes": "14000", "retention.ms": "-1"})
    producers = []
    for number in range(2):
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}.{number}"}
        )
        producer.init_transactions(WAIT_S)
        producers.append(producer)
    rng = random.Random(2)
    for number in range(30):
        values = [b"%d" % number * rng.randrange(1, 400) for _ in range(rng.randrange(1, 6))]
        transact(producers[number % 2], topic, values, commit=rng.random() < 0.5)
    wait_for_markers(kafka.bootstrap, topic)
    plain = Producer({"bootstrap.servers": kafka.bootstrap})
    plain.produce(topic, b"plain", partition=0)
    plain.flush()
    producers[0].begin_transaction()
    producers[0].produce(topic, b"open", partition=0)
    producers[0].flush()
    plain.produce(topic, b"behind it", partition=0)
    plain.flush()
    with Client(kafka.bootstrap) as client:
        end = client.end_offset(topic, 0)
        stable = client.end_offset(topic, 0, isolation=1)
    assert stable == end - 2
    places = [{"brokers": kafka.bootstrap}, {"logs": [str(kafka.log_dir)]}]
    for place in places:
        upto = LOG_END if "logs" in place else HIGH_WATERMARK
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            for size in (1, 3000, 1 << 30):
                selection = Selection(
                    topics=(topic,),
                    isolation=isolation,
                    upto=upto,
                    split_bytes=size,
                    split_offsets=min(size, 5),
                )
                rows = read_from(plan(selection, **place), ReadOptions.of(selection))[topic, 0]
                shown = consumed(kafka.bootstrap, topic, isolation, end)
                assert [one.offset for one in rows] == shown
                assert (b"open" in {one.value for one in rows}) == (isolation == READ_UNCOMMITTED)
    assert len(segments(kafka.log_dir / f"{topic}-0")) > 1
    producers[0].abort_transaction(WAIT_S)
