"""Logs that Apache Kafka 0.10.2.2 wrote: read right, and written again byte for byte.

Where the codec leaves the compressor a choice (snappy's and lz4's libraries differ), what is
unpacked is compared, and the header around it.
"""

from __future__ import annotations

import re

import pytest

from tests.protocol.records.samples import BASE_TIME, VECTORS, append, vector_record
from tidelog.protocol.records.batch import (
    build,
    find_offset,
    find_time,
    records,
    scan,
    summarize,
    verify,
)
from tidelog.protocol.records.convert import down_convert
from tidelog.protocol.records.layout import Record
from tidelog.protocol.records.legacy import wrapped

LOGS = sorted(path.name for path in (VECTORS / "kafka-0.10.2.2").glob("f-*"))
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3}


def segments(name):
    return [path.read_bytes() for path in sorted((VECTORS / "kafka-0.10.2.2" / name).glob("*.log"))]


def parts(name):
    version, kind, codec, producer = re.fullmatch(r"f-([\d.]+)-(\w+)-(\w+)-(c\d+)-0", name).groups()
    return 0 if version == "0.9.0.1" else 1, kind == "LogAppendTime", CODECS[codec], producer


def batches(name):
    """Yield (batch, its bytes, its records) over all segments."""
    for data in segments(name):
        for batch in scan(data):
            whole = data[batch.position : batch.position + batch.size]
            yield batch, whole, list(records(data, batch))


def test_the_captured_logs_are_here():
    assert len(LOGS) == 16


@pytest.mark.parametrize("name", LOGS)
def test_reads_what_kafka_wrote(name):
    magic, stamped, codec, producer = parts(name)
    manifest = (VECTORS / "kafka-0.10.2.2" / "manifest.txt").read_text()
    first, last = map(
        int, re.search(rf"^{name[:-2]} .*ts=(-?\d+),(-?\d+)", manifest, re.MULTILINE).groups()
    )
    read = []
    for data in segments(name):
        found = scan(data)
        assert sum(batch.size for batch in found) == len(data)
        for batch in found:
            verify(data, batch)
            assert (batch.magic, batch.compression) == (magic, codec)
            assert batch.is_log_append_time == stamped
        read += records(data)
    times = [record.timestamp for record in read]
    assert (times[0], times[-1]) == (first, last)
    expected = [vector_record(i) for i in range(200)]
    if producer == "c0901":
        expected = [record._replace(timestamp=t) for record, t in zip(expected, times, strict=True)]
        if not stamped:
            assert set(times) == {-1}
    assert read == expected


@pytest.mark.parametrize("name", LOGS)
def test_summaries_and_lookups(name):
    _, _, codec, _ = parts(name)
    for data in segments(name):
        for batch in scan(data):
            inside = list(records(data, batch))
            times = [r.timestamp for r in inside if r.timestamp != -1]
            summary = summarize(data, batch)
            assert summary == (
                len(inside),
                inside[0].offset,
                inside[-1].offset,
                max(times, default=None),
                inside[-1].offset,
                times[0] if times else None,
                len(times) < len(inside),
            )
            for record in inside:
                wanted = record.timestamp if times else 0
                hit = next((r[:2] for r in inside if times and r.timestamp >= wanted), None)
                assert find_time(data, batch, wanted) == hit
                assert find_time(data, batch, wanted, record.offset) == (
                    record[:2] if times else None
                )
                assert find_offset(data, record.offset) == batch.position
        assert find_offset(data, 10**9) == len(data)
    assert codec in range(4)


def appended_again(name):
    """What the producer sent, given to the same topic: each batch as Kafka stored it, and ours."""
    magic, stamped, codec, producer = parts(name)
    source = 1 if producer == "c0102" else 0
    for batch, whole, inside in batches(name):
        sent = [
            Record(i, vector_record(r.offset).timestamp if source else -1, r.key, r.value)
            for i, r in enumerate(inside)
        ]
        prepared, written = append(
            build(sent, magic=source, compression=codec),
            produce_version=2,
            magic=magic,
            first_offset=inside[0].offset,
            log_append_time=stamped,
            append_time_ms=batch.max_timestamp,
        )
        assert prepared.converted == (source != magic or (codec > 0 and magic == 0))
        yield batch, whole, written


@pytest.mark.parametrize("name", [name for name in LOGS if "-none-" in name or "-gzip-" in name])
def test_appends_the_same_bytes(name):
    for _, whole, written in appended_again(name):
        assert written == whole


@pytest.mark.parametrize("name", [name for name in LOGS if "-snappy-" in name or "-lz4-" in name])
def test_appends_the_same_content(name):
    for batch, whole, written in appended_again(name):
        (again,) = scan(written)
        ours, theirs = wrapped(written, again, 1 << 20), wrapped(whole, scan(whole)[0], 1 << 20)
        assert bytes(ours) == bytes(theirs)
        unlike = {"position", "size"}
        ours, theirs = again._asdict(), batch._asdict()
        assert {k: v for k, v in ours.items() if k not in unlike} == {
            k: v for k, v in theirs.items() if k not in unlike
        }


@pytest.mark.parametrize("name", [name for name in LOGS if "c0102" in name and "none" not in name])
def test_keeps_the_bytes_of_a_wrapper(name):
    """Kafka's own wrapper, numbered by a client again, is stored without recompression."""
    for batch, whole, inside in batches(name):
        sent = bytearray(whole)
        sent[0:8] = (len(inside) - 1).to_bytes(8, "big")
        prepared, written = append(
            bytes(sent), produce_version=2, magic=1, first_offset=inside[0].offset
        )
        assert written == whole
        assert not prepared.converted
        assert (
            prepared.batches[0].largest
            == batch.max_timestamp
            == BASE_TIME + 1000 * (inside[-1].offset)
        )


@pytest.mark.parametrize("name", LOGS)
def test_what_a_09_consumer_is_given(name):
    """Format 1 converted down equals what the 0.9.0.1-format topic of the same codec holds."""
    magic, _, codec, _ = parts(name)
    if magic == 0:
        return
    for data in segments(name):
        converted = down_convert([data], target_magic=0, fetch_offset=0)
        old = list(records(converted.data))
        assert {batch.magic for batch in scan(converted.data)} == {0}
        assert [r[2:4] for r in old] == [r[2:4] for r in records(data)]
        assert [r.offset for r in old] == [r.offset for r in records(data)]
        assert {r.timestamp for r in old} == {-1}
        assert converted.records == len(old)
        assert converted.next_offset == old[-1].offset + 1
        if codec < 2:
            again = [
                build(
                    [r._replace(timestamp=-1) for r in records(data, batch)],
                    magic=0,
                    compression=codec,
                )
                for batch in scan(data)
            ]
            assert converted.data == b"".join(again)
