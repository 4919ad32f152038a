"""Replication state in Fetch: a second tag of ours, there only where a follower asks."""

from __future__ import annotations

import struct

import pytest
from kafka.protocol import consumer

from tidelog.protocol.api.fetch import (
    API,
    APPEND_TIMES_TAG,
    NEWEST_MAGIC_TAG,
    REPLICATION_STATE_TAG,
    AdoptedBatches,
    AppendTimeCorrection,
    EpochStart,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicationState,
    SegmentAppendTimes,
)
from tidelog.protocol.message import codec

FLEXIBLE = range(12, API.max_version + 1)
NO_TIME = -(2**63)
STATE = ReplicationState(
    epochs=[EpochStart(epoch=3, start_offset=258)],
    last_append_time_ms=1_767_225_600_000,
    max_event_time_ms=-7,
    compacted_offset=40,
    back_offset=50,
    mark_epoch=3,
    mark_number=2,
    corrections=[
        AppendTimeCorrection(
            start_offset=1, end_offset=2, since_ms=3, until_ms=4, shift_ms=5, to_ms=6
        )
    ],
    adopted=[AdoptedBatches(end_offset=9, time_ms=10)],
)
BODY = b"".join(
    (
        b"\x02" + struct.pack(">iq", 3, 258) + b"\0",
        struct.pack(">qqqqii", 1_767_225_600_000, -7, 40, 50, 3, 2),
        b"\x02" + struct.pack(">6q", 1, 2, 3, 4, 5, 6) + b"\0",
        b"\x02" + struct.pack(">qq", 9, 10) + b"\0",
        struct.pack(">qq", NO_TIME, NO_TIME),
        b"\0",
    )
)
EMPTY = b"".join(
    (
        b"\x01",
        struct.pack(">qqqqii", NO_TIME, -1, -1, 0, 0, 0),
        b"\x01\x01",
        struct.pack(">qq", NO_TIME, NO_TIME),
        b"\0",
    )
)


def request(*, asks, **more):
    wanted = FetchPartition(partition=0, fetch_offset=3, partition_max_bytes=9)
    return FetchRequest(
        topics=[FetchTopic(partitions=[wanted])], with_replication_state=asks, **more
    )


def answer(state, **more):
    data = PartitionData(
        last_stable_offset=-1, log_start_offset=-1, records=b"abc", replication_state=state, **more
    )
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])


def uvarint(number):
    return bytes([number & 127 | 128, number >> 7]) if number > 127 else bytes([number])


def test_the_tags_are_the_next_ones_of_ours():
    assert REPLICATION_STATE_TAG == 29802 == APPEND_TIMES_TAG + 1
    assert NEWEST_MAGIC_TAG == 29803
    for cls in (FetchRequest, PartitionData):
        others = {field.tag for field in cls.declared_fields} - {None}
        assert max(others - {APPEND_TIMES_TAG, REPLICATION_STATE_TAG, NEWEST_MAGIC_TAG}) < 1000


@pytest.mark.parametrize("version", FLEXIBLE)
def test_a_follower_of_an_older_format_says_so_in_a_tag(version):
    any_format = codec(FetchRequest, version).encode(request(asks=True, newest_magic=2))
    assert any_format == codec(FetchRequest, version).encode(request(asks=True))
    old = codec(FetchRequest, version).encode(request(asks=True, newest_magic=0))
    before = bytes.fromhex("01 eae801 01 01")
    assert old == any_format[: -len(before)] + bytes.fromhex("02 eae801 01 01 ebe801 01 00")
    assert codec(FetchRequest, version).decode(old)[0].newest_magic == 0
    assert codec(FetchRequest, version).decode(any_format)[0].newest_magic == 2


@pytest.mark.parametrize("version", FLEXIBLE)
def test_a_follower_that_asks_adds_one_tag(version):
    plain = codec(FetchRequest, version).encode(request(asks=False))
    asking = codec(FetchRequest, version).encode(request(asks=True))
    both = codec(FetchRequest, version).encode(request(asks=True, with_append_times=True))
    assert plain.endswith(b"\0")
    assert asking == plain[:-1] + bytes.fromhex("01 eae801 01 01")
    assert both == plain[:-1] + bytes.fromhex("02 e9e801 01 01 eae801 01 01")
    for encoded, asks in ((plain, False), (asking, True), (both, True)):
        decoded, end = codec(FetchRequest, version).decode(encoded)
        assert (decoded.with_replication_state, end) == (asks, len(encoded))


@pytest.mark.parametrize("version", FLEXIBLE)
@pytest.mark.parametrize(("state", "body"), [(STATE, BODY), (ReplicationState(), EMPTY)])
def test_its_answer_has_one_tag_more(version, state, body):
    end = b"abc\0\0\0"  # the tags of the partition, the topic and the answer
    plain = codec(FetchResponse, version).encode(answer(None))
    told = codec(FetchResponse, version).encode(answer(state))
    assert plain.endswith(end)
    tag = bytes.fromhex("01 eae801") + uvarint(len(body)) + body
    assert told == plain.removesuffix(end) + b"abc" + tag + b"\0\0"
    times = [SegmentAppendTimes(base_offset=258, entries=b"")]
    for each in (
        plain,
        told,
        codec(FetchResponse, version).encode(answer(state, append_times=times)),
    ):
        decoded, at = codec(FetchResponse, version).decode(each)
        assert at == len(each)
        assert codec(FetchResponse, version).encode(decoded) == each


@pytest.mark.parametrize("version", range(12))
def test_versions_without_tags_have_no_place_for_it(version):
    for cls, with_it, without in (
        (FetchRequest, request(asks=True), request(asks=False)),
        (FetchResponse, answer(STATE), answer(None)),
    ):
        assert codec(cls, version).encode(with_it) == codec(cls, version).encode(without)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_who_does_not_know_the_tag_reads_the_rest(version):
    schema = consumer.FetchResponse
    if version > schema.max_version:
        pytest.skip(f"kafka-python knows Fetch up to v{schema.max_version}")
    theirs = schema[version].decode(codec(FetchResponse, version).encode(answer(STATE)))
    assert theirs.responses[0].partitions[0].records == b"abc"
