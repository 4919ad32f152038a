"""Followers' directories pass Apache Kafka's DumpLogSegments, and `tidelog dump`.

Logs of every format, codec and kind of time and producer: no complaint, and what was written. That the tool
would complain is seen on a file of each kind with one number changed.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from itertools import product

import pytest

from tests.storage.conftest import Log, records_of
from tests.storage.segment import dump_log_segments as kafka
from tidelog.storage.log.replication.received import unpacked

RELEASES = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}
CODECS = {0: (0, 1, 2), 1: (0, 1, 2, 3), 2: (0, 1, 2, 3, 4)}
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
    """Directories of followers that were stopped cleanly, and the offsets and times of their records."""
    found, target = [], tmp_path_factory.mktemp("followers")
    for magic, time_type in product(RELEASES, ("CreateTime", "LogAppendTime")):
        name = f"{magic}-{time_type}"
        settings = {"segment_bytes": 1_500, "index_interval_bytes": 60}
        settings |= {"message_format_version": RELEASES[magic], "message_timestamp_type": time_type}
        leader, follower = (Log(target / f"{name}-{each}", **settings) for each in "lf")
        copy_all(leader.create(), follower.create(), magic)
        times = [(record.offset, record.timestamp) for record in records_of(leader.partition)]
        follower.close()
        leader.close()
        found.append((follower.directory, times))
    return found


def copy_all(leader, follower, magic):
    """Appends of every codec and kind of time and producer, in two epochs, each copied by the follower."""
    sequence = 0
    for number in range(40):
        if number % 20 == 0:
            leader.partition.roles.lead(number // 20)
            follower.partition.roles.follow(number // 20)
        now, fields = 1_000 + 100 * number, {"magic": magic}
        times = [(now, 500, -1, -7, now + 5_000)[(number + i) % 5] for i in range(1 + number % 3)]
        if magic == 2 and number % 2:
            fields |= {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
            sequence += len(times)
        codec = CODECS[magic][number % len(CODECS[magic])]
        leader.append(times, now=now, compression=codec, **fields)
        end = follower.partition.log_end_offset
        read = leader.partition.reader.read_for_follower(end, 5_000, minimum_one=True)
        follower.partition.replica.append_as_follower(
            b"".join(read.fetched.buffers),
            unpacked(read.append_times),
            read.epochs,
            read.leader,
            now_ms=now,
        )


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
