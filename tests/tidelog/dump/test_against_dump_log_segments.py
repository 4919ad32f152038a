"""`tidelog dump` and Apache Kafka's DumpLogSegments say the same of the same segments.

Every format, codec and kind of time, in one mixed log of ours and in the logs of a 0.10.2.2
broker: positions, sizes, offsets, times, producers and records, and which batch is broken.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
from pathlib import Path

import pytest

from tests.oracle.apache_kafka import available, fetch, find_java
from tidelog.cli.parser import main
from tidelog.protocol.records.batch import Record, build

VERSION = "3.9.1"
VECTORS = Path(__file__).parents[2] / "vectors" / "kafka-0.10.2.2"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BATCH = re.compile(r"^(baseOffset|offset): ")
FIELD = re.compile(r"(\w+): (\S+)")
TIME = re.compile(r"(CreateTime|LogAppendTime|NoTimestampType): (-?\d+)")

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def kafka():
    """A function that runs DumpLogSegments; the lines it prints."""
    able = available(VERSION)
    if not able:
        pytest.skip(able.reason)
    class_path = ":".join(map(str, sorted(fetch(VERSION).rglob("*.jar"))))

    def run(paths):
        options = ["--deep-iteration", "--print-data-log", "--files", ",".join(map(str, paths))]
        done = subprocess.run(
            [find_java(), "-Xmx256m", "-cp", class_path, "kafka.tools.DumpLogSegments", *options],
            capture_output=True,
            text=True,
            check=True,
            timeout=240,
        )
        return done.stdout.splitlines()

    return run


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A segment in which formats, codecs and kinds of time follow one another."""
    path = tmp_path_factory.mktemp("mixed") / f"{0:020d}.log"
    parts, offset = [], 0
    for i in range(120):
        magic = (2, 2, 1, 0, 2, 1)[i % 6]
        codec = (0, 1, 0, 3, 4, 2, 0)[i % 7]
        codec = codec if codec < 4 or magic == 2 else 1
        records = [
            Record(
                offset + n,
                -1 if i % 11 == 5 else -50_000 + 900 * i - n,
                None if i % 5 == 0 else b"k%d" % n,
                b"v" * n,
                ((b"h", b"x"),) if magic == 2 and n else (),
            )
            for n in range(1 + i % 4)
        ]
        more = {}
        if magic == 2:
            more = {"leader_epoch": i // 10}
            if i % 3 == 0:
                more |= {"producer_id": 1 << 40, "producer_epoch": 3, "base_sequence": offset}
                more |= {"is_transactional": i % 2 == 0}
        if magic and i % 8 == 1:
            more |= {"timestamp_type": 1, "log_append_time": 7000 + i}
        parts.append(build(records, magic=magic, compression=codec, **more))
        offset += len(records)
    path.write_bytes(b"".join(parts))
    return path


def said_by_kafka(lines):
    """(batches, records) as tuples."""
    batches, records = [], []
    for line in lines:
        kind, time = TIME.search(line).groups() if TIME.search(line) else (None, None)
        time = None if time in {None, "-1"} else int(time)
        fields = dict(FIELD.findall(line.partition(" key: ")[0].partition(" payload: ")[0]))
        if line.startswith("| "):
            sizes = [int(fields.get(name, -1)) for name in ("keySize", "valueSize")]
            records.append((int(fields["offset"]), time, *sizes))
        elif BATCH.match(line):
            is_v2 = fields["magic"] == "2"
            last = int(fields["lastOffset"] if is_v2 else fields["offset"])
            batches.append(
                (
                    int(fields["position"]),
                    int(fields["size"]),
                    last,
                    int(fields["magic"]),
                    fields["compresscodec"],
                    None if kind == "NoTimestampType" else kind,
                    time,
                    fields["isvalid"] == "true",
                    *(
                        int(fields[name]) if is_v2 else -1
                        for name in (
                            "baseOffset",
                            "count",
                            "partitionLeaderEpoch",
                            "producerId",
                            "producerEpoch",
                            "baseSequence",
                        )
                    ),
                    is_v2 and fields["isTransactional"] == "true",
                )
            )
    return batches, records


def said_by_us(capsys, paths):
    status = main(["dump", "--json", "--records", *map(str, paths)])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    batches, records = [], []
    for row in rows:
        if row["kind"] == "record":
            sizes = [-1 if row[name] is None else len(row[name]) for name in ("key", "value")]
            records.append((row["offset"], row["timestamp"], *sizes))
        elif row["kind"] == "batch":
            names = ("position", "size", "last_offset", "magic", "compression", "time_type")
            is_v2 = row["magic"] == 2
            batches.append(
                (
                    *(row[name] for name in names),
                    row["max_timestamp"],
                    not row["is_bad"],
                    *(
                        row[name] if is_v2 and row[name] is not None else -1
                        for name in (
                            "base_offset",
                            "count",
                            "leader_epoch",
                            "producer_id",
                            "producer_epoch",
                            "base_sequence",
                        )
                    ),
                    row["is_transactional"],
                )
            )
    return status, batches, records


def test_a_mixed_segment(capsys, kafka, mixed):
    status, batches, records = said_by_us(capsys, [mixed])
    assert status == 0
    assert len(records) == sum(1 + i % 4 for i in range(120))
    assert {batch[4] for batch in batches} == set(CODECS)
    assert (batches, records) == said_by_kafka(kafka([mixed]))


def test_segments_of_a_kafka_0_10(capsys, kafka):
    paths = sorted(VECTORS.glob("f-*/*.log"))
    status, batches, records = said_by_us(capsys, paths)
    assert status == 0
    assert len(records) == 200 * len(list(VECTORS.glob("f-*")))
    assert (batches, records) == said_by_kafka(kafka(paths))


def test_a_broken_batch(capsys, kafka, mixed, tmp_path):
    """Kafka's tool cannot look into a broken batch, so only the batches are compared."""
    _, batches, _ = said_by_us(capsys, [mixed])
    number = next(n for n, batch in enumerate(batches) if batch[3] == 2 and batch[4] == "none")
    data = bytearray(mixed.read_bytes())
    data[batches[number][0] + batches[number][1] - 2] ^= 1
    path = tmp_path / mixed.name
    path.write_bytes(data)
    status, ours, _ = said_by_us(capsys, [path])
    assert status == 1
    assert [n for n, batch in enumerate(ours) if not batch[7]] == [number]
    theirs, _ = said_by_kafka(kafka([path]))
    assert ours == theirs


def test_a_transaction_index(capsys, kafka, tmp_path):
    path = tmp_path / f"{10:020d}.txnindex"
    entries = [(7, 3, 12, 3), (1 << 40, 13, 1 << 33, 15)]
    path.write_bytes(b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries))
    assert main(["dump", "--json", str(path)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
    ours = [tuple(row[name] for name in names) for row in rows if row["kind"] == "transaction"]
    words = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
    said = [dict(FIELD.findall(line)) for line in kafka([path]) if "producerId" in line]
    assert ours == [tuple(int(one[word]) for word in words) for one in said] == entries
