"""On Spark the audit and the what-if say what they say without it, however many tasks there are."""

import json

import pytest

from tidelog.client import Client
from tidelog.pipeline import cli
from tidelog.pipeline.jobs import audit, whatif
from tidelog.pipeline.session import TaskSession
from tidelog.process import BrokerProcess
from tidelog.protocol.records.batch import Record, build

pytestmark = pytest.mark.spark

NOW = 1_767_225_600_000
HOUR, DAY = 3_600_000, 86_400_000


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """A directory with two topics, one of which steps a day back again and again."""
    directory = tmp_path_factory.mktemp("spark") / "data"
    with BrokerProcess(directory, {"log.retention.ms": -1}, clock="manual") as broker:
        with Client(broker.bootstrap) as client:
            for topic in ("steps", "live"):
                client.create_topic(topic, 2, {"segment.bytes": "40000"})
            for number in range(30):
                append = NOW + number * HOUR
                broker.clock.freeze(append)
                for part in range(2):
                    for topic in ("steps", "live"):
                        back = DAY if topic == "steps" and number % 7 > 2 else 0
                        times = [append - back - (i * 7919) % 1000 for i in range(300)]
                        records = [Record(i, t, None, b"v" * 20, ()) for i, t in enumerate(times)]
                        client.produce(topic, part, build(records))
        yield directory


def run(job, arguments, session, out):
    name = job.__name__.rpartition(".")[2]
    given = [name, "--out", str(out), "--run", "r", *arguments]
    status = job.run(cli.options_from(given), session)
    return status, json.loads((out / "r" / "report.json").read_text())


AUDIT = ["--at", str(NOW + 3 * DAY), "--upto", "log-end", "--split-bytes", "80k"]
WHATIF = ["--at", str(NOW + 3 * DAY), "--policy", "a:retention.ms=2d", "--horizon", "2d"]


@pytest.mark.parametrize(("job", "arguments"), [(audit, AUDIT), (whatif, WHATIF)])
def test_spark_changes_nothing(spark, logs, tmp_path, job, arguments):
    given = ["--logs", str(logs), *arguments]
    on_spark = run(job, given, TaskSession("tests", spark=spark), tmp_path / "spark")
    alone = run(job, given, TaskSession("tests", master="inline"), tmp_path / "alone")
    assert on_spark == alone
    assert sum(t.get("records") or t["summary"]["records"] for t in alone[1]["topics"]) == 36_000
