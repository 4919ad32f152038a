"""Records of __consumer_offsets: known bytes, every version read, and Apache Kafka's own classes as judge."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.oracle.apache_kafka import available, fetch, find_java
from tidelog.protocol import group_records as records
from tidelog.protocol.group_records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.protocol.message import Codec, DecodeError, EncodeError

JUDGE = Path(__file__).with_name("GroupRecordsJudge.java")
OFFSET = OffsetCommitValue(offset=5, leader_epoch=2, metadata="nöte", commit_timestamp=-7)
EXPIRING = OffsetCommitValue(offset=2**62, commit_timestamp=9, expire_timestamp=10)
MEMBER = MemberMetadata(
    member_id="m",
    group_instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout=3,
    session_timeout=4,
    subscription=b"\0s",
    assignment=b"a",
)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m",
    current_state_timestamp=12,
    members=[MEMBER, MEMBER],
)
EMPTY = GroupMetadataValue(protocol_type="connect", generation=1)


def test_known_bytes():
    assert records.offset_key("g", "t", 3).hex() == "0001000167000174" + "00000003"
    assert records.group_key("g").hex() == "0002000167"
    assert records.offset_value(OFFSET).hex() == (
        "000300000000000000050000000200056ec3b67465fffffffffffffff9"
    )
    assert records.offset_value(EXPIRING).hex() == (
        "0001400000000000000000000000000000000009000000000000000a"
    )


@pytest.mark.parametrize("metadata", ["", "nöte", "😀" * 5_000, "x" * 32_767])
def test_what_nearly_every_commit_writes_is_what_the_schemas_say(metadata):
    for offset, epoch, commit_ms in ((0, -1, 0), (2**63 - 1, 2**31 - 1, -(2**63)), (-1, 0, -1)):
        value = OffsetCommitValue(
            offset=offset, leader_epoch=epoch, metadata=metadata, commit_timestamp=commit_ms
        )
        written = records.lasting_offset_value(offset, epoch, metadata, commit_ms)
        assert written == records.offset_value(value)
    for group, topic, partition in (("", "t", 0), (metadata, "ö", 2**31 - 1), ("g", metadata, -1)):
        schema = Codec(OffsetCommitKey, 1, flexible=False)
        key = OffsetCommitKey(group=group, topic=topic, partition=partition)
        assert records.offset_key(group, topic, partition) == b"\0\1" + schema.encode(key)


@pytest.mark.parametrize("text", ["x" * 32_768, "x" * 70_000])
def test_what_no_record_can_hold_is_an_error_of_the_schemas(text):
    with pytest.raises(EncodeError):
        records.offset_key(text, "t", 0)
    with pytest.raises(EncodeError):
        records.offset_key("g", text, 0)
    with pytest.raises(EncodeError):
        records.offset_key("g", "t", 2**31)
    with pytest.raises(EncodeError):
        records.lasting_offset_value(1, -1, text, 0)
    with pytest.raises(EncodeError):
        records.lasting_offset_value(2**63, -1, "", 0)


def test_what_is_written_is_read():
    key = records.read_key(records.offset_key("g", "t", 3))
    assert (key.group, key.topic, key.partition) == ("g", "t", 3)
    assert records.read_key(records.group_key("g")).group == "g"
    assert records.read_key(b"\0\3abc") is None, "a kind of a later Kafka"
    for value in (OFFSET, EXPIRING):
        assert records.read_offset(records.offset_value(value)) == value
    for group in (GROUP, EMPTY):
        assert records.read_group(records.group_value(group)) == group


@pytest.mark.parametrize("version", range(5))
def test_every_version_is_read(version):
    head = version.to_bytes(2, "big")
    plain = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=1)
    for value, read in ((plain, records.read_offset), (EMPTY, records.read_group)):
        written = head + Codec(type(value), version, flexible=version >= 4).encode(value)
        assert read(written) == value


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\5", b"\0\3", b"\0\3\0\0"])
def test_what_is_none_of_these(data):
    with pytest.raises(DecodeError):
        records.read_offset(data)
    with pytest.raises(DecodeError):
        records.read_group(data)


@pytest.mark.parametrize(
    ("group", "partitions", "index"), [("grp", 50, 29), ("", 50, 0), ("my-group", 50, 12)]
)
def test_where_a_group_is_kept(group, partitions, index):
    assert records.partition_of(group, partitions) == index


@pytest.mark.oracle
def test_kafka_reads_and_writes_the_same():
    able = available("3.9.1")
    if not able:
        pytest.skip(able.reason)
    groups = ["grp", "", "my-group", "ä", "\U0001f30a", "x" * 300]
    asked = [("offset-key", records.offset_key("g", "t", 3)), ("group-key", records.group_key("ö"))]
    asked += [("offset", records.offset_value(value)) for value in (OFFSET, EXPIRING)]
    asked += [("group", records.group_value(value)) for value in (GROUP, EMPTY)]
    asked += [("hash", group.encode()) for group in groups]
    done = subprocess.run(
        [find_java(), "-cp", ":".join(map(str, fetch("3.9.1").rglob("*.jar"))), str(JUDGE)],
        input="".join(f"{kind} {data.hex()}\n" for kind, data in asked),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wanted = [data.hex() for kind, data in asked if kind != "hash"]
    wanted += [str(records.partition_of(group, 50)) for group in groups]
    assert done.stdout.splitlines() == wanted
