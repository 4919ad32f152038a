"""Bytes that are known from elsewhere, byte for byte.

The messages were written by Apache Kafka's own classes (kafka-clients 3.9.1, `ApiMessage.write`) from the
values shown; the answer to ApiVersions v99 was sent by an Apache Kafka 3.9.1 broker.
"""

from __future__ import annotations

import uuid

import pytest

from tidelog.protocol.api.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from tidelog.protocol.api.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from tidelog.protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.api.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.protocol.message import codec, response_header

TOPIC_ID = uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10")


def api_versions(**extra: object) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)], throttle_time_ms=7, **extra
    )


FEATURES = {
    "finalized_features_epoch": 5,
    "finalized_features": [FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=1)],
}
EARLIEST = ListOffsetsRequest(
    replica_id=-1,
    topics=[
        ListOffsetsTopic(
            name="t", partitions=[ListOffsetsPartition(partition_index=3, timestamp=-2)]
        )
    ],
)
TWO_SEGMENTS = ListOffsetsResponse(
    topics=[
        ListOffsetsTopicResponse(
            name="t",
            partitions=[ListOffsetsPartitionResponse(partition_index=3, old_style_offsets=[9, 4])],
        )
    ]
)
DIVERGED = FetchResponse(
    responses=[
        FetchableTopicResponse(
            topic_id=TOPIC_ID,
            partitions=[
                PartitionData(
                    partition_index=1,
                    high_watermark=8,
                    last_stable_offset=8,
                    log_start_offset=2,
                    aborted_transactions=None,
                    diverging_epoch=EpochEndOffset(epoch=4, end_offset=6),
                    records=b"",
                )
            ],
        )
    ]
)


def refused(**extra: object) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="t",
                partition_responses=[
                    PartitionProduceResponse(
                        index=2,
                        error_code=32,
                        base_offset=-1,
                        record_errors=[
                            BatchIndexAndErrorMessage(
                                batch_index=1, batch_index_error_message="late"
                            )
                        ],
                        error_message="bad",
                        **extra,
                    )
                ],
            )
        ]
    )


LEADER = {"current_leader": LeaderIdAndEpoch(leader_id=1, leader_epoch=9)}
BY_ID = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=TOPIC_ID)])

GOLDEN = [
    (api_versions(), 0, "0000 00000001 0012 0000 0004"),
    (api_versions(), 1, "0000 00000001 0012 0000 0004 00000007"),
    (
        api_versions(**FEATURES),
        3,
        "0000 02 0012 0000 0004 00 00000007 02 01 08 0000000000000005 02 08 02 0266 0002 0001 00",
    ),
    (EARLIEST, 0, "ffffffff 00000001 0001 74 00000001 00000003 fffffffffffffffe 00000001"),
    (EARLIEST, 1, "ffffffff 00000001 0001 74 00000001 00000003 fffffffffffffffe"),
    (EARLIEST, 4, "ffffffff 00 00000001 0001 74 00000001 00000003 ffffffff fffffffffffffffe"),
    (EARLIEST, 9, "ffffffff 00 02 0274 02 00000003 ffffffff fffffffffffffffe 00 00 00"),
    (
        TWO_SEGMENTS,
        0,
        "00000001 0001 74 00000001 00000003 0000 00000002 0000000000000009 0000000000000004",
    ),
    (MetadataRequest(topics=None), 1, "ffffffff"),
    (BY_ID, 12, "02 0102030405060708090a0b0c0d0e0f10 00 00 01 00 00"),
    (
        DIVERGED,
        13,
        (
            "00000000 0000 00000000 02 0102030405060708090a0b0c0d0e0f10 02 00000001 0000"
            "0000000000000008 0000000000000008 0000000000000002 00 ffffffff 01"
            "01 00 0d 00000004 0000000000000006 00 00 00"
        ),
    ),
    (refused(), 0, "00000001 0001 74 00000001 00000002 0020 ffffffffffffffff"),
    (
        refused(),
        8,
        (
            "00000001 0001 74 00000001 00000002 0020 ffffffffffffffff ffffffffffffffff ffffffffffffffff"
            "00000001 00000001 0004 6c617465 0003 626164 00000000"
        ),
    ),
    (
        refused(**LEADER),
        10,
        (
            "02 0274 02 00000002 0020 ffffffffffffffff ffffffffffffffff ffffffffffffffff"
            "02 00000001 05 6c617465 00 04 626164 01 00 09 00000001 00000009 00 00 00000000 00"
        ),
    ),
]


@pytest.mark.parametrize(("message", "version", "golden"), GOLDEN)
def test_writes_what_kafka_writes_and_reads_it_back(message, version, golden):
    golden = bytes.fromhex(golden)
    made = codec(type(message), version)
    assert made.encode(message) == golden
    read, end = made.decode(golden)
    assert end == len(golden)
    assert made.encode(read) == golden


def test_the_answer_to_an_unknown_version_of_api_versions():
    """The header has version 0, the body has version 0 and says 35 and what would be served."""
    answer = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
    )
    frame = response_header(18, 99, 0x11) + codec(ApiVersionsResponse, 0).encode(answer)
    assert frame == bytes.fromhex("00000011 0023 00000001 0012 0000 0004")
