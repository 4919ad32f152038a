"""Append times and replication state in Fetch: tags of ours, there only where somebody asks."""

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
ENTRIES = struct.pack(">qiqi", 1_767_225_600_000, 0, NO_TIME, 7)
TIMES = [SegmentAppendTimes(base_offset=258, entries=ENTRIES)]
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
# What is asked for, the value in the answer, its tag, and its bytes.
ANSWERS = [
    ({"append_times": []}, "e9e801", b"\x01"),
    (
        {"append_times": TIMES},
        "e9e801",
        b"\x02" + struct.pack(">q", 258) + b"\x19" + ENTRIES + b"\0",
    ),
    (
        {"replication_state": ReplicationState()},
        "eae801",
        b"\x01"
        + struct.pack(">qqqqii", NO_TIME, -1, -1, 0, 0, 0)
        + b"\x01\x01"
        + struct.pack(">qq", NO_TIME, NO_TIME)
        + b"\0",
    ),
    (
        {"replication_state": STATE},
        "eae801",
        b"".join(
            (
                b"\x02" + struct.pack(">iq", 3, 258) + b"\0",
                struct.pack(">qqqqii", 1_767_225_600_000, -7, 40, 50, 3, 2),
                b"\x02" + struct.pack(">6q", 1, 2, 3, 4, 5, 6) + b"\0",
                b"\x02" + struct.pack(">qq", 9, 10) + b"\0",
                struct.pack(">qq", NO_TIME, NO_TIME),
                b"\0",
            )
        ),
    ),
]
# What a request asks for, and the tags that it has then.
ASKED = [
    ({}, "00"),
    ({"with_append_times": True}, "01 e9e801 01 01"),
    ({"with_replication_state": True}, "01 eae801 01 01"),
    ({"with_append_times": True, "with_replication_state": True}, "02 e9e801 01 01 eae801 01 01"),
    ({"with_replication_state": True, "newest_magic": 2}, "01 eae801 01 01"),
    ({"with_replication_state": True, "newest_magic": 0}, "02 eae801 01 01 ebe801 01 00"),
]


def request(**asked):
    wanted = FetchPartition(partition=0, fetch_offset=3, partition_max_bytes=9)
    return FetchRequest(topics=[FetchTopic(partitions=[wanted])], **asked)


def answer(**told):
    data = PartitionData(last_stable_offset=-1, log_start_offset=-1, records=b"abc", **told)
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])


def uvarint(number):
    return bytes([number & 127 | 128, number >> 7]) if number > 127 else bytes([number])


def test_the_tags_are_far_from_those_of_kafka():
    assert bytes([APPEND_TIMES_TAG >> 8, APPEND_TIMES_TAG & 255]) == b"ti"
    assert (REPLICATION_STATE_TAG, NEWEST_MAGIC_TAG) == (29802, 29803)
    for cls in (FetchRequest, PartitionData):
        others = {field.tag for field in cls.declared_fields} - {None}
        assert max(others - {APPEND_TIMES_TAG, REPLICATION_STATE_TAG, NEWEST_MAGIC_TAG}) < 1000


@pytest.mark.parametrize("version", FLEXIBLE)
@pytest.mark.parametrize(("asked", "tags"), ASKED)
def test_who_asks_adds_a_tag_for_each(version, asked, tags):
    plain = codec(FetchRequest, version).encode(request())
    assert plain.endswith(b"\0")
    encoded = codec(FetchRequest, version).encode(request(**asked))
    assert encoded == plain[:-1] + bytes.fromhex(tags)
    decoded, end = codec(FetchRequest, version).decode(encoded)
    assert (decoded, end) == (request(**asked), len(encoded))


@pytest.mark.parametrize("version", FLEXIBLE)
@pytest.mark.parametrize(("told", "tag", "body"), ANSWERS)
def test_who_is_told_finds_one_tag_more(version, told, tag, body):
    end = b"abc\0\0\0"  # the tags of the partition, the topic and the answer
    plain = codec(FetchResponse, version).encode(answer())
    assert plain.endswith(end)
    encoded = codec(FetchResponse, version).encode(answer(**told))
    written = b"\x01" + bytes.fromhex(tag) + uvarint(len(body)) + body
    assert encoded == plain.removesuffix(end) + b"abc" + written + b"\0\0"
    both = answer(append_times=TIMES, replication_state=STATE)
    for each in (plain, encoded, codec(FetchResponse, version).encode(both)):
        decoded, at = codec(FetchResponse, version).decode(each)
        assert at == len(each)
        assert codec(FetchResponse, version).encode(decoded) == each


@pytest.mark.parametrize("version", range(12))
def test_versions_without_tags_have_no_place_for_them(version):
    asking = request(with_append_times=True, with_replication_state=True)
    told = answer(append_times=TIMES, replication_state=STATE)
    for cls, with_them, without in (
        (FetchRequest, asking, request()),
        (FetchResponse, told, answer()),
    ):
        assert codec(cls, version).encode(with_them) == codec(cls, version).encode(without)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_who_does_not_know_the_tags_reads_the_rest(version):
    schema = consumer.FetchResponse
    if version > schema.max_version:
        pytest.skip(f"kafka-python knows Fetch up to v{schema.max_version}")
    told = answer(append_times=TIMES, replication_state=STATE)
    theirs = schema[version].decode(codec(FetchResponse, version).encode(told))
    assert theirs.responses[0].partitions[0].records == b"abc"
