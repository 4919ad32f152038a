"""What a job says where no broker answers, and how soon it ends where nothing listens."""

from __future__ import annotations

import contextlib
import socket

import pytest

import tidelog.jobs
from tidelog.client import retry, sync_client
from tidelog.pipeline import cli
from tidelog.pipeline.errors import FAILED
from tidelog.pipeline.runs import task_progress
from tidelog.pipeline.session import TaskSession
from tidelog.process import BrokerProcess


@pytest.fixture
def nowhere(monkeypatch):
    """Two addresses at which nothing listens; they stay so, since they are bound."""
    monkeypatch.setattr(retry, "NO_LISTENER_S", 3.0)
    monkeypatch.setattr(sync_client, "NOTICE_S", 0.2)
    with contextlib.ExitStack() as stack:
        bound = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in bound:
            one.bind(("127.0.0.1", 0))
        yield ",".join(f"127.0.0.1:{one.getsockname()[1]}" for one in bound)


@pytest.mark.parametrize("job", ["audit", "mirror", "backfill", "whatif", "archive"])
def test_a_job_says_who_does_not_answer_and_gives_up_soon(job, nowhere, tmp_path, capsys, caplog):
    source = ["--brokers", nowhere, "--topics", "t"]
    given = {
        "audit": source,
        "archive": [*source, "--to", str(tmp_path / "to")],
        "whatif": [*source, "--policy", "a:retention.ms=1"],
        "mirror": [*source, "--to-brokers", "127.0.0.1:1"],
        "backfill": [
            "--to-brokers",
            nowhere,
            *["--topic", "t", "--table", "t.csv", "--time-column", "c"],
        ],
    }[job]
    assert cli.main([job, *given, "--out", str(tmp_path), "--master", "inline"]) == FAILED
    said = capsys.readouterr().err.splitlines()[-1]
    for address in nowhere.split(","):
        assert f"{address} cannot be reached: Connection refused" in said
    (still,) = caplog.messages
    assert still.endswith("; still trying")
    assert nowhere.partition(",")[0] in still


def test_a_program_is_told_too(nowhere, tmp_path, caplog):
    with pytest.raises(tidelog.jobs.JobError, match="cannot be reached"):
        tidelog.jobs.audit(brokers=nowhere, topics="t", out=tmp_path)
    assert len(caplog.messages) == 1


def test_the_driver_says_what_the_tasks_of_spark_wait_for(monkeypatch, tmp_path, caplog):
    """Their own warnings are in the logs of the workers. Tasks of this process need no other."""
    monkeypatch.setattr(task_progress, "NOTICE_S", 0.0)
    on_spark = TaskSession("audit", spark=object())
    with BrokerProcess(tmp_path / "data") as broker:
        address = broker.bootstrap
        with task_progress.watching("audit", 900, on_spark, brokers=address) as watch:
            for done in (0, 0, 100, 100):
                watch(done)
            assert caplog.messages == []
            broker.kill()
            for done in (100, 100, 200, 200):
                watch(done)
    (said,) = caplog.messages
    assert address in said
    assert said.endswith("; still trying")
    caplog.clear()
    with task_progress.watching("audit", 9, TaskSession("audit"), brokers=address) as watch:
        watch(0)
    assert caplog.messages == []
