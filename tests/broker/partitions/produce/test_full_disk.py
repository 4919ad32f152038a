"""A log directory on a disk that is full to the last byte, with the metadata in it."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress

import pytest

from tests.broker import asking
from tests.broker.asking import batch_of, create, delete_records, produce, read_values
from tests.broker.subject import Subject, eventually, page_at

STORAGE_ERROR = 56
LATEST, EARLIEST = -1, -2
RESERVE_BYTES = 1 << 20
SETTINGS = {
    "log.dir.reserve.bytes": str(RESERVE_BYTES),
    "log.segment.bytes": "100000",
    "log.retention.check.interval.ms": "86400000",
    "log.segment.delete.delay.ms": "0",
}


@pytest.fixture
def disk(tmp_path):
    """A small disk of its own; making it takes the right to mount."""
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("mounting a disk is not permitted here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def fill(disk):
    """Writes until not a byte is left."""
    with (disk / "filler").open("ab", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    assert free(disk) == 0


def free(disk):
    volume = os.statvfs(disk)
    return volume.f_frsize * volume.f_bavail


def delete_topic(connection, name):
    answer = connection.ask("DeleteTopics", 5, topic_names=[name], timeout_ms=60_000)
    return answer["responses"][0]["error_code"]


def code(connection, topic):
    return produce(connection, topic, batch_of("v" * 20_000))["error_code"]


@pytest.fixture
def full(disk):
    """A broker that has no byte left, and knows it."""
    with Subject(disk / "data", SETTINGS) as broker, broker.connect() as connection:
        for topic in ("kept", "old"):
            create(connection, topic)
            for _ in range(25):
                assert produce(connection, topic, batch_of("v" * 50_000))["error_code"] == 0
        assert page_at(broker.http, "/readyz") == (200, "ready\n")
        fill(disk)
        assert code(connection, "kept") == STORAGE_ERROR
        yield disk, broker, connection
        assert "Traceback" not in broker.log()


def test_a_topic_is_deleted_and_appends_go_on(full):
    disk, broker, connection = full
    status, text = page_at(broker.http, "/readyz")
    assert (status, text) == (503, f"not ready: no space left in {disk / 'data'}\n")
    sample = f'tidelog_log_dir_full{{directory="{disk / "data"}"}}'
    assert f"{sample} 1.0\n" in page_at(broker.http, "/metrics")[1]
    assert delete_topic(connection, "old") == 0
    assert not (disk / "data" / "old-0").exists()
    eventually(lambda: page_at(broker.http, "/readyz")[0] == 200)
    assert f"{sample} 0.0\n" in page_at(broker.http, "/metrics")[1]
    assert (disk / "data" / "reserve").stat().st_size == RESERVE_BYTES
    assert code(connection, "kept") == 0
    assert broker.stop() == 0
    assert not (disk / "data" / "reserve").exists()


@pytest.mark.slow
def test_records_are_deleted(full):
    disk, broker, connection = full
    assert delete_records(connection, "kept", 20) == (0, 20)
    assert free(disk) > 0
    assert code(connection, "kept") == STORAGE_ERROR, "the room is for deletions"
    assert delete_topic(connection, "old") == 0
    eventually(lambda: code(connection, "kept") == 0)
    connection.close()
    broker.kill()
    broker.restart()
    assert asking.list_offset(connection, "kept", EARLIEST)["offset"] == 20
    assert asking.list_offset(connection, "kept", LATEST)["offset"] == 26


@pytest.mark.slow
def test_a_stop_is_clean(full):
    disk, broker, connection = full
    connection.close()
    assert broker.stop() == 0
    assert (disk / "data" / ".kafka_cleanshutdown").exists()
    broker.restart()
    assert len(read_values(connection, "kept")) == 25
    fill(disk)
    assert code(connection, "kept") == STORAGE_ERROR
    assert delete_topic(connection, "old") == 0, "the restart has made the reserve again"


@pytest.mark.slow
def test_reads_and_retention_go_on_and_appends_come_back(disk):
    settings = {**SETTINGS, "log.retention.check.interval.ms": "1000"}
    with Subject(disk / "data", settings, clock="manual") as broker, broker.connect() as connection:
        old = asking.recordset.batch(asking.values("v" * 50_000, timestamp=broker.clock.now_ms()))
        create(connection, "kept", retention_ms="-1")
        create(connection, "going", retention_ms="3000")
        for topic in ("kept", *["going"] * 20):
            assert produce(connection, topic, old)["error_code"] == 0
        fill(disk)
        refused = produce(connection, "kept", batch_of("v" * 20_000))
        assert refused["error_code"] == STORAGE_ERROR
        assert "the disk is full" in refused["error_message"]
        assert len(read_values(connection, "kept")) == 1
        assert asking.list_offset(connection, "kept", 0)["offset"] == 0
        assert asking.list_offset(connection, "going", EARLIEST)["offset"] == 0
        broker.clock.step(3_001)
        eventually(lambda: asking.list_offset(connection, "going", EARLIEST)["offset"] > 0)
        eventually(lambda: code(connection, "kept") == 0)
        assert len(read_values(connection, "kept")) == 2
        assert broker.unexpected_errors == 0


def test_without_a_reserve_there_is_no_room_to_delete(disk):
    settings = {**SETTINGS, "log.dir.reserve.bytes": "0"}
    with Subject(disk / "data", settings) as broker, broker.connect() as connection:
        create(connection, "t")
        assert code(connection, "t") == 0
        fill(disk)
        assert delete_topic(connection, "t") == STORAGE_ERROR
        (disk / "filler").unlink()
        assert delete_topic(connection, "t") == 0
        assert broker.stop() == 0
