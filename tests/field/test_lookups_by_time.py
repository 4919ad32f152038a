"""L1: five years of wrong answers to "from which offset on?".

What users see, each an issue of one broker, and its like in every clone (kop#334, kop#135, mockforge#185,
kfake#1431): records are skipped, the start of a batch is answered, or offset 0 (redpanda#2397, #3161, #6604,
#6606); a negative time is an exception in the client (#4308); after a trim consumers are stuck, or jump
to the end (#18281, #18599); batches whose header has no largest time are passed over (#25769, from franz-go).

Kafka: right in most of this, apart from times below 1970 (UNSUPPORTED_VERSION) and trimmed logs, where the
time of a deleted record can hide what is behind it. tests/oracle plays ten thousand lookups on both.

Here: the smallest offset at or after the log's start whose own time is at or after the one asked for.
"""

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker import asking
from tests.field.complaints import LARGEST, create, found, start_of, trim, write
from tests.oracle import codecs, recordset
from tests.oracle.recordset import Rec

CODECS = [codecs.NONE, codecs.GZIP, codecs.LZ4, codecs.ZSTD]
# Two batches; times out of order in each, and the second one's are not all later.
FIRST, SECOND = (100, 300, 200, 250), (150, 500, 400, 350)
TIMES = (*FIRST, *SECOND)


def put(connection, topic, times, codec=codecs.NONE, **lies):
    batch = recordset.batch([Rec(one, b"v") for one in times], codec, **lies)
    answer = asking.produce(connection, topic, batch)
    assert answer["error_code"] == 0, answer


def right(target, start=0, times=TIMES):
    """What must be answered."""
    there = ((n, t) for n, t in enumerate(times) if n >= start and t != -1 and t >= target)
    return next(there, (-1, -1))


class TestSkippedRecordsAndStartsOfBatches:
    """redpanda#2397, #3161, #6604, #6606."""

    @pytest.mark.parametrize("codec", CODECS)
    def test_the_record_itself_is_answered(self, connection, codec):
        topic = create(connection)
        for times in (FIRST, SECOND):
            put(connection, topic, times, codec)
        for target in range(0, 551, 25):
            assert found(connection, topic, target) == right(target), target

    def test_equal_times_are_found_from_the_first_one_on(self, connection):
        topic = create(connection, segment_bytes="200")
        for _ in range(4):
            put(connection, topic, (7, 7, 7))
        assert found(connection, topic, 7) == (0, 7)
        assert found(connection, topic, 8) == (-1, -1)


class TestNegativeTimes:
    """redpanda#4308: the client met an exception. docs/time.md has every client."""

    def test_a_client_that_lets_its_user_ask_gets_the_answer(self, broker, connection):
        topic = create(connection)
        put(connection, topic, (-900, -50))
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "l1"})
        try:
            (place,) = consumer.offsets_for_times([TopicPartition(topic, 0, -51)], timeout=60)
            assert (place.offset, place.error) == (1, None)
        finally:
            consumer.close()


class TestTrims:
    """redpanda#18281, #18599: after DeleteRecords consumers were stuck, or jumped to the end."""

    @pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP])
    def test_a_lookup_never_leads_before_the_start_nor_past_what_is_there(self, connection, codec):
        topic = create(connection)
        for times in (FIRST, SECOND):
            put(connection, topic, times, codec)
        for start in range(9):
            trim(connection, topic, start)
            assert start_of(connection, topic) == start
            for target in range(0, 551, 50):
                answer = found(connection, topic, target)
                assert answer == right(target, start), (start, target)
                if answer[0] >= 0:
                    assert asking.fetch(connection, topic, answer[0])["error_code"] == 0
            assert found(connection, topic, LARGEST)[0] == largest_from(start)

    def test_a_segment_whose_latest_record_was_trimmed_hides_nothing(self, connection):
        topic = create(connection, segment_bytes="200")
        for times in ((900, 10), (20, 30), (700, 800)):
            put(connection, topic, times)
        trim(connection, topic, 1)
        assert found(connection, topic, 600) == (4, 700)

    def test_a_consumer_goes_on_where_the_log_now_begins(self, broker, connection):
        topic = create(connection, segment_bytes="200")
        write(connection, topic, range(1000, 1020), size=20)
        settings = {"group.id": "l1", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
        try:
            (place,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1005)], timeout=60)
            assert place.offset == 5
            trim(connection, topic, 12)  # between its question and its first fetch
            consumer.assign([place])
            message = consumer.poll(60)
            assert message is not None
            assert (message.error(), message.offset()) == (None, 12)
        finally:
            consumer.close()


class TestHeadersWithoutALargestTime:
    """redpanda#25769: franz-go and others leave max_timestamp as it is made, 0 or -1."""

    @pytest.mark.parametrize("codec", [codecs.NONE, codecs.LZ4])
    @pytest.mark.parametrize("header", [-1, 0, 2**62])
    def test_it_is_computed_and_the_records_are_found(self, connection, codec, header):
        topic = create(connection)
        put(connection, topic, FIRST, codec, max_timestamp=header)
        put(connection, topic, SECOND, codec, max_timestamp=header)
        for target in range(0, 551, 25):
            assert found(connection, topic, target) == right(target)
        stored, _ = recordset.parse(asking.fetch(connection, topic)["records"])
        assert [one["max_timestamp"] for one in stored] == [max(FIRST), max(SECOND)]
        assert all(one["crc_ok"] for one in stored)


def largest_from(start):
    there = [(time, -offset) for offset, time in enumerate(TIMES) if offset >= start]
    return -max(there)[1] if there else -1


@pytest.mark.oracle
def test_kafka_answers_no_negative_time(kafka):
    topic = create(kafka)
    put(kafka, topic, (-900, -50))
    assert asking.list_offset(kafka, topic, -51)["error_code"] == 35


@pytest.mark.oracle
def test_in_kafka_a_trimmed_record_hides_what_is_behind_it(kafka):
    topic = create(kafka, segment_bytes="200")
    for times in ((900, 10), (20, 30), (700, 800)):
        put(kafka, topic, times)
    trim(kafka, topic, 1)
    assert found(kafka, topic, 600) == (-1, -1)
