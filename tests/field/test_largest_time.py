"""L3: the record with the largest time (ListOffsets -3, KIP-734) is another one.

What users see: Admin.listOffsets(OffsetSpec.maxTimestamp()) names a wrong offset for compressed batches,
for topics of LogAppendTime, and for records that were written in formats 0 and 1 (KAFKA-16310,
KAFKA-16341, KAFKA-16342), or forgets what is not local (KAFKA-17552).

Kafka: mended for the first three in 3.7 and 3.8; 3.9.1 still answers none, or a record without a time, where
all times lie before 1970, and an offset that is not there any more after DeleteRecords.

Here: the first record, from the log's start on, that has the largest time; none where no record has one.
"""

import pytest

from tests.broker import asking
from tests.field.complaints import LARGEST, create, found, trim
from tests.oracle import codecs, recordset
from tests.oracle.recordset import Rec

CODECS = [codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD]
SINCE = 7  # the first version of ListOffsets that knows -3
TIMES = ((100, 900, 300), (200, 900, 50), (-7, 800))


def put(connection, topic, times, codec, magic=2):
    recs = [Rec(one, b"v") for one in times]
    if magic == 2:
        data, version = recordset.batch(recs, codec), 9
    elif codec:
        data, version = recordset.wrapper(magic, recs, codec), 2
    else:
        data, version = recordset.plain_set(magic, recs), 2
    answer = asking.produce(connection, topic, data, version=version)
    assert answer["error_code"] == 0, answer
    return answer


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", [SINCE, 11])
def test_compressed(connection, codec, version):
    """KAFKA-16310: the last offset of the batch was answered."""
    topic = create(connection)
    for times in TIMES:
        put(connection, topic, times, codec)
    assert found(connection, topic, LARGEST, version=version) == (1, 900)


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time(broker, connection, codec):
    """KAFKA-16341: all records of a batch have one time, and the first of them is the answer."""
    topic = create(connection, message_timestamp_type="LogAppendTime")
    put(connection, topic, (9, 8, 7), codec)
    broker.clock.step(5)
    stamp = put(connection, topic, (6, 5), codec)["log_append_time_ms"]
    put(connection, topic, (4, 3), codec)
    assert found(connection, topic, LARGEST) == (3, stamp)


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP, codecs.LZ4])
@pytest.mark.parametrize(("magic", "stored"), [(1, "0.10.2"), (1, "3.0"), (2, "0.10.2")])
def test_format_1(connection, codec, magic, stored):
    """KAFKA-16342 and before: converted or as they came."""
    topic = create(connection, message_format_version=stored)
    for times in TIMES:
        put(connection, topic, times, codec, magic)
    assert found(connection, topic, LARGEST) == (1, 900)


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP])
def test_format_0_has_no_times(connection, codec):
    topic = create(connection, message_format_version="0.9.0")
    for times in TIMES:
        put(connection, topic, times, codec, 0)
    assert found(connection, topic, LARGEST) == (-1, -1)


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP])
def test_only_times_before_1970_and_records_without(connection, codec):
    topic = create(connection)
    for times in ((-1, -900), (-50, -1, -50), (-1, -1)):
        put(connection, topic, times, codec)
    assert found(connection, topic, LARGEST) == (2, -50)


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP])
def test_after_a_trim_it_is_one_that_is_there(connection, codec):
    topic = create(connection)
    for times in TIMES:
        put(connection, topic, times, codec)
    for start, answer in ((2, (4, 900)), (5, (7, 800)), (8, (-1, -1))):
        trim(connection, topic, start)
        assert found(connection, topic, LARGEST) == answer


@pytest.mark.oracle
class TestKafka:
    """3.9.1: what was mended, and what was not."""

    @pytest.mark.parametrize("codec", CODECS)
    def test_compressed_is_mended(self, kafka, codec):
        topic = create(kafka)
        for times in TIMES:
            put(kafka, topic, times, codec)
        assert found(kafka, topic, LARGEST) == (1, 900)

    def test_no_record_of_before_1970_is_the_largest(self, kafka):
        topic = create(kafka)
        put(kafka, topic, (-900, -50, -70), codecs.NONE)
        assert found(kafka, topic, LARGEST) != (1, -50)
        assert found(kafka, topic, LARGEST)[1] == -1

    def test_a_trimmed_record_is_the_largest(self, kafka):
        topic = create(kafka)
        for times in TIMES:
            put(kafka, topic, times, codecs.NONE)
        trim(kafka, topic, 5)
        assert found(kafka, topic, LARGEST)[0] < 5
