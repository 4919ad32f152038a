"""Followers' directories pass Apache Kafka's DumpLogSegments, and `tidelog dump`.

Lives of every format, codec and kind of time and producer: no complaint, and what was written. That the tool
would complain is seen on a file of each kind with one number changed.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys

import pytest

from tests.storage.replicas.cluster import Cluster
from tests.storage.segment import dump_log_segments as kafka
from tidelog.storage import files

LIVES = range(100, 110)
RECORD = re.compile(
    r"^\| offset: (\d+) (?:CreateTime|LogAppendTime|NoTimestampType): (-?\d+)", re.MULTILINE
)
COMPLAINTS = (
    "Mismatches",
    "mismatch",
    "out of order",
    "not found",
    "Non-consecutive",
    "invalid bytes",
    "isvalid: false",
    "could not",
    "Exception",
    "corrupt",
)


@pytest.fixture(scope="module")
def followers(tmp_path_factory):
    """Directories of followers that were stopped cleanly, and the offsets and times of their records.

    No machine has lost power: that leaves torn snapshots, which are ignored, but are findings.
    """
    found, target = [], tmp_path_factory.mktemp("followers")
    for seed in LIVES:
        before, path = files.use(files.System()), tmp_path_factory.mktemp("life")
        cluster = Cluster(path / "cluster", seed, is_wild=True)
        try:
            cluster.live()
            number = cluster.followers[0]
            replica = cluster.replicas[number]
            replica.store.close()
            directory = target / f"life-{seed}" / "t-0"
            shutil.copytree(replica.partition.directory, directory)
            first = replica.partition.segments[0].base_offset
            rows = [row for batch in replica.model.batches for row in batch.rows]
            times = [(row.offset, -1 if row.time is None else row.time) for row in rows]
            found.append((directory, [each for each in times if each[0] >= first]))
        finally:
            cluster.close()
            files.use(before)
            shutil.rmtree(path, ignore_errors=True)
    assert sum(len(times) for _, times in found) > 100
    return found


def test_tidelog_dump_finds_nothing_wrong(followers):
    directories = [str(directory) for directory, _ in followers]
    run = subprocess.run(
        [sys.executable, "-m", "tidelog", "dump", "--json", *directories],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    assert all(json.loads(line) for line in run.stdout.splitlines())
    assert run.stdout.count("partition times") >= len(followers)


@pytest.mark.oracle
@kafka.pytestmark[1]
def test_kafkas_tool_finds_nothing_wrong(followers):
    logs = [path for directory, _ in followers for path in sorted(directory.glob("*.log"))]
    shown = kafka.dump(logs, "--deep-iteration")
    assert not [complaint for complaint in COMPLAINTS if complaint in shown]
    assert [(int(offset), int(time)) for offset, time in RECORD.findall(shown)] == [
        each for _, times in followers for each in times
    ]
    for suffix in ("index", "timeindex", "snapshot"):
        paths = [
            path
            for directory, _ in followers
            for path in sorted(directory.glob(f"*.{suffix}"))
            if path.stat().st_size
        ]
        shown = kafka.dump(paths)
        assert not [complaint for complaint in COMPLAINTS if complaint in shown], suffix


def change(path, position, layout):
    """Add one to a number in a file."""
    data = bytearray(path.read_bytes())
    (number,) = struct.unpack_from(layout, data, position)
    struct.pack_into(layout, data, position, number + 1)
    path.write_bytes(data)


@pytest.mark.oracle
@kafka.pytestmark[1]
def test_kafkas_tool_reports_damage(make_log):
    log = make_log(segment_bytes=1500, index_interval_bytes=60).create()
    for number in range(36):
        log.append([5000 + 10 * number + i for i in range(3)], now=1_000_000 + number)
    log.close()
    index, other = sorted(log.directory.glob("*.index"))[:2]
    for path, position, layout, complaint in (
        (index, 0, ">i", f"Mismatches in :{index}"),
        (
            index.with_suffix(".timeindex"),
            0,
            ">q",
            f"Found timestamp mismatch in :{index.with_suffix('.timeindex')}",
        ),
        (other.with_suffix(".log"), 61, ">b", "isvalid: false"),
    ):
        change(path, position, layout)
        assert complaint in kafka.dump([path])
