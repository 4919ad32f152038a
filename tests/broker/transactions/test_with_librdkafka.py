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
            # By default librdkafka 2.16 forgets its only broker when that is gone for a moment, and
            # its cache of group coordinators keeps what it has forgotten: offsets are never sent.
            "metadata.recovery.strategy": "none",
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


@pytest.mark.slow
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


def transformed(broker, numbers, stops):
    """Reads numbers from `in` and writes their doubles to `out` in transactions; all exactly once.

    Every third transaction is aborted and done again. `stops` says before which transaction the
    broker is killed: after the records and the offsets were sent, and before the commit.
    """
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["in"])
    producer = producer_of(broker, "doubling")
    done = transactions = 0
    while done < numbers:
        got = [each for each in consumer.consume(5, 1) if not each.error()]
        if not got:
            continue
        transactions += 1
        producer.begin_transaction()
        for each in got:
            producer.produce("out", b"%d" % (2 * int(each.value())), partition=0)
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(
            position, consumer.consumer_group_metadata(), _PATIENCE_S
        )
        if transactions in stops:
            broker.kill()
            broker.restart()
        if transactions % 3 == 0:
            producer.abort_transaction(_PATIENCE_S)
            consumer.seek(confluent_kafka.TopicPartition("in", 0, got[0].offset()))
        else:
            producer.commit_transaction(_PATIENCE_S)
            done += len(got)
    told = consumer.committed([confluent_kafka.TopicPartition("in", 0)], _PATIENCE_S)
    consumer.close()
    return told[0].offset


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(), (2, 3)], ids=["in peace", "with kills"])
def test_what_is_read_transformed_and_written_is_there_exactly_once(start, stops):
    broker = start()
    with broker.connect() as connection:
        create(connection, "in")
        create(connection, "out")
    feeder = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(30):
        feeder.produce("in", b"%d" % number, partition=0)
    assert feeder.flush(_PATIENCE_S) == 0
    assert transformed(broker, 30, stops) == 30
    with broker.connect() as connection:
        assert committed(connection, "out") == [str(2 * number) for number in range(30)]
