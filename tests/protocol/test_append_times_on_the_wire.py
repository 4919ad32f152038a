"""Append times in Fetch: a tag of ours in requests and answers, there only where somebody asks."""

from __future__ import annotations

import struct

import pytest
from kafka.protocol import consumer

from tidelog.protocol.api.fetch import (
    API,
    APPEND_TIMES_TAG,
    NEWEST_MAGIC_TAG,
    REPLICATION_STATE_TAG,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    SegmentAppendTimes,
)
from tidelog.protocol.message import codec

FLEXIBLE = range(12, API.max_version + 1)
ENTRIES = struct.pack(">qiqi", 1_767_225_600_000, 0, -(2**63), 7)


def request(*, asks):
    wanted = FetchPartition(partition=0, fetch_offset=3, partition_max_bytes=9)
    return FetchRequest(topics=[FetchTopic(partitions=[wanted])], with_append_times=asks)


def answer(append_times):
    data = PartitionData(
        last_stable_offset=-1, log_start_offset=-1, records=b"abc", append_times=append_times
    )
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])


def test_the_tag_is_far_from_those_of_kafka():
    assert bytes([APPEND_TIMES_TAG >> 8, APPEND_TIMES_TAG & 255]) == b"ti"
    for cls in (FetchRequest, PartitionData):
        others = {field.tag for field in cls.declared_fields} - {None}
        assert max(others - {APPEND_TIMES_TAG, NEWEST_MAGIC_TAG, REPLICATION_STATE_TAG}) < 1000


@pytest.mark.parametrize("version", FLEXIBLE)
def test_who_asks_adds_one_tag(version):
    plain = codec(FetchRequest, version).encode(request(asks=False))
    asking = codec(FetchRequest, version).encode(request(asks=True))
    assert plain.endswith(b"\0")
    assert asking == plain[:-1] + bytes.fromhex("01 e9e801 01 01")
    for encoded, asks in ((plain, False), (asking, True)):
        decoded, end = codec(FetchRequest, version).decode(encoded)
        assert (decoded.with_append_times, end) == (asks, len(encoded))


@pytest.mark.parametrize("version", FLEXIBLE)
def test_who_is_told_finds_one_tag_more(version):
    plain = codec(FetchResponse, version).encode(answer(None))
    nothing = codec(FetchResponse, version).encode(answer([]))
    told = codec(FetchResponse, version).encode(
        answer([SegmentAppendTimes(base_offset=258, entries=ENTRIES)])
    )
    end = b"abc\0\0\0"  # the tags of the partition, the topic and the answer
    assert plain.endswith(end)
    assert nothing == plain.removesuffix(end) + b"abc" + bytes.fromhex("01 e9e801 01 01") + b"\0\0"
    field = b"\x02" + struct.pack(">q", 258) + b"\x19" + ENTRIES + b"\0"
    tag = bytes.fromhex("01 e9e801") + bytes([len(field)]) + field
    assert told == plain.removesuffix(end) + b"abc" + tag + b"\0\0"
    for encoded in (plain, nothing, told):
        decoded, at = codec(FetchResponse, version).decode(encoded)
        assert at == len(encoded)
        assert codec(FetchResponse, version).encode(decoded) == encoded


@pytest.mark.parametrize("version", range(12))
def test_versions_without_tags_have_no_place_for_it(version):
    for cls, with_it, without in (
        (FetchRequest, request(asks=True), request(asks=False)),
        (FetchResponse, answer([SegmentAppendTimes(entries=ENTRIES)]), answer(None)),
    ):
        assert codec(cls, version).encode(with_it) == codec(cls, version).encode(without)


@pytest.mark.parametrize("version", FLEXIBLE)
def test_who_does_not_know_the_tag_reads_the_rest(version):
    schema = consumer.FetchResponse
    if version > schema.max_version:
        pytest.skip(f"kafka-python knows Fetch up to v{schema.max_version}")
    told = codec(FetchResponse, version).encode(
        answer([SegmentAppendTimes(base_offset=258, entries=ENTRIES)])
    )
    theirs = schema[version].decode(told)
    assert theirs.responses[0].partitions[0].records == b"abc"
