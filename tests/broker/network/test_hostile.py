"""What one client sends to harm the others: it is refused early, or answered in a bounded way."""

from __future__ import annotations

import struct
import threading

import pytest

from tests.broker.conftest import of_module
from tests.broker.raw import frame, header
from tests.broker.subject import eventually
from tests.oracle import wire
from tidelog.protocol.message import served_apis

MIB = 1 << 20
INVALID_REGULAR_EXPRESSION = 128
UNKNOWN_TOPIC_OR_PARTITION = 3
BROKER = 4


def closed(broker, *each: bytes) -> None:
    """Send each; demand that its connection is closed, and that it is counted as excessive."""
    counted = broker.metric("tidelog_excessive_requests_total")
    for data in each:
        with broker.connect() as connection:
            connection.send(data)
            assert connection.receive() is None
    counted += len(each)
    eventually(lambda: broker.metric("tidelog_excessive_requests_total") == counted)


def test_a_frame_is_refused_by_its_first_six_bytes(broker):
    """Its body never comes."""
    sizes = {api.key: api.request_bytes for api in served_apis() if api.request_bytes}
    closed(broker, *(struct.pack(">ih", most + 1, key) for key, most in sizes.items()))


def test_produce_alone_may_have_more(broker):
    assert [api.name for api in served_apis() if api.request_bytes is None] == ["Produce"]
    assert all(api.request_bytes <= 8 * MIB for api in served_apis() if api.request_bytes)


def test_a_header_with_many_tags_is_refused(broker):
    closed(broker, frame(header(18, 3) + b"\x80\x01" + b"\x64\x00" * 128))


def test_a_header_with_a_long_tag_is_refused(broker):
    closed(broker, frame(header(1, 12) + b"\x01\x64\x81\x80\x04" + bytes(65_537)))


def test_more_elements_than_a_request_may_have_are_refused(broker):
    names = struct.pack(">i", 50_001) + b"\0\1a" * 50_001
    closed(broker, frame(header(3, 0) + names))


def test_tags_count_as_elements(broker):
    """A struct of an array may have a few tags; not all of them together."""
    topic = b"\x02a\x7f" + b"\x64\x00" * 127
    topics = b"\xd1\x0f" + topic * 2_000
    closed(broker, frame(header(3, 9) + b"\0" + topics + b"\0\0\0\0"))


def test_as_many_as_are_allowed_are_answered(broker):
    names = struct.pack(">i", 20_000) + b"".join(b"\0\6%06d" % each for each in range(20_000))
    with broker.connect() as connection:
        connection.send(frame(header(15, 0) + names))
        assert len(connection.receive()) > 20_000 * 20


def test_a_resource_that_is_named_often_is_described_once(broker):
    with broker.connect() as connection:
        resource = {"resource_type": BROKER, "resource_name": "", "configuration_keys": None}
        answer = connection.ask("DescribeConfigs", 1, resources=[resource] * 1_000)
        assert len(answer["results"]) == 1


def test_what_is_described_at_length_is_described_once(broker):
    """A group may have thousands of members or offsets, and a transaction as many partitions."""
    asked = [
        ("DescribeGroups", 2, {"groups": ["g"] * 100}, "groups"),
        ("DescribeTransactions", 0, {"transactional_ids": ["x"] * 100}, "transaction_states"),
        ("OffsetFetch", 8, {"groups": [{"group_id": "g", "topics": None}] * 100}, "groups"),
    ]
    with broker.connect() as connection:
        for api, version, fields, answered in asked:
            assert len(connection.ask(api, version, **fields)[answered]) == 1


def test_offsets_that_are_named_are_answered_each_time(broker):
    groups = [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}] * 3
    with broker.connect() as connection:
        assert len(connection.ask("OffsetFetch", 8, groups=groups)["groups"]) == 3


def test_a_member_with_more_protocols_than_anybody_has_is_refused(broker):
    protocols = b"".join(b"\0\3%03d\0\0\0\0" % each for each in range(101))
    member = b"\0\1g" + struct.pack(">i", 10_000) + b"\0\0\0\1c" + struct.pack(">i", 101)
    closed(broker, frame(header(11, 0) + member + protocols))


@pytest.mark.slow
def test_a_pattern_that_takes_years_is_given_up_and_disturbs_nobody(broker):
    filters = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    with broker.connect() as connection, broker.connect() as neighbour:
        connection.ask(
            "InitProducerId", 1, transactional_id="a" * 60, transaction_timeout_ms=60_000
        )
        asked = wire.encode_request(
            "ListTransactions", 2, {**filters, "transactional_id_pattern": "(a|a)*b"}
        )
        told: list[bytes] = []
        asking = threading.Thread(
            target=lambda: told.append(connection.ask_raw(asked[0], 2, asked[2], flexible=asked[1]))
        )
        asking.start()
        while asking.is_alive():
            assert neighbour.ask("ApiVersions", 0)["error_code"] == 0
            asking.join(0.05)
        answer = wire.decode_answer("ListTransactions", 2, told[0])
        assert answer["error_code"] == INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("pattern", ["a" * 1_001, "(" * 900 + ")" * 900, "(" * 400 + ")" * 400])
def test_a_pattern_that_is_long_or_deep(connection, pattern):
    answer = connection.ask(
        "ListTransactions",
        2,
        state_filters=[],
        producer_id_filters=[],
        duration_filter=-1,
        transactional_id_pattern=pattern,
    )
    assert answer["error_code"] in (0, INVALID_REGULAR_EXPRESSION)


# A broker that makes few topics at a time, and finds every request slow.
strict = of_module({"auto.create.topics.per.request": 3, "request.slow.log.ms": 0})


def test_one_metadata_creates_a_bounded_number_of_topics(strict):
    names = [{"name": f"t{number}"} for number in range(8)]
    with strict.connect() as connection:
        for created in (3, 6, 8):
            topics = connection.ask("Metadata", 1, topics=names)["topics"]
            codes = [topic["error_code"] for topic in topics]
            assert codes == [0] * created + [UNKNOWN_TOPIC_OR_PARTITION] * (8 - created)
    assert eventually(lambda: strict.lines("request was slow", "api=Metadata"))


def test_all_topics_are_described_anew_after_a_change(strict):
    with strict.connect() as connection:
        known = len(connection.ask("Metadata", 1, topics=None)["topics"])
        for number in range(3):
            connection.ask("Metadata", 1, topics=[{"name": f"new{number}"}])
            for version in (1, 1, 9):
                found = connection.ask("Metadata", version, topics=None)["topics"]
                assert len(found) == known + number + 1
