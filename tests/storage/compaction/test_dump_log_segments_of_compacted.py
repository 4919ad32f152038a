"""Apache Kafka's DumpLogSegments reads what compaction leaves: batches, horizons, times, indexes."""

import re

import pytest

from tests.storage.cleaning import clean
from tests.storage.segment.dump_log_segments import dump, pytestmark
from tidelog.protocol.records.batch import Record, build, records, scan

__all__ = ["pytestmark"]
NOW, RETENTION_MS = 50_000, 777


@pytest.fixture
def log(make_log):
    """Compacted twice: tombstones with a horizon, an emptied batch, merged segments, every codec."""
    log = make_log(
        segment_bytes=3_000,
        index_interval_bytes=100,
        cleanup_policy=("compact",),
        delete_retention_ms=RETENTION_MS,
    ).create()
    sequence = 0
    for number in range(160):
        count = 1 + number % 3
        sent = [
            Record(i, 5_000 + 3 * number + i, b"k%d" % ((number * 7 + i) % 45), b"v%d" % number)
            for i in range(count)
        ]
        if number % 5 == 0:
            sent[-1] = sent[-1]._replace(value=None)
        of_a_producer = {"producer_id": 4, "producer_epoch": 0, "base_sequence": sequence}
        data = build(
            sent, compression=(0, 1, 3, 4)[number % 4], **(of_a_producer if number < 20 else {})
        )
        sequence += count if number < 20 else 0
        log.partition.append(data, now_ms=1_000 + number, produce_version=9)
        if number in (80, 159):
            assert clean(log.partition, NOW)
    return log


def test_dump_log_segments_agrees(log):
    rows, horizons, empty = [], set(), 0
    for segment in log.partition.segments:
        data = segment.path.read_bytes()
        for batch in scan(data):
            rows += [(r.offset, r.timestamp) for r in records(data, batch)]
            horizons.add(batch.delete_horizon_ms)
            empty += not batch.count
    assert horizons == {None, NOW + RETENTION_MS}
    assert empty == 1
    log.close()
    logs = sorted(log.directory.glob("*.log"))
    shown = dump(logs, "--deep-iteration")
    assert "isvalid: false" not in shown
    found = re.findall(r"^\| offset: (\d+) CreateTime: (-?\d+) ", shown, re.MULTILINE)
    assert [tuple(map(int, row)) for row in found] == rows
    assert set(re.findall(r"deleteHorizonMs: (\S+)", shown)) == {
        "OptionalLong.empty",
        f"OptionalLong[{NOW + RETENTION_MS}]",
    }
    assert (
        len(re.findall(r"count: 0 baseSequence: \d+ lastSequence: \d+ producerId: 4", shown)) == 1
    )
    shown = dump(sorted(log.directory.glob("*.index")))
    assert "Mismatches" not in shown
    assert len(re.findall(r"offset: \d+ position: \d+", shown)) > 5
    shown = dump(sorted(log.directory.glob("*.timeindex")))
    for complaint in ("mismatch", "out of order", "Not found", "could not be found"):
        assert complaint not in shown
    assert len(re.findall(r"timestamp: \d+ offset: \d+", shown)) > 5
