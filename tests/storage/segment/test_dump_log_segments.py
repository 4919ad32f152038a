"""Apache Kafka's own DumpLogSegments reads what we write, and finds the index true to the log."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

JARS = Path(os.environ.get("TIDELOG_CACHE", Path(__file__).parents[3] / ".cache")) / "kafka-3.9.1"

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(
        not list(JARS.glob("kafka_2*.jar")) or not shutil.which("java"),
        reason="needs the jars of Kafka 3.9.1 (`apache_kafka.py fetch 3.9.1`) and java",
    ),
]


def dump(paths, *options):
    """What the tool prints; its complaints go to standard error."""
    run = subprocess.run(
        [
            *("java", "-Xmx256m", "-cp", f"{JARS}/*", "kafka.tools.DumpLogSegments"),
            *options,
            *("--files", ",".join(map(str, paths))),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=240,
    )
    return run.stdout


def test_dump_log_segments(make_log):
    log = make_log(segment_bytes=4000, index_interval_bytes=300).create()
    sequence = 0
    for i in range(100):
        count = 1 + i % 4
        log.append(
            [5000 + i] * count,
            now=1000 + i,
            compression=(0, 1, 3)[i % 3],
            producer_id=4,
            producer_epoch=0,
            base_sequence=sequence,
        )
        sequence += count
    log.partition.flush()
    logs, indexes, snapshots = (
        sorted(log.directory.glob(f"*{suffix}")) for suffix in (".log", ".index", ".snapshot")
    )
    assert len(logs) > 2
    shown = dump(logs, "--deep-iteration")
    assert [int(o) for o in re.findall(r"^\| offset: (\d+) ", shown, re.MULTILINE)] == list(
        range(sequence)
    )
    assert shown.count("isvalid: true") == 100
    shown = dump(indexes)
    assert "Mismatches" not in shown
    entries = [tuple(map(int, e)) for e in re.findall(r"offset: (\d+) position: (\d+)", shown)]
    assert entries == [entry[1:] for entry in log.index_entries()]
    assert len(entries) > 20
    log.close()
    shown = dump(sorted(log.directory.glob("*.timeindex")))
    for complaint in ("mismatch", "out of order", "Not found", "could not be found"):
        assert complaint not in shown
    assert len(re.findall(r"timestamp: \d+ offset: \d+", shown)) > 20
    log.open()
    shown = dump(snapshots)
    last = re.findall(r"lastSequence: (\d+) lastOffset: (\d+).* timestamp: (\d+)", shown)
    assert last
    for sequence, offset, timestamp in last:
        assert sequence == offset
        assert int(timestamp) == log.partition.reader.append_time_of(int(offset))
