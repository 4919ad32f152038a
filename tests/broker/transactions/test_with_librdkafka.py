"""A transactional producer of librdkafka: what it commits is read, also after the broker was killed."""

from __future__ import annotations

import confluent_kafka
import pytest

from tests.broker.asking import create
from tests.broker.transactions.requests import committed

_PATIENCE_S = 60


def producer_of(broker, transactional_id):
    made = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 30_000,
            "log_level": 0,
        }
    )
    made.init_transactions(_PATIENCE_S)
    return made


def test_commits_aborts_and_fencing(start):
    broker = start()
    with broker.connect() as connection:
        create(connection, "t", partitions=2)
        producer = producer_of(broker, "mine")
        for number in range(4):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.produce("t", f"{number}".encode(), partition=partition)
            producer.flush(_PATIENCE_S)
            if number % 2:
                producer.abort_transaction(_PATIENCE_S)
            else:
                producer.commit_transaction(_PATIENCE_S)
        producer.begin_transaction()
        producer.produce("t", b"open", partition=0)
        producer.flush(_PATIENCE_S)
        for partition in (0, 1):
            assert committed(connection, "t", partition) == ["0", "2"]
        heir = producer_of(broker, "mine")  # aborts what is open
        heir.begin_transaction()
        heir.produce("t", b"heir", partition=0)
        heir.commit_transaction(_PATIENCE_S)
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            producer.commit_transaction(_PATIENCE_S)
        assert caught.value.args[0].fatal()
        assert committed(connection, "t") == ["0", "2", "heir"]


def test_a_transaction_goes_on_when_the_broker_was_killed(start):
    broker = start()
    with broker.connect() as connection:
        create(connection, "t")
    producer = producer_of(broker, "mine")
    for number in range(3):
        producer.begin_transaction()
        producer.produce("t", f"{number} before".encode(), partition=0)
        producer.flush(_PATIENCE_S)
        broker.kill()
        broker.restart()
        producer.produce("t", f"{number} after".encode(), partition=0)
        producer.commit_transaction(_PATIENCE_S)
    with broker.connect() as connection:
        expected = [f"{number} {when}" for number in range(3) for when in ("before", "after")]
        assert committed(connection, "t") == expected
