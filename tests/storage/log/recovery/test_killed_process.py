"""A process that appends is killed with -9: what it acknowledged is there, once, in order."""

import os
import signal
import subprocess
import sys

import pytest

WRITER = """
import sys
from pathlib import Path
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.directory.store import LogStore

config = TopicConfig(segment_bytes=3000, index_interval_bytes=200)
store = LogStore([Path(sys.argv[1])], default_config=config)
store.open(int(sys.argv[2]))
partition = store.partition("t", 0)
sequence = first = partition.log_end_offset
now = int(sys.argv[2])
while True:
    count = 1 + sequence % 3
    records = [Record(i, sequence + i, b"k", b"%d" % (sequence + i), ()) for i in range(count)]
    data = build(records, producer_id=1, producer_epoch=0, base_sequence=sequence)
    appended = partition.append(data, now_ms=now, produce_version=9)
    now += sequence % 2
    sequence += count
    if sequence % 50 < 3:
        store.checkpoint()
    print(appended.base_offset, count, now, flush=True)
"""


@pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_kill_9(make_log, kills):
    log = make_log(segment_bytes=3000, index_interval_bytes=200).create()
    log.close()
    now, acknowledged = 1000, 0
    for kill in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(log.path), str(now)],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": "."},
        )
        for _ in range(40 + 37 * kill):
            base, count, now = map(int, process.stdout.readline().split())
            assert base == acknowledged
            acknowledged += count
        process.send_signal(signal.SIGKILL)
        # It ran on until the signal came: those lines were acknowledgements too.
        for line in process.stdout.read().splitlines(keepends=True):
            if line.endswith(b"\n"):
                base, count, now = map(int, line.split())
                assert base == acknowledged
                acknowledged += count
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()
        log.open(now)
        found = log.contents()
        assert len(found) >= acknowledged
        assert found == [(i, i, b"%d" % i) for i in range(len(found))]
        known = log.partition.state.read_producers().get(1)
        assert known.last_sequence == len(found) - 1
        times = [log.partition.reader.append_time_of(i) for i in range(len(found))]
        assert times == sorted(times)
        assert log.partition.last_append_time == times[-1] <= now + 1
        acknowledged = len(found)
        log.crash()
