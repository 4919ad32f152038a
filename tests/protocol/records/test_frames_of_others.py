"""No compressed set is stored that Kafka's Java classes cannot read, however it is framed.

What they refuse or misread is written again, or refused with CORRUPT_MESSAGE; the records stay.
"""

import subprocess
import zlib
from pathlib import Path

import pytest

from tests.oracle.apache_kafka import available, fetch, find_java
from tests.oracle.codecs import GZIP, LZ4, NAMES, SNAPPY, ZSTD
from tests.protocol.records import framings
from tests.protocol.records.samples import append
from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import Record, build, pack_v2_header, records, scan
from tidelog.protocol.records.framing import is_readable_by_java
from tidelog.protocol.records.layout import V2_HEADER_SIZE
from tidelog.protocol.records.legacy import packed_value, put_message

JUDGE = Path(__file__).with_name("RecordsJudge.java")
VERSIONS = ("3.9.1", "4.1.1")
RECORDS = [Record(i, 5, b"k%d" % i, b"value %d " % i * 9_000) for i in range(3)]


def sets():
    """Every framing of the records: codec, format, its name, and a record set."""
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        for magic in (2,) if codec == ZSTD else (2, 1, 0):
            data = build(RECORDS, magic=magic)[V2_HEADER_SIZE if magic == 2 else 0 :]
            for name, packed in framings.framings(codec, data, magic):
                yield codec, magic, name, set_of(codec, magic, packed)


def set_of(codec, magic, packed):
    last = len(RECORDS) - 1
    if magic < 2:
        data = bytearray()
        put_message(data, magic, last, codec, 5, None, packed)
        return bytes(data)
    return (
        pack_v2_header(
            packed,
            base_offset=0,
            last_offset=last,
            leader_epoch=0,
            attributes=codec,
            base_timestamp=5,
            max_timestamp=5,
            producer_id=7,
            producer_epoch=1,
            base_sequence=4,
            count=len(RECORDS),
        )
        + packed
    )


CASES = [
    pytest.param(*each, id=f"{NAMES[each[0]]}-v{each[1]}-{each[2].replace(' ', '-')}")
    for each in sets()
]


def packed_of(data):
    (batch,) = scan(data)
    return bytes(data[V2_HEADER_SIZE:] if batch.magic == 2 else packed_value(data, batch))


@pytest.mark.parametrize(("codec", "magic", "name", "data"), CASES)
def test_what_java_cannot_read_is_written_again_or_refused(codec, magic, name, data):
    if name in framings.REFUSED[codec]:
        with pytest.raises(CorruptMessage):
            append(data, magic=magic)
        return
    _, written = append(data, magic=magic, max_message_bytes=2 << 20)
    (batch,) = scan(written)
    assert (batch.magic, batch.attributes & 7) == (magic, codec)
    assert [each[2:4] for each in records(written)] == [each[2:4] for each in RECORDS]
    if name in framings.MISREAD[codec]:
        assert packed_of(written) != packed_of(data)
    elif codec != GZIP and magic:  # several members of gzip are always written again
        assert packed_of(written) == packed_of(data)
    if magic == 2:
        assert (batch.producer_id, batch.base_sequence) == (7, 4)


@pytest.mark.parametrize(("codec", "magic", "name", "data"), CASES)
def test_a_stored_set_that_java_cannot_read_is_known(codec, magic, name, data):
    (batch,) = scan(data)
    # Whoever asks has the segment in memory, and what follows the batch.
    is_readable = is_readable_by_java(b"before" + data + data, batch._replace(position=6))
    if name in framings.MISREAD[codec]:
        assert not is_readable
    elif name not in framings.REFUSED[codec] and "member" not in name:
        assert is_readable


@pytest.mark.parametrize("magic", [1, 2])
def test_a_wrong_header_checksum_of_lz4_is_refused(magic):
    """Format 0 alone has another one (KAFKA-3160), and is written again."""
    data = build(RECORDS, magic=magic)[V2_HEADER_SIZE if magic == 2 else 0 :]
    plain = dict(framings.framings(LZ4, data))["plain"]
    wrong = plain[:6] + bytes([plain[6] ^ 1]) + plain[7:]
    assert append(set_of(LZ4, magic, plain), magic=magic)
    with pytest.raises(CorruptMessage):
        append(set_of(LZ4, magic, wrong), magic=magic)


@pytest.mark.oracle
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_refuses_what_came_and_reads_what_is_stored(version):
    able = available(version)
    if not able:
        pytest.skip(able.reason)
    cases, lines = [], []
    for codec, magic, name, data in sets():
        if name not in framings.REFUSED[codec]:
            written = append(data, magic=magic, max_message_bytes=2 << 20)[1]
            cases.append((NAMES[codec], magic, name, name in framings.MISREAD[codec]))
            lines += [data.hex(), written.hex()]
    done = subprocess.run(
        [find_java(), "-cp", ":".join(map(str, fetch(version).rglob("*.jar"))), str(JUDGE)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines)
    whole = zlib.crc32(b"".join(each.key + each.value for each in RECORDS))
    good = f"{len(RECORDS)} {whole}"
    came, stored = answers[::2], answers[1::2]
    assert [case for case, each in zip(cases, stored, strict=True) if each != good] == []
    # And it does not read all that came, or the cases show nothing.
    refused = {(case[0], case[2]) for case, each in zip(cases, came, strict=True) if each != good}
    known = {(case[0], case[2]) for case in cases if case[3]}
    assert refused <= known | {("gzip", "empty members between")}
    assert {codec for codec, _ in refused} >= {"gzip", "lz4", "zstd"}
