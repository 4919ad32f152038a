"""The replay engine as Spark distributes it: a worker that is killed in the middle."""

from __future__ import annotations

import dataclasses
import io
import os

import pytest

from tests.pipeline.jobs.test_killed_replays import task_of
from tests.pipeline.jobs.test_mirror import KEEP, everything, fill, plain, some
from tidelog.client import Client
from tidelog.pipeline.progress import Progress
from tidelog.pipeline.replay.delivery import POSITION, TRANSACTIONS
from tidelog.pipeline.replay.log_source import LogSource
from tidelog.pipeline.replay.replay import replay
from tidelog.pipeline.session import TaskSession
from tidelog.pipeline.source.access import plan
from tidelog.pipeline.source.splits import Selection

pytestmark = pytest.mark.spark


KILLS = '''
import os, signal
from dataclasses import dataclass
from tidelog.pipeline.replay.log_source import LogSource

@dataclass(frozen=True)
class Killing:
    """Kills the process that reads it, once; `mark` remembers that across processes."""

    inner: LogSource
    mark: str

    @property
    def size_bytes(self):
        return self.inner.size_bytes

    def read(self):
        for rows in self.inner.read():
            yield rows
            if not os.path.exists(self.mark):
                with open(self.mark, "w") as file:
                    file.write(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
'''


@pytest.mark.parametrize("mode", [POSITION, pytest.param(TRANSACTIONS, marks=pytest.mark.oracle)])
def test_a_worker_killed_in_the_middle(spark, request, broker, topic, tmp_path, mode):
    """Spark runs the task again in a new worker; the target has each record once."""
    to = broker.bootstrap if mode == POSITION else request.getfixturevalue("kafka").bootstrap
    wanted = some(3000, 31)
    copy = f"{topic}-copy"
    with Client(broker.bootstrap) as client, Client(to) as there:
        client.create_topic(topic, 1, KEEP)
        there.create_topic(copy, 1, KEEP)
        for start in range(0, 3000, 500):
            fill(client, topic, 0, wanted[start : start + 500])
    (tmp_path / "killing_source.py").write_text(KILLS)
    spark.sparkContext.addPyFile(str(tmp_path / "killing_source.py"))
    from killing_source import Killing

    selection = Selection(topics=(topic,), split_offsets=1000)
    splits = tuple(plan(selection, brokers=broker.bootstrap))
    assert len(splits) == 3
    mark = tmp_path / "mark"
    task = dataclasses.replace(
        task_of(to, copy, [], mode, name=f"killed/{topic}"),
        source=Killing(LogSource(splits, selection), str(mark)),
    )
    session = TaskSession("test", spark=spark)
    with Progress("test", 3000, stream=io.StringIO()) as progress:
        (outcome,) = replay(session, [task], progress)
    assert outcome.error is None
    assert int(mark.read_text()) != os.getpid()
    with Client(to) as there:
        assert plain(everything(there, copy, 0)) == plain(wanted)
    if mode == POSITION:
        assert 0 < outcome.found <= 3000
    assert sum(one.count for one in outcome.map.runs) == 3000
