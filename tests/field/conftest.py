"""What users of Kafka complain about around time, as tests: a broker whose clock is ours, and Kafka itself.

Each test file opens with what users see, says what Kafka does, and shows what happens here. The tests
marked `oracle` let Apache Kafka 3.9.1 do it too, so that the complaint is a fact and not hearsay.
"""

from __future__ import annotations

import pytest

from tests.broker.conftest import healthy
from tests.oracle import apache_kafka as launcher
from tests.oracle import wire

NEW_YEAR = "2026-01-01T00:00Z"
# Kafka looks for what is to delete when it likes; here it likes three times a second.
QUICK_ROUNDS = {"log.retention.check.interval.ms": 300, "log.initial.task.delay.ms": 300}


@pytest.fixture(scope="session")
def one(tmp_path_factory):
    with healthy(tmp_path_factory.mktemp("field"), {"clock": "manual"}) as subject:
        yield subject


@pytest.fixture
def broker(one):
    """A broker whose clock stands at new year 2026 until a test moves it."""
    one.clock.freeze(NEW_YEAR)
    return one


@pytest.fixture
def connection(broker):
    with broker.connect() as connection:
        yield connection


@pytest.fixture(scope="session")
def running_kafka(tmp_path_factory):
    usable = launcher.available("3.9.1")
    if not usable:
        pytest.skip(f"no Apache Kafka 3.9.1: {usable.reason}")
    directory = tmp_path_factory.mktemp("kafka")
    with launcher.ApacheKafka("3.9.1", directory, QUICK_ROUNDS, jvm=launcher.QUICK) as broker:
        yield broker


@pytest.fixture
def kafka(running_kafka):
    """A connection to Apache Kafka."""
    with wire.Connection(running_kafka.bootstrap, timeout_s=60) as connection:
        yield connection
