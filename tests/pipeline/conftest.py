"""Brokers for the tests of the pipeline: one of ours for a module, and Apache Kafka for those that ask."""

from __future__ import annotations

import itertools

import pytest

from pipeline.errors import SetupError
from pipeline.session import Session
from tests.oracle.apache_kafka import ApacheKafka, available
from tests.oracle.brokers import wait_for_coordinators
from tests.pipeline import spark_kafka
from tidelog.process import BrokerProcess

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker of ours; tests share it and make topics of their own. No round of retention comes to it."""
    data = tmp_path_factory.mktemp("broker") / "data"
    with BrokerProcess(data, {"log.retention.check.interval.ms": 86_400_000}) as process:
        yield process


@pytest.fixture(scope="session")
def kafka(tmp_path_factory):
    """Apache Kafka 3.9.1, for tests marked `oracle`."""
    usable = available("3.9.1")
    if not usable:
        pytest.skip(usable.reason)
    with ApacheKafka("3.9.1", tmp_path_factory.mktemp("kafka")) as process:
        wait_for_coordinators(process.bootstrap)
        yield process


@pytest.fixture(params=["tidelog", pytest.param("kafka", marks=pytest.mark.oracle)])
def either(request):
    """`host:port` of a broker of ours, and of Apache Kafka."""
    name = "broker" if request.param == "tidelog" else "kafka"
    return request.getfixturevalue(name).bootstrap


@pytest.fixture
def topic():
    """A topic name nobody else has."""
    return f"topic-{next(_NUMBERS)}"


@pytest.fixture(scope="session")
def spark():
    """One Spark session for all tests, on two cores, with Spark's Kafka connector where it can be had."""
    pytest.importorskip("pyspark", reason="PySpark is not installed: make test-spark installs it")
    connector = [str(jar) for jar in spark_kafka.jars()] if spark_kafka.fetch() else []
    conf = [("spark.jars", ",".join(connector))] if connector else []
    from pipeline.source.timelog import register

    with Session("tests", master="local[2]", conf=conf) as session:
        try:
            started = session.spark
        except SetupError as error:
            pytest.skip(str(error))
        register(started)
        yield started


@pytest.fixture
def connector():
    """Spark's own Kafka source; skips where its jars cannot be had."""
    fetched = spark_kafka.fetch()
    if not fetched:
        pytest.skip(fetched.reason)
