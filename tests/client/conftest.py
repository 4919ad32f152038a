"""Brokers for the tests of the client: one of ours for a module, and Apache Kafka for those that ask."""

from __future__ import annotations

import itertools

import pytest

from tests.oracle.apache_kafka import QUICK, ApacheKafka, available
from tests.oracle.brokers import wait_for_coordinators
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
    with ApacheKafka("3.9.1", tmp_path_factory.mktemp("kafka"), jvm=QUICK) as process:
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
