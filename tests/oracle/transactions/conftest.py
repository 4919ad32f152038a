"""The brokers that all tests of this folder ask: each starts once per session.

Every test makes topics, groups and transactional ids of its own. Ids whose epochs are used up are
written into `__transaction_state` of a stopped broker, so each broker starts twice.
"""

from __future__ import annotations

import pytest

from tests.oracle.brokers import Tidelog, wait_for_coordinators
from tests.oracle.transactions import forging

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
KAFKA_SETTINGS = {
    # How soon a transaction is aborted that has timed out, in ms.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}


def forge(broker):
    """Gives a broker transactional ids whose epochs are used up."""
    wait_for_coordinators(broker.bootstrap)
    forging.initialise(broker.bootstrap, "warm up")
    broker.stop()
    forging.write(broker.log_dir / "__transaction_state-0")
    broker.start()
    wait_for_coordinators(broker.bootstrap)
    forging.initialise(broker.bootstrap, "one that is new")
    return broker


@pytest.fixture(scope="session")
def kafka_3(apache_kafka):
    """Apache Kafka 3.9.1, whose transaction.version is 0."""
    with apache_kafka("3.9.1", **KAFKA_SETTINGS) as kafka:
        yield forge(kafka)


@pytest.fixture(scope="session")
def kafka_4(apache_kafka):
    """Apache Kafka 4.1.1, whose transaction.version is 2."""
    with apache_kafka("4.1.1", **KAFKA_SETTINGS) as kafka:
        yield forge(kafka)


@pytest.fixture(scope="session")
def ours(tmp_path_factory):
    """The broker under test."""
    with Tidelog(tmp_path_factory.mktemp("transactions"), SETTINGS) as tidelog:
        yield forge(tidelog)
