"""ListOffsets: ends, starts, times, the largest time, and which version knows which of them."""

from __future__ import annotations

import pytest

from tests.broker.asking import (
    all_versions,
    batch_of,
    create,
    list_offset,
    new_name,
    new_topic,
    produce,
)
from tests.oracle import recordset
from tests.oracle.recordset import Rec

UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION, INVALID_REQUEST = 3, 35, 42
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
KNOWN_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING: 11,
}
NEWER = list(all_versions("ListOffsets"))[1:]
# offsets 0..7: times out of order, negative ones and records without any
TIMES = [1_000, 3_000, -1, 2_000, -50_000, 5_000, 4_000, -7]


@pytest.fixture(scope="module")
def topic(broker):
    name = new_name()
    with broker.connect() as connection:
        create(connection, name)
        for time in TIMES:
            assert produce(connection, name, recordset.batch([Rec(time)]))["error_code"] == 0
    return name


def ask(connection, topic, timestamp, version=7, **more):
    got = list_offset(connection, topic, timestamp, version=version, **more)
    return got["error_code"], got["offset"], got["timestamp"]


class TestSentinels:
    @pytest.mark.parametrize(
        ("sentinel", "found"),
        [
            (LATEST, (8, -1)),
            (EARLIEST, (0, -1)),
            (MAX_TIMESTAMP, (5, 5_000)),
            (EARLIEST_LOCAL, (0, -1)),
            (LATEST_TIERED, (-1, -1)),
            (EARLIEST_PENDING, (-1, -1)),
        ],
    )
    def test_each_from_its_version_on(self, connection, topic, sentinel, found):
        for version in NEWER:
            got = ask(connection, topic, sentinel, version)
            if version < KNOWN_SINCE[sentinel]:
                assert got == (UNSUPPORTED_VERSION, -1, -1)
            else:
                assert got == (0, *found)

    def test_isolation(self, connection, topic):
        for isolation_level in [0, 1]:
            got = ask(connection, topic, LATEST, 2, isolation_level=isolation_level)
            assert got == (0, 8, -1)

    def test_a_partition_without_times(self, connection):
        name = new_topic(connection)
        for end in (0, 3):
            assert ask(connection, name, LATEST) == (0, end, -1)
            assert ask(connection, name, EARLIEST) == (0, 0, -1)
            for time in (MAX_TIMESTAMP, 0, -1_000):
                assert ask(connection, name, time) == (0, -1, -1)
            for _ in range(3):
                produce(connection, name, recordset.batch([Rec(-1)]))


class TestTimes:
    def test_the_smallest_offset_at_or_after(self, connection, topic):
        for time, offset in zip(
            (0, 999, 1_000, 1_001, 3_000, 3_001, 5_000, 5_001),
            (0, 0, 0, 1, 1, 5, 5, -1),
            strict=True,
        ):
            found = TIMES[offset] if offset >= 0 else -1
            for version in NEWER:
                assert ask(connection, topic, time, version) == (0, offset, found)

    def test_on_a_log_append_time_topic(self, connection):
        name = new_topic(connection, message_timestamp_type="LogAppendTime")
        told = produce(connection, name, batch_of("x", "y"))["log_append_time_ms"]
        assert ask(connection, name, told) == (0, 0, told)
        assert ask(connection, name, told + 1) == (0, -1, -1)
        assert ask(connection, name, 0) == (0, 0, told)


class TestVersion0:
    """A list of offsets, descending: the end, then segment by segment."""

    def ask(self, connection, topic, timestamp, max_num_offsets=100):
        got = list_offset(connection, topic, timestamp, version=0, max_num_offsets=max_num_offsets)
        return got["error_code"], got["old_style_offsets"]

    def test_ends(self, connection, topic):
        assert self.ask(connection, topic, LATEST) == (0, [8, 0])
        assert self.ask(connection, topic, LATEST, 1) == (0, [8])
        assert self.ask(connection, topic, EARLIEST) == (0, [0])
        assert self.ask(connection, topic, LATEST, 0)[1] == []

    def test_newer_sentinels_are_not_known(self, connection, topic):
        for sentinel in [MAX_TIMESTAMP, EARLIEST_LOCAL, -5, -6]:
            assert self.ask(connection, topic, sentinel) == (UNSUPPORTED_VERSION, [])

    def test_unknown(self, connection):
        assert self.ask(connection, "nowhere", LATEST) == (UNKNOWN_TOPIC_OR_PARTITION, [])


class TestRefusals:
    def test_unknown_partitions(self, connection, topic):
        for version in NEWER:
            for name, partition in (("nowhere", 0), (topic, 7), (topic, -1)):
                got = ask(connection, name, LATEST, version, partition=partition)
                assert got == (UNKNOWN_TOPIC_OR_PARTITION, -1, -1)

    def test_a_partition_named_twice(self, connection, topic):
        wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
        answer = connection.ask(
            "ListOffsets",
            5,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": topic, "partitions": [wanted, wanted]}],
        )
        found = [each["error_code"] for each in answer["topics"][0]["partitions"]]
        assert found == [INVALID_REQUEST] * 2

    @pytest.mark.parametrize("version", [4, 7, 11])
    def test_leader_epochs(self, connection, topic, version):
        for epoch, code in ((0, 0), (3, UNKNOWN_LEADER_EPOCH), (-5, FENCED_LEADER_EPOCH)):
            got = list_offset(connection, topic, LATEST, version=version, epoch=epoch)
            assert (got["error_code"], got["leader_epoch"]) == (code, 0 if code == 0 else -1)
