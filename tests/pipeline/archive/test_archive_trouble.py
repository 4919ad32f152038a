"""An archive where the disk is full, or a name means another run: what is said, and that nothing is lost."""

from __future__ import annotations

import errno
import os

import pytest

from tests.pipeline.jobs.test_mirror import fill, filled_topic
from tidelog.client import Client
from tidelog.pipeline import cli
from tidelog.pipeline.archive import store
from tidelog.pipeline.errors import FAILED, OK, USAGE
from tidelog.pipeline.jobs import archive as jobs_archive
from tidelog.protocol.records.batch import Record

DAY_MS = 86_400_000


@pytest.fixture
def filled(broker, topic):
    """A topic with records of many days."""
    filled_topic(
        broker.bootstrap, topic, [Record(n, n * DAY_MS // 10, b"k", b"v") for n in range(60)]
    )
    return topic


def archive(broker, topic, directory, run="r"):
    given = ["archive", "--brokers", broker.bootstrap, "--topics", topic, "--run", run]
    given += ["--to", str(directory / "to"), "--out", str(directory / "out"), "--master", "inline"]
    return cli.main(given)


def keep(action, directory, run="k"):
    given = ["archive", action, str(directory / "to"), "--run", run, "--master", "inline"]
    return cli.main([*given, "--out", str(directory / "out")])


def names(directory):
    return sorted(path.name for path in (directory / "to").rglob("*") if path.is_file())


@pytest.mark.parametrize("number", [1, 4, 7])  # files, and the manifest
def test_a_full_disk_is_named_and_left_clean(broker, filled, tmp_path, monkeypatch, capsys, number):
    seen, sync = [], os.fsync

    def full(descriptor):
        if not os.path.isdir(f"/proc/self/fd/{descriptor}"):
            seen.append(descriptor)
            if len(seen) == number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as injected:
        injected.setattr(store.os, "fsync", full)
        assert archive(broker, filled, tmp_path) == FAILED
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert str(tmp_path) in said
    assert not any(name.startswith(store.PARTIAL) for name in names(tmp_path))
    assert not any(name.endswith(".json") for name in names(tmp_path))
    assert archive(broker, filled, tmp_path) == OK
    assert keep("verify", tmp_path) == OK


def test_a_compaction_of_the_name_of_another_run_is_refused(broker, filled, tmp_path, capsys):
    """Else it says that it has nothing to do."""
    assert archive(broker, filled, tmp_path, run="one") == OK
    with Client(broker.bootstrap) as client:
        fill(client, filled, 0, [Record(n, n * DAY_MS // 10, b"k", b"v") for n in range(60)])
    assert archive(broker, filled, tmp_path, run="two") == OK
    before = names(tmp_path)
    assert keep("compact", tmp_path, run="one") == FAILED
    assert "run one of this archive was of archive, not of compact" in capsys.readouterr().err
    assert names(tmp_path) == before
    for _ in range(2):
        assert keep("compact", tmp_path, run="three") == OK
    assert archive(broker, filled, tmp_path, run="three") == FAILED
    assert "was of compact, not of archive" in capsys.readouterr().err
    assert len(names(tmp_path)) < len(before)
    assert keep("verify", tmp_path) == OK


def test_no_run_hides_its_manifest(broker, filled, tmp_path, capsys):
    """What begins with a dot is what a killed run wrote aside."""
    with pytest.raises(SystemExit) as exit_:
        archive(broker, filled, tmp_path, run=".hidden")
    assert exit_.value.code == USAGE
    assert "'.hidden' is no name" in capsys.readouterr().err


def test_a_clock_that_goes_back_between_runs(
    broker, filled, tmp_path, monkeypatch, without_transactions
):
    """Or runs on two machines: manifests follow each other by what they have, not by when they were made."""
    assert archive(broker, filled, tmp_path, run="one") == OK
    with Client(broker.bootstrap) as client:
        fill(client, filled, 0, [Record(n, n, b"k", b"v") for n in range(60)])
    with monkeypatch.context() as injected:
        injected.setattr(jobs_archive.time, "time_ns", lambda: 1_000_000_000_000_000_000)
        assert archive(broker, filled, tmp_path, run="two") == OK
        assert keep("verify", tmp_path) == OK
        assert keep("compact", tmp_path, run="three") == OK
    assert keep("verify", tmp_path) == OK
    assert archive(broker, filled, tmp_path, run="four") == OK
    again = ["restore", str(tmp_path / "to"), "--rename", f"{filled}={filled}-back", "--create"]
    again += ["--to-brokers", broker.bootstrap, "--set", "retention.ms=-1", "--master", "inline"]
    assert cli.main([*again, "--out", str(tmp_path / "out"), "--run", "back"]) == OK
    with Client(broker.bootstrap) as client:
        assert client.end_offset(f"{filled}-back", 0) == 120
