"""Records written and read by the tools' producer and consumer, against a running broker."""

from __future__ import annotations

import struct

import pytest

from tidelog.client import (
    READ_COMMITTED,
    Client,
    ConnectionBroken,
    Fetched,
    PartitionInfo,
    RequestError,
    TopicInfo,
)
from tidelog.client.consumed import Consumed, FetchedAppendTimes
from tidelog.client.consumer import BrokenRecords, Consumer
from tidelog.client.producer import Producer
from tidelog.client.sync_connection import Connection
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records.batch import Record, build
from tidelog.protocol.records.layout import Compression

FIRST_MS, LAST_MS = -(2**63), 2**63 - 1


@pytest.fixture
def client(either):
    with Client(either, timeout_s=60) as made:
        yield made


def read(client, topic, count, *, partitions=1, **how):
    consumer = Consumer(client, {(topic, number): 0 for number in range(partitions)}, **how)
    found = {}
    for _ in range(100):
        for place, records in consumer.poll(100).items():
            rows = zip(
                records.offsets, records.timestamps, records.keys, records.values, strict=True
            )
            found.setdefault(place[1], []).extend(Record(*row) for row in rows)
        if sum(map(len, found.values())) >= count:
            break
    return found


def some(count, start=0):
    return [Record(0, 1000 + n, b"k%d" % n, b"v" * 50) for n in range(start, start + count)]


def keys(records):
    return [each.key for each in records]


@pytest.mark.parametrize("acks", [-1, 1, 0])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_what_is_written_is_read(client, topic, acks, codec):
    client.create_topic(topic, 2, {"retention.ms": "-1"})
    producer = Producer(client, acks=acks, compression=codec)
    for partition in (0, 1):
        for start in (0, 3):
            assert list(producer.write(topic, partition, some(3, start))) == []
    found = read(client, topic, 12, partitions=2)
    assert {number: keys(records) for number, records in found.items()} == {
        number: [b"k%d" % n for n in range(6)] for number in (0, 1)
    }
    assert [each.offset for each in found[1]] == list(range(6))


def test_times_too_far_apart_for_a_batch_are_parted(broker, topic):
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, {"retention.ms": "-1"})
        times = [0, LAST_MS, FIRST_MS, 5, -1]
        written = [Record(0, time, None, b"%d" % time) for time in times]
        assert list(Producer(client).write(topic, 0, written)) == []
        assert [each.timestamp for each in read(client, topic, 5)[0]] == times


def test_a_batch_that_is_too_large_is_halved_until_it_fits(client, topic):
    client.create_topic(topic, 1, {"max.message.bytes": "300"})
    records = some(9)
    records[4] = records[4]._replace(value=b"x" * 1000)
    (refused,) = Producer(client).write(topic, 0, records)
    assert refused.count == 1
    assert refused.error.code is ErrorCode.MESSAGE_TOO_LARGE
    found = read(client, topic, 8)[0]
    assert keys(found) == [b"k%d" % n for n in range(9) if n != 4]


def test_a_refusal_does_not_cost_the_batches_after_it(broker, topic):
    """The sequences of what was refused are used again."""
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, {"message.timestamp.before.max.ms": "1000"})
        producer = Producer(client)
        now_ms = 2**61
        old, new = [Record(0, 5, None, b"old")] * 2, [Record(0, now_ms, None, b"new")]
        assert [each.count for each in producer.write(topic, 0, old)] == [2]
        assert list(producer.write(topic, 0, new)) == []
        assert [each.value for each in read(client, topic, 1)[0]] == [b"new"]


def test_an_answer_that_is_lost_doubles_nothing(broker, topic, monkeypatch):
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1)
        producer = Producer(client)
        assert list(producer.write(topic, 0, some(2))) == []
        ask, lost = Connection.ask, []

        def losing(self, message, key, **options):
            answer = ask(self, message, key, **options)
            if key == 0 and not lost:
                lost.append(answer)
                self.close()
                raise ConnectionBroken("lost")
            return answer

        monkeypatch.setattr(Connection, "ask", losing)
        assert list(producer.write(topic, 0, some(2, 2))) == []
        assert lost
        assert client.end_offset(topic, 0) == 4


def test_reading_begins_in_the_middle_of_a_batch_and_goes_on_after_retention(client, topic):
    client.create_topic(topic, 1, {"retention.ms": "-1"})
    client.produce(topic, 0, build([Record(n, n, b"k%d" % n, None) for n in range(5)]))
    consumer = Consumer(client, {(topic, 0): 3})
    (found,) = consumer.poll(5000).values()
    assert found.offsets == [3, 4]
    assert consumer.positions == {(topic, 0): 5}
    beyond = Consumer(client, {(topic, 0): 99})
    assert beyond.poll(100) == {}
    assert beyond.positions == {(topic, 0): 0}
    with pytest.raises(RequestError):
        Consumer(client, {(f"{topic}-not", 0): 0}).poll(100)


class Answering:
    """A client of one broker, whose fetches have the same answer."""

    def __init__(self, fetched):
        self.fetched = fetched

    def topics(self, names):
        return {name: TopicInfo(name, False, (PartitionInfo(1, 0, 1),)) for name in names}

    def perform(self, _call):
        return {("t", 0): self.fetched}


def in_transaction(offset, producer_id, *, marker=None):
    """A record of a transaction, or the marker that ends it: 1 commits, 0 aborts."""
    key = b"%d" % offset if marker is None else bytes([0, 0, 0, marker])
    return build(
        [Record(offset, 5, key, None)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0 if marker is None else -1,
        is_transactional=True,
        is_control=marker is not None,
    )


def test_aborted_records_and_markers_are_left_out():
    data = b"".join(
        (
            in_transaction(0, 7),
            in_transaction(1, 8),
            in_transaction(2, 7, marker=0),
            in_transaction(3, 7),
            in_transaction(4, 8, marker=1),
            in_transaction(5, 7, marker=1),
            in_transaction(6, 8),
            in_transaction(7, 8, marker=0),
            build([Record(8, 5, b"8", None)]),
        )
    )
    fetched = Fetched(memoryview(data), 9, 9, 0, ((8, 6), (7, 0)), ())
    consumer = Consumer(Answering(fetched), {("t", 0): 0}, isolation=READ_COMMITTED)
    (found,) = consumer.poll(1).values()
    assert found.keys == [b"1", b"3", b"8"]
    assert consumer.positions == {("t", 0): 9}
    open_to_all = Consumer(Answering(fetched._replace(aborted=())), {("t", 0): 0})
    (found,) = open_to_all.poll(1).values()
    assert found.keys == [b"0", b"1", b"3", b"6", b"8"]


def test_a_batch_that_is_broken_is_named():
    data = bytearray(build([Record(0, 5, b"key", None)]))
    data[-3] ^= 1
    fetched = Fetched(memoryview(data), 1, 1, 0, (), ())
    with pytest.raises(BrokenRecords, match="t-0: "):
        Consumer(Answering(fetched), {("t", 0): 0}).poll(1)
    cut = fetched._replace(records=memoryview(data)[:-1])
    with pytest.raises(BrokenRecords, match="no whole batch at offset 0"):
        Consumer(Answering(cut), {("t", 0): 0}).poll(1)


def test_what_is_before_a_broken_batch_is_returned_first():
    broken = bytearray(build([Record(1, 5, b"key", None)]))
    broken[-3] ^= 1
    data = build([Record(0, 5, b"whole", None)]) + broken
    fetched = Fetched(memoryview(data), 2, 2, 0, (), ())
    client = Answering(fetched)
    consumer = Consumer(client, {("t", 0): 0})
    assert consumer.poll(1)["t", 0].keys == [b"whole"]
    client.fetched = fetched._replace(records=memoryview(bytes(broken)))
    with pytest.raises(BrokenRecords, match="offset 1"):
        consumer.poll(1)


def test_fields_and_append_times_of_every_kind_of_batch():
    batches = [
        build([Record(0, 5, None, b"v"), Record(1, -1, b"", None, ((b"h", None), (b"h", b"x")))]),
        build([Record(2, 7, b"k", b"")], compression=Compression.ZSTD),
        build([Record(3, 9, None, None)], timestamp_type=1, log_append_time=77),
        build([Record(4, 11, b"z", b"z")], magic=1),
    ]
    segments = ((0, ENTRY.pack(50, 0)), (2, ENTRY.pack(60, 0) + ENTRY.pack(2**63 - 1, 2)))
    fetched = Fetched(memoryview(b"".join(batches)), 5, 5, 0, (), segments)
    found = Consumer(Answering(fetched), {("t", 0): 1}).poll(1)["t", 0]
    assert found == Consumed(
        offsets=[1, 2, 3, 4],
        timestamps=[-1, 7, 77, 11],
        is_log_append=[False, False, True, False],
        append_times=[50, 60, 77, 2**63 - 1],
        keys=[b"", b"k", None, b"z"],
        values=[None, b"", None, b"z"],
        headers=[((b"h", None), (b"h", b"x")), (), (), ()],
    )
    assert found.part(0, 1).only([True]).keys == [b""]


ENTRY = struct.Struct(">qi")
UNKNOWN = -(2**63)


@pytest.mark.parametrize(
    ("segments", "times"),
    [
        ((), [None] * 4),
        (((8, b""),), [None] * 4),
        (((4, ENTRY.pack(7, 0)),), [7] * 4),
        (((10, ENTRY.pack(7, 1)),), [None, 7, 7, 7]),
        (((10, ENTRY.pack(7, 0) + ENTRY.pack(UNKNOWN, 1) + ENTRY.pack(7, 2)),), [7, None, 7, 7]),
        (((10, ENTRY.pack(7, 0) + ENTRY.pack(6, 2)),), [7, None, None, None]),
        (((10, ENTRY.pack(7, 0) + ENTRY.pack(8, 0)),), [7, None, None, None]),
        (((10, ENTRY.pack(UNKNOWN + 1, 0)),), [None] * 4),
        (((10, ENTRY.pack(7, -1)),), [None] * 4),
        (((10, ENTRY.pack(7, 0)), (12, b"")), [7, 7, None, None]),
        (((10, ENTRY.pack(7, 0) + ENTRY.pack(9, 4)),), [7] * 4),
        (((10, ENTRY.pack(7, 0) + b"cut"),), [7] * 4),
    ],
)
def test_append_times_that_are_no_entries_are_unknown(segments, times):
    found = FetchedAppendTimes(segments, 10, 14)
    assert [found.at(offset) for offset in range(10, 14)] == times
