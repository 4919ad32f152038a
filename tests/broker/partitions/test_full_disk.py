"""A disk that is really full: a small file system in a mount namespace of the broker's own."""

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker import asking
from tests.broker.subject import Subject, eventually
from tidelog import serving

STORAGE_ERROR = 56
SIZE = "6m"

_NAMESPACE = """#!/bin/sh
exec unshare -m sh -c 'mount -t tmpfs -o size={size} none "{data}" && exec "{python}" "$@"' sh "$@"
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A broker whose data directory holds a few megabytes and no more."""
    data = tmp_path / "data"
    data.mkdir()
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here")
    mount = f'mount -t tmpfs -o size={SIZE} none "{data}"'
    tried = subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no file system can be mounted here: {tried.stderr.decode().strip()}")
    launcher = tmp_path / "python"
    launcher.write_text(_NAMESPACE.format(size=SIZE, data=data, python=sys.executable))
    launcher.chmod(0o755)
    monkeypatch.setattr(serving.sys, "executable", str(launcher))
    settings = {"log.retention.check.interval.ms": "1000", "log.segment.delete.delay.ms": "0"}
    with Subject(data, settings, clock="manual") as broker:
        yield broker
        assert broker.unexpected_errors == 0, broker.log()[-8000:]
        assert "Traceback" not in broker.log(), broker.log()[-8000:]


def inside(broker):
    """The data directory as the broker sees it."""
    return Path(f"/proc/{broker.pid}/root{broker.log_dir}")


def fill(directory):
    """Take all the room there is."""
    with contextlib.suppress(OSError), (directory / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass
    assert shutil.disk_usage(directory).free == 0


@pytest.mark.slow
def test_reads_and_retention_go_on_and_appends_come_back(small):
    now_ms = small.clock.now_ms()
    batch = asking.recordset.batch(asking.values("x" * 50_000, timestamp=now_ms))
    with small.connect() as connection:
        kept, going = asking.new_name(), asking.new_name()
        asking.create(connection, kept, **{"segment.bytes": "200000", "retention.ms": "-1"})
        asking.create(connection, going, **{"segment.bytes": "200000", "retention.ms": "3000"})
        assert asking.produce(connection, kept, batch)["error_code"] == 0
        for _ in range(20):
            assert asking.produce(connection, going, batch)["error_code"] == 0
        fill(inside(small))
        refused = asking.produce(connection, kept, batch)
        assert (refused["error_code"], "the disk is full" in refused["error_message"]) == (
            STORAGE_ERROR,
            True,
        )
        assert len(asking.read_values(connection, kept)) == 1
        assert asking.list_offset(connection, kept, 0)["offset"] == 0
        assert asking.list_offset(connection, going, -2)["offset"] == 0
        small.clock.step(3_001)
        eventually(
            lambda: asking.list_offset(connection, going, -2)["offset"] > 0,
            what="retention on a full disk",
        )
        eventually(
            lambda: asking.produce(connection, kept, batch)["error_code"] == 0,
            what="appends to come back with the room that retention made",
        )
        assert len(asking.read_values(connection, kept)) == 2
