"""The door to the schemas: declarations, constructors, codecs and headers."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import tidelog.protocol.api
from tidelog.protocol import schema, wire
from tidelog.protocol.api.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.protocol.api.list_groups import ListGroupsRequest
from tidelog.protocol.api.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tidelog.protocol.api.offset_fetch import OffsetFetchRequest
from tidelog.protocol.api.produce import (
    API,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidelog.protocol.message import (
    DecodeError,
    EncodeError,
    api_of,
    codec,
    known_apis,
    read_request_header,
    response_header,
    served_apis,
)
from tidelog.protocol.schema import Message, since
from tidelog.protocol.wire import read_uvarint, write_uvarint


class TestApis:
    def test_the_table_names_what_the_modules_declare(self):
        for entry in known_apis():
            api = api_of(entry.key)
            assert (api.key, api.name) == (entry.key, entry.name)
            assert (
                api.request.__module__
                == api.response.__module__
                == f"tidelog.protocol.api.{entry.module}"
            )

    def test_an_unknown_key_has_no_api(self):
        assert api_of(4) is None
        assert api_of(-1) is None

    @pytest.mark.parametrize(
        ("asked", "imported"),
        [
            ("", []),
            ("m.api_of(18)", ["tidelog.protocol.api.api_versions"]),
            ("m.known_apis()", [f"tidelog.protocol.api.{api.module}" for api in known_apis()]),
        ],
    )
    def test_a_declaration_is_imported_when_it_is_asked_for_and_makes_no_codec(
        self, asked, imported
    ):
        code = (
            "import sys; before = set(sys.modules)\n"
            f"import tidelog.protocol.message as m; {asked}\n"
            "new = set(sys.modules) - before\n"
            "print(*sorted(n for n in new if n.startswith('tidelog.protocol.api.') or n in "
            "('inspect', 'dataclasses', 'tidelog.protocol.decoder', 'tidelog.protocol.encoder')))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == sorted(imported)

    def test_every_file_of_the_folder_is_an_api(self):
        folder = Path(tidelog.protocol.api.__file__).parent
        files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        assert {api.module for api in known_apis()} == files - {
            name for name in files if name.endswith("_single")
        }

    def test_a_version_served_is_one_that_is_declared(self):
        for api in served_apis():
            lowest, highest = api.served
            assert api.min_version <= lowest <= highest <= api.max_version


class TestMessages:
    def test_everything_has_a_default(self):
        request = FetchRequest()
        assert (request.max_bytes, request.session_epoch, request.cluster_id) == (
            2**31 - 1,
            -1,
            None,
        )
        assert request.topics == []

    def test_lists_are_not_shared(self):
        FetchRequest().topics.append(1)
        assert FetchRequest().topics == []

    def test_a_wrong_name_is_refused(self):
        with pytest.raises(TypeError):
            FetchRequest(max_wait=1)
        with pytest.raises(AttributeError):
            FetchRequest().max_wait = 1

    def test_compares_and_shows_its_fields(self):
        assert FetchPartition(partition=1) == FetchPartition(partition=1)
        assert FetchPartition(partition=1) != FetchPartition(partition=2)
        assert FetchPartition() != LeaderIdAndEpoch()
        assert repr(FetchPartition(partition=1)) == "FetchPartition(partition=1)"

    @pytest.mark.parametrize(
        ("annotation", "declared"),
        [
            ("dict[str, int]", since(0)),
            ("LeaderIdAndEpoch | None", since(0)),
            ("LeaderIdAndEpoch", since(0, tag=0)),
            ("list[Int32]", since(0, default=None)),
        ],
    )
    def test_a_declaration_that_makes_no_sense_is_refused(self, annotation, declared):
        with pytest.raises(TypeError):
            type(Message)("Odd", (Message,), {"__annotations__": {"x": annotation}, "x": declared})

    def test_a_struct_nobody_declared_is_refused(self):
        field = FetchRequest.declared_fields[0]._replace(kind="Nobody")
        with pytest.raises(TypeError, match="Nobody"):
            schema.struct_of(FetchRequest, field)


class TestCodecs:
    def test_a_version_outside_the_range_is_refused(self):
        with pytest.raises(ValueError, match="Produce has the versions 0 to 13, not 14"):
            codec(ProduceRequest, 14)

    def test_decoding_gives_defaults_for_what_the_version_lacks(self):
        encoded = codec(FetchRequest, 0).encode(FetchRequest(max_wait_ms=5))
        assert codec(FetchRequest, 0).decode(encoded)[0] == FetchRequest(max_wait_ms=5)

    def test_an_ignorable_field_is_dropped(self):
        response = ProduceResponse(throttle_time_ms=9)
        assert codec(ProduceResponse, 0).encode(response) == bytes(4)

    @pytest.mark.parametrize(
        ("message", "version"),
        [
            (ProduceRequest(transactional_id="t"), 2),
            (ListGroupsRequest(states_filter=["Stable"]), 3),
            (FetchRequest(replica_id=1), 15),
            (
                ProduceResponse(
                    responses=[
                        TopicProduceResponse(
                            partition_responses=[
                                PartitionProduceResponse(current_leader=LeaderIdAndEpoch())
                            ]
                        )
                    ]
                ),
                9,
            ),
        ],
    )
    def test_any_other_field_must_have_a_place(self, message, version):
        with pytest.raises(EncodeError, match="has no place for"):
            codec(type(message), version).encode(message)

    @pytest.mark.parametrize(
        ("message", "version"),
        [
            (MetadataRequest(topics=None), 0),
            (MetadataResponse(topics=[MetadataResponseTopic(name=None)]), 11),
            (MetadataResponse(controller_id=2**31), 9),
            (MetadataResponse(cluster_id="\ud800"), 9),
            (MetadataResponse(topics=[3]), 9),
            (MetadataResponse(cluster_id="x" * 40_000), 8),
        ],
    )
    def test_a_value_that_does_not_fit_is_an_encode_error(self, message, version):
        with pytest.raises(EncodeError, match=f"v{version}"):
            codec(type(message), version).encode(message)

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_decodes_any_buffer_at_any_offset(self, kind):
        request = MetadataRequest(topics=[])
        encoded = codec(MetadataRequest, 9).encode(request)
        got, end = codec(MetadataRequest, 9).decode(kind(b"head" + encoded + b"tail"), 4)
        assert (got, end) == (request, 4 + len(encoded))

    @pytest.mark.parametrize("version", [2, 9])
    def test_records_are_views_of_the_frame(self, version):
        data = [PartitionProduceData(index=1, records=b"abc"), PartitionProduceData(records=None)]
        request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])
        frame = bytearray(codec(ProduceRequest, version).encode(request))
        decoded, _ = codec(ProduceRequest, version).decode(frame)
        first, second = decoded.topic_data[0].partition_data
        assert isinstance(first.records, memoryview)
        assert first.records.obj is frame
        assert first.records == b"abc"
        assert second.records is None

    @pytest.mark.parametrize("version", [4, 12])
    def test_records_are_handed_on_and_never_copied(self, version):
        first, second, third = bytes(70_000), memoryview(b"x" * 300), bytearray(b"yy")
        partitions = [
            PartitionData(partition_index=0, records=[first, second]),
            PartitionData(partition_index=1, records=None),
            PartitionData(partition_index=2, records=third),
            PartitionData(partition_index=3, records=[]),
        ]
        response = FetchResponse(
            responses=[FetchableTopicResponse(topic="t", partitions=partitions)]
        )
        made = codec(FetchResponse, version)
        parts = made.encode_parts(response)
        assert [part for part in parts if part is first or part is second or part is third] == [
            first,
            second,
            third,
        ]
        assert type(parts[0]) is bytes
        assert len(parts) == 6
        read, _ = made.decode(b"".join(parts))
        got = [partition.records for partition in read.responses[0].partitions]
        assert got == [first + second.tobytes(), None, b"yy", b""]

    @pytest.mark.parametrize("message", [MetadataRequest(topics=None), ListGroupsRequest()])
    def test_parts_are_never_empty(self, message):
        assert len(codec(type(message), 1).encode_parts(message)) == 1

    def test_unknown_tags_are_passed_over(self):
        """A newer client may send tags of which this broker has never heard (KIP-482)."""
        plain = codec(MetadataRequest, 9).encode(MetadataRequest(topics=None))
        tagged = plain[:-1] + bytes([2, 0, 3]) + b"abc" + bytes([200, 1, 1]) + b"z"
        assert codec(MetadataRequest, 9).decode(tagged) == (
            MetadataRequest(topics=None),
            len(tagged),
        )

    def test_unknown_tags_beside_known_ones_are_passed_over(self):
        request = FetchRequest(cluster_id="c")
        encoded = codec(FetchRequest, 12).encode(request)
        assert encoded.endswith(bytes.fromhex("01 00 02 0263"))
        with_unknown = encoded[:-5] + bytes.fromhex("02 00 02 0263 63 03 010203")
        assert codec(FetchRequest, 12).decode(with_unknown) == (request, len(with_unknown))

    @pytest.mark.parametrize(
        ("version", "frame", "says"),
        [
            (0, "", "end too early"),
            (0, "ffffffff", "topics is null"),
            (0, "fffffffe", "topics has the length -2"),
            (0, "7fffffff", "topics claims 2147483647 but only 0 bytes remain"),
            (0, "00000001 0005 6162", "name claims 5 but only 2 bytes remain"),
            (0, "00000001 ffff", "name is null"),
            (0, "00000001 0001 ff", "not UTF-8"),
            (9, "8080808080", "longer than 5 bytes"),
            (9, "ffffffffff01", "longer than 5 bytes"),
            (9, "00 00 00 00 01 00 05 00", "tagged field of 5 bytes"),
        ],
    )
    def test_a_broken_frame_says_what_is_wrong(self, version, frame, says):
        with pytest.raises(DecodeError, match=f"MetadataRequest v{version}: .*{says}"):
            codec(MetadataRequest, version).decode(bytes.fromhex(frame))

    @pytest.mark.parametrize("size", [1, 3, 9])
    def test_a_tag_that_lies_about_its_size_is_refused(self, size):
        """cluster_id takes two bytes: a tag must be filled exactly."""
        encoded = codec(FetchRequest, 12).encode(FetchRequest(cluster_id="c"))
        lying = encoded[:-3] + bytes([size]) + encoded[-2:]
        with pytest.raises(DecodeError, match="tagged field"):
            codec(FetchRequest, 12).decode(lying + bytes(2 if size == 3 else 0))

    @pytest.mark.parametrize("version", [5, 6])
    def test_a_string_is_as_long_in_flexible_versions_as_in_others(self, version):
        """What came in by one of those could not be told by the others."""
        longest = "ü" * (wire.STRING_MAX // 2) + "x"
        request = OffsetFetchRequest(group_id=longest, topics=None)
        encoded = codec(OffsetFetchRequest, version).encode(request)
        assert codec(OffsetFetchRequest, version).decode(encoded)[0].group_id == longest
        lying = wire.write_uvarint(wire.STRING_MAX + 2) + longest.encode() + b"y\0\0"
        if version >= 6:
            with pytest.raises(DecodeError, match="group_id has 32768 bytes"):
                codec(OffsetFetchRequest, version).decode(lying)

    def test_topic_ids_that_a_client_invents_do_not_pile_up(self):
        for number in range(5000):
            assert wire.read_uuid(number.to_bytes(16, "big")) == uuid.UUID(int=number)
        assert len(wire._uuids) <= 4096  # nothing public says how many are kept


class TestVarints:
    @pytest.mark.parametrize("value", [0, 1, 127, 128, 2**14 - 1, 2**14, 2**21, 2**28, 2**32 - 1])
    def test_read_what_was_written(self, value):
        encoded = write_uvarint(value)
        assert len(encoded) == max(1, -(-value.bit_length() // 7))
        assert read_uvarint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))

    def test_a_varint_may_be_longer_than_needed(self):
        assert read_uvarint(bytes([0x85, 0x80, 0x00]), 0) == (5, 3)

    def test_negative_lengths_cannot_be_written(self):
        with pytest.raises(EncodeError):
            write_uvarint(-1)


class TestHeaders:
    """Headers written by kafka-clients 3.9.1 where marked so."""

    def test_version_2_from_kafka(self):
        frame = bytes.fromhex("0012 0003 00000005 0001 63 00") + b"body"
        assert read_request_header(frame) == (18, 3, 5, "c", 12, None)

    def test_version_1_from_kafka(self):
        assert read_request_header(bytes.fromhex("0003 0000 00000005 ffff")) == (
            3,
            0,
            5,
            None,
            10,
            None,
        )

    def test_tags_are_passed_over(self):
        frame = bytes.fromhex("0012 0003 00000005 0000 01 07 02 aabb") + b"body"
        assert read_request_header(frame).body_offset == len(frame) - 4

    def test_the_client_id_is_never_compact(self):
        assert (
            read_request_header(bytes.fromhex("0000 0009 00000001 0002 6869 00")).client_id == "hi"
        )

    def test_a_future_version_of_api_versions_is_read_as_version_2(self):
        assert read_request_header(bytes.fromhex("0012 0063 00000001 0000 00")).body_offset == 11

    def test_an_unknown_api_is_read_as_version_1(self):
        assert read_request_header(bytes.fromhex("00c8 0063 00000001 0000 00")).body_offset == 10

    @pytest.mark.parametrize(
        "frame",
        [
            "",
            "0012 0003 00000005",
            "0012 0003 00000005 0005 63",
            "0012 0003 00000005 fffe",
            "0012 0003 00000005 0001 ff 00",
            "0012 0003 00000005 0001 63",
            "0012 0003 00000005 0001 63 01 00 09 00",
        ],
    )
    def test_a_broken_header_is_a_decode_error(self, frame):
        with pytest.raises(DecodeError, match="request header"):
            read_request_header(bytes.fromhex(frame))

    @pytest.mark.parametrize(
        ("key", "version", "header"),
        [
            (API.key, 8, "00000007"),
            (API.key, 9, "0000000700"),
            (18, 3, "00000007"),
            (200, 99, "00000007"),
        ],
    )
    def test_response_headers(self, key, version, header):
        assert response_header(key, version, 7) == bytes.fromhex(header)
