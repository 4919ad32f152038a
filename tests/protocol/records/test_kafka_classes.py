"""What Apache Kafka 3.9.1's own classes do with a record set, we do, byte for byte.

Every difference has a name here; one that has none fails. They are: `compressor` (another library
chooses other matches: what is unpacked must be equal), `inner times` (rebuilding a LogAppendTime
wrapper, 3.9.1 stamps the messages inside too; KIP-32 and 0.10.2.2 stamp the wrapper alone, and so
do we), `index` (Kafka counts record errors from each message of a plain set, we from its start), `offsets`
(3.9.1 refuses a wrapper whose offset is not its last message's; we take it, as 0.10.2.2 does).
"""

from __future__ import annotations

import gzip
from collections import Counter

import pytest

from tests.protocol.records.samples import NOW, VECTORS, append
from tidelog.protocol.errors import BrokerError
from tidelog.protocol.records.batch import records, scan
from tidelog.protocol.records.compression import decompress
from tidelog.protocol.records.convert import down_convert
from tidelog.protocol.records.layout import INT64_MAX, INT64_MIN, V2_HEADER_SIZE
from tidelog.protocol.records.legacy import wrapped

LINES = gzip.decompress((VECTORS / "kafka-3.9.1" / "record_sets.tsv.gz").read_bytes()).decode()
CASES = [line.split("\t") for line in LINES.splitlines()]


def unpacked(data):
    """A set's batches with what they hold unpacked, and nothing that depends on how well."""
    out = []
    for batch in scan(data):
        if batch.magic < 2:
            inner = wrapped(data, batch, 1 << 20) if batch.attributes & 7 else data
        else:
            body = data[batch.position + V2_HEADER_SIZE : batch.position + batch.size]
            inner = decompress(batch.attributes & 7, body, 2)
        out.append((batch._replace(size=0, position=0), bytes(inner)))
    return out


def difference(ours, theirs, stamped):
    """Name what sets two record sets apart: '' where nothing does, None for the unexpected."""
    if ours == theirs:
        return ""
    left, right = unpacked(ours), unpacked(theirs)
    if [batch for batch, _ in left] != [batch for batch, _ in right]:
        return None
    codecs = {batch.attributes & 7 for batch, _ in left}
    if left == right and 0 not in codecs:
        return "compressor"
    same_records = list(records(ours)) == list(records(theirs))
    if same_records and stamped and len(left) == 1 and left[0][0].magic == 1 and codecs != {0}:
        return "inner times"
    return None


def bound(text, sign):
    distance = int(text)
    if distance == INT64_MAX:
        return INT64_MIN if sign < 0 else INT64_MAX
    return NOW + sign * distance


def produce(case):
    _, name, source, magic, codec, stamped, before, after, expected, extra = case
    data = bytes.fromhex(source)
    try:
        prepared, written = append(
            data,
            magic=int(magic),
            compression=int(codec),
            log_append_time=stamped == "1",
            min_timestamp=bound(before, -1),
            max_timestamp=bound(after, 1),
            first_offset=1000,
            leader_epoch=7,
        )
    except BrokerError as error:
        if expected != f"!{type(error).__name__}Exception":
            return None
        guilty = ",".join(str(record.batch_index) for record in error.record_errors)
        if guilty == extra:
            return ""
        plain_messages = data[16] < 2 and not data[17] & 7
        return "index" if plain_messages and extra == "0" else None
    if expected == "!InvalidRecordException" and name.startswith("offset"):
        return "offsets"
    assert not expected.startswith("!"), expected
    largest = [batch.largest for batch in prepared.batches if batch.largest is not None]
    if magic != "0":
        assert max(largest, default=-1) == int(extra)
    return difference(written, bytes.fromhex(expected), stamped == "1")


def fetch(case):
    _, _, source, magic, offset, expected = case
    converted = down_convert(
        [bytes.fromhex(source)], target_magic=int(magic), fetch_offset=int(offset)
    )
    assert converted.next_offset == 205
    return difference(converted.data, bytes.fromhex(expected), stamped=False)


@pytest.mark.parametrize(("verb", "judge"), [("produce", produce), ("fetch", fetch)])
def test_agrees_with_kafka(verb, judge):
    seen = Counter()
    for case in CASES:
        if case[0] != verb:
            continue
        name = judge(case)
        assert name is not None, case
        seen[name] += 1
    alike = seen.pop("") + seen.pop("compressor")
    if verb == "produce":
        assert (alike, seen) == (240, {"inner times": 16, "index": 3, "offsets": 2})
    else:
        assert (alike, seen) == (48, {})
