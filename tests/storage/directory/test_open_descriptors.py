"""How many files stay open, and in memory: not those of every partition, nor of every segment."""

import gc
import os

import pytest

from tests.storage.conftest import TOPIC_ID
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import files
from tidelog.storage.segment.append_times import AppendTimes

PARTITIONS = 40
RECENT = 4


def open_files(directory):
    found = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue
        found += target.startswith(str(directory))
    return found


@pytest.fixture
def few_recent(monkeypatch):
    monkeypatch.setattr(files, "RECENT", files.Recent(RECENT))


def append(partition, now):
    partition.append(build([Record(0, now, b"", b"v", ())]), now_ms=now, produce_version=9)


@pytest.mark.usefixtures("few_recent")
def test_commits_after_many_appends_keep_few_files_open(make_log):
    log = make_log(flush_messages=1).create()
    partitions = [log.partition] + [
        log.store.create_partition("t", TOPIC_ID, index, log.config, 0)
        for index in range(1, PARTITIONS)
    ]
    for now in range(3):
        for partition in partitions:
            append(partition, now)
        for partition in partitions:
            partition.commit()
    assert all(partition.high_watermark == 3 for partition in partitions)
    assert open_files(log.path) <= 2 * RECENT + 1  # the lock file


@pytest.mark.usefixtures("few_recent")
@pytest.mark.parametrize("clean", [True, False])
def test_opened_partitions_keep_few_files_open(make_log, clean):
    log = make_log(flush_messages=1).create()
    for index in range(1, PARTITIONS):
        log.store.create_partition("t", TOPIC_ID, index, log.config, 0)
    for now in range(2):
        for partition in log.store.partitions():
            append(partition, now)
            partition.commit()
    if clean:
        log.close()
    else:
        log.crash()
    log.open()
    assert len(log.store.partitions()) == PARTITIONS
    assert open_files(log.path) <= RECENT + 1


@pytest.mark.usefixtures("few_recent")
def test_sealed_segments_hold_no_append_times_once_their_times_are_known(make_log):
    log = make_log(segment_bytes=150).create()
    for now in range(PARTITIONS):
        log.append([now], values=[bytes(60)], now=now)
    log.crash()
    log.open()
    segments = log.partition.segments
    assert len(segments) == PARTITIONS
    for segment in segments:
        segment.known.learn()
    held = [each for each in gc.get_objects() if isinstance(each, AppendTimes)]
    assert sum(each.path.parent == log.directory for each in held) <= RECENT + 1
