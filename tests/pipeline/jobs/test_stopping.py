"""A job that is asked to stop: what it prints, how it ends, and that it can be continued."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.pipeline.drivers import standing_still
from tests.pipeline.jobs.test_mirror import KEEP, check, mirror, some
from tidelog.client import Client
from tidelog.pipeline.errors import OK
from tidelog.protocol.records.batch import build

pytestmark = pytest.mark.slow

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
    command = ["mirror", "--brokers", broker.bootstrap, "--to-brokers", broker.bootstrap]
    command += ["--topics", topic, "--master", "inline", "--run", "r", "--out", str(tmp_path), *how]
    # What a shell starts in the background ignores SIGINT, and so would the job.
    heard = {"through": ["env", "--default-signal=INT"], "text": True}
    heard |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with standing_still(command, after=1000, **heard) as job:
        job.send_signal(number)
        job.send_signal(signal.SIGCONT)
        said, _ = job.communicate(timeout=180)
    assert job.returncode == status
    assert f"stopped by {number.name}: repeat the same --run to continue" in said
    assert "Traceback" not in said
    assert mirror(broker.bootstrap, broker.bootstrap, topic, tmp_path, *how) == OK
    check(broker.bootstrap, copy, {0: wanted}, tmp_path)
