"""The oracle's own tools, tried without any broker: a comparison that cannot fail proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from tests.oracle import codecs, comparison, recordset, wire
from tests.oracle.differences import REASONS, Reason
from tests.oracle.recordset import Rec, batch, plain_set, wrapper
from tests.oracle.scenario import Case, fetch, produce, walk

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "kafka-0.10.2.2"
RECS = [Rec(1_700_000_000_000 + i, b"value-%d" % i, b"key", (("h", b"1"),)) for i in range(5)]


def case(**tags):
    return Case("a case", "create", (produce(2, b""), fetch(2)), tags)


def answer(**fields):
    return {"responses": [{"name": "create", "partition_responses": [{"error_code": 0, **fields}]}]}


def test_equal_answers_make_no_difference():
    verdict = comparison.judge([case()], [[answer(), answer()]], [[answer(), answer()]], REASONS)
    assert (verdict.unexplained, verdict.equal_steps) == ([], 2)


@pytest.mark.parametrize(
    ("kafka", "tidelog"),
    [
        (answer(), answer(error_code=3)),
        (answer(base_offset=0), answer(base_offset=1)),
        (answer(), answer(extra=1)),
        (answer(), "<connection closed>"),
        (answer(value=0), answer(value=False)),
        (answer(value=[1, 2]), answer(value=[1])),
        (answer(value=None), answer(value=b"")),
    ],
)
def test_a_difference_without_a_reason_is_unexplained(kafka, tidelog):
    verdict = comparison.judge([case()], [[kafka, kafka]], [[kafka, tidelog]], REASONS)
    assert len(verdict.unexplained) == 1
    assert "fetch v2" in verdict.complaint()


def test_only_a_reason_that_spoils_the_case_covers_what_follows():
    kafka, tidelog = [answer(), answer()], [answer(error_code=7), answer(error_code=8)]
    reason = Reason("seven", "here", "a test", lambda d: d.tidelog == 7)
    verdict = comparison.judge([case()], [kafka], [tidelog], [reason])
    assert (verdict.explained["seven"], len(verdict.unexplained)) == (1, 1)
    verdict = comparison.judge(
        [case()], [kafka], [tidelog], [reason._replace(spoils_the_case=True)]
    )
    assert (verdict.followed["seven"], verdict.unexplained) == (1, [])


def test_every_reason_is_told_once_and_completely():
    assert len({reason.name for reason in REASONS}) == len(REASONS)
    assert all(reason.source and reason.why for reason in REASONS)


def fetched(*sizes, rest, codec=2):
    """A limited answer with batches of these sizes and the beginning of one more."""
    batches = [{"attributes": codec, "size": size} for size in sizes]
    partition = {"error_code": 0, "records": {"batches": batches, "rest": rest}}
    return {"responses": [{"name": "append-any", "partitions": [partition]}]}


@pytest.mark.parametrize(
    ("kafka", "tidelog", "left"),
    [
        (fetched(9, rest=140), fetched(9, rest=111), 0),
        (fetched(9, rest=140), fetched(9, 7, rest=3), 0),
        (fetched(9, 7, rest=3), fetched(9, rest=140), 0),
        (fetched(9, rest=140), fetched(9, rest=100), 1),
        (fetched(9, rest=140), fetched(9, 7, rest=40), 2),
        (fetched(9, rest=140), fetched(8, 7, rest=3), 2),
        (fetched(9, rest=140), fetched(9, 7, 7, rest=3), 2),
        (fetched(9, rest=0), fetched(9, 7, rest=3), 2),
        (fetched(9, rest=140, codec=0), fetched(9, 7, rest=3, codec=0), 2),
    ],
)
def test_a_limited_fetch_is_cut_a_little_elsewhere_where_codecs_differ(kafka, tidelog, left):
    limited = Case("a case", "append-any", (fetch(13, 11, max_bytes=531),), {"random": True})
    verdict = comparison.judge([limited], [[kafka]], [[tidelog]], REASONS)
    assert len(verdict.unexplained) == left


def test_walk_finds_the_leaf():
    left = {"a": [{"b": 1}, {"b": 2}]}
    assert list(walk(left, {"a": [{"b": 1}, {"b": 3}]})) == [("a[1].b", 2, 3)]


# What kafka-python reads and writes without extras: no snappy, no lz4 in format 0.
READABLE = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 3), (2, 0), (2, 1), (2, 3), (2, 4)]


@pytest.mark.parametrize(("magic", "codec"), READABLE)
def test_kafka_python_reads_what_was_built(magic, codec):
    if magic == 2:
        data = batch(RECS, codec)
    else:
        data = wrapper(magic, RECS, codec) if codec else plain_set(magic, RECS)
    reads = list(MemoryRecords(data))
    assert all(read.validate_crc() for read in reads)
    found = [one for read in reads for one in read]
    assert [(one.key, one.value) for one in found] == [(one.key, one.value) for one in RECS]
    if magic:
        assert [one.timestamp for one in found] == [one.timestamp for one in RECS]
    if magic == 2:
        assert [tuple(one.headers) for one in found] == [one.headers for one in RECS]


@pytest.mark.parametrize(("magic", "codec"), READABLE)
def test_the_parser_reads_what_kafka_python_wrote(magic, codec):
    builder = MemoryRecordsBuilder(magic, codec, 10_000)
    for one in RECS:
        builder.append(one.timestamp, one.key, one.value, [])
    builder.close()
    found, rest = recordset.parse(bytes(builder.buffer()))
    assert (rest, all(one["crc_ok"] for one in found)) == (0, True)
    records = [each for one in found for each in one.get("records") or one.get("inner") or [one]]
    assert [(one["key"], one["value"]) for one in records] == [(one.key, one.value) for one in RECS]


@pytest.mark.parametrize("directory", sorted(VECTORS.glob("f-*")), ids=lambda path: path.name)
def test_the_parser_reads_what_kafka_0_10_wrote(directory):
    """200 records of every codec, formats 0 and 1, with the lz4 header checksum of their format."""
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    found, rest = recordset.parse(data)
    assert (rest, all(one["crc_ok"] for one in found)) == (0, True)
    records = [each for one in found for each in one.get("inner", [one])]
    assert [one["key"] for one in records] == [b"k%d" % i for i in range(200)]


def test_lies_are_told():
    assert not recordset.parse(batch(RECS, bad_crc=True))[0][0]["crc_ok"]
    assert not recordset.parse(plain_set(1, RECS, bad_crc=True))[0][0]["crc_ok"]
    assert recordset.parse(batch(RECS, max_timestamp=5))[0][0]["max_timestamp"] == 5
    assert recordset.parse(batch(RECS)[:-1]) == ([], len(batch(RECS)) - 1)


@pytest.mark.parametrize("magic", [0, 1])
def test_lz4_headers_carry_the_checksum_of_their_format(magic):
    frame = codecs.compress(codecs.LZ4, b"data" * 50, magic)
    assert codecs.decompress(codecs.LZ4, frame, magic) == b"data" * 50
    with pytest.raises(ValueError, match="header checksum"):
        codecs.decompress(codecs.LZ4, frame, 1 - magic)


def test_an_answer_with_bytes_too_many_is_an_error():
    body = bytes.fromhex("0000 00000001 0012 0000 0004")
    assert wire.decode_answer("ApiVersions", 0, body)["api_keys"][0]["api_key"] == 18
    with pytest.raises(wire.WireError, match="1 bytes too many"):
        wire.decode_answer("ApiVersions", 0, body + b"\0")
    with pytest.raises(wire.WireError, match="cannot be read"):
        wire.decode_answer("ApiVersions", 0, body[:-1])
