"""Spark for the tests of the pipeline; brokers are those of the tests of the client."""

from __future__ import annotations

import pytest

import tidelog.spark
from tests.client.conftest import broker, either, kafka, topic  # noqa: F401 - fixtures
from tests.pipeline import spark_kafka
from tidelog.pipeline import cli
from tidelog.pipeline.errors import SetupError
from tidelog.pipeline.replay import delivery
from tidelog.pipeline.session import TaskSession

# The session lives for minutes: what is compiled a second time in that time is compiled in vain.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -Duser.timezone=UTC"


@pytest.fixture(scope="session")
def spark():
    """One Spark session for all tests, on two cores, with Spark's Kafka connector where it can be had."""
    pytest.importorskip("pyspark", reason="PySpark is not installed: make test-spark installs it")
    connector = [str(jar) for jar in spark_kafka.jars()] if spark_kafka.fetch() else []
    conf = [("spark.ui.enabled", "false"), ("spark.driver.extraJavaOptions", JAVA_OPTIONS)]
    conf += [("spark.jars", ",".join(connector))] if connector else []

    with TaskSession("tests", master="local[2]", conf=conf) as session:
        try:
            started = session.spark
        except SetupError as error:
            pytest.skip(str(error))
        tidelog.spark.register(started)
        yield started


@pytest.fixture
def on_spark(spark, monkeypatch):
    """The session of the tests, in which jobs of the command line run now unless they are told "inline"."""

    def session_of(options, _=None):
        is_inline = getattr(options, "master", None) == "inline"
        return TaskSession(options.job, **({"master": "inline"} if is_inline else {"spark": spark}))

    monkeypatch.setattr(cli, "session_of", session_of)
    return spark


@pytest.fixture
def root(tmp_path):
    """A directory whose `logs` have two partitions of topic t, in all formats and codecs."""
    from tests.pipeline.archive.archives import some, with_logs

    with_logs(tmp_path, [(0, some(200, 1)), (1, some(90, 2))])
    return tmp_path


@pytest.fixture
def without_transactions(monkeypatch):
    """Lets jobs of this process find targets without transactions, as brokers before 0.11 are."""
    monkeypatch.setattr(delivery, "END_TXN", -1)


@pytest.fixture
def connector():
    """Spark's own Kafka source; skips where its jars cannot be had."""
    fetched = spark_kafka.fetch()
    if not fetched:
        pytest.skip(fetched.reason)
