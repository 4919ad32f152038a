"""A job that is told to stop: what it says, how it ends, and that it goes on afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.client import Client
from pipeline.errors import OK
from protocol.records.batch import build
from tests.pipeline.test_mirror import KEEP, check, mirror, some
from tests.pipeline.test_replay_kills import wait_for

ROOT = Path(__file__).parents[2]
SLOWLY = ("--batch-bytes", "1000")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_job_that_is_stopped_goes_on_later(broker, topic, tmp_path, number, status):
    wanted = some(30_000, 41, odd=False)
    copy = f"{topic}-copy"
    with Client(broker.bootstrap) as client:
        for name in (topic, copy):
            client.create_topic(name, 1, KEEP)
        for start in range(0, len(wanted), 5000):
            part = [one._replace(offset=n) for n, one in enumerate(wanted[start : start + 5000])]
            client.produce(topic, 0, build(part))
    how = ("--rename", f"{topic}={copy}", *SLOWLY)
    # What a shell starts in the background ignores SIGINT, and so would the job.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "tidelog", "pipeline", "mirror"]
    command += ["--brokers", broker.bootstrap]
    command += ["--to-brokers", broker.bootstrap, "--topics", topic, "--master", "inline"]
    command += ["--run", "r", "--out", str(tmp_path), *how]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as job:
        wait_for(broker.bootstrap, copy, 1000)
        job.send_signal(number)
        said, _ = job.communicate(timeout=180)
    assert job.returncode == status
    assert f"stopped by {number.name}: the same --run again goes on" in said
    assert "Traceback" not in said
    assert mirror(broker.bootstrap, broker.bootstrap, topic, tmp_path, *how) == OK
    check(broker.bootstrap, copy, {0: wanted}, tmp_path)
