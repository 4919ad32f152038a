"""Transactions over three broker processes: coordinator, leaders and group each on a broker of its own.

A client of librdkafka writes to partitions that all three lead, and commits offsets. Brokers are
killed in the middle: what is committed is read once, what is aborted never, and no broker hangs.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from threading import Thread

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.subject import eventually
from tidelog.protocol.group_records import partition_of

PARTITIONS = 3
PATIENCE_S = 60
STUCK_S = 40  # longer than anything takes that ends; less than the time-out of a transaction
TRANSIENT = (
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError.UNSTABLE_OFFSET_COMMIT,
)
SETTINGS = {
    "broker.session.timeout.ms": 3_000,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 6,
}


@pytest.fixture
def three(brokers):
    brokers.start(1, 2, 3, settings=SETTINGS)
    admin = AdminClient({"bootstrap.servers": bootstrap_of(brokers)})
    wanted = [NewTopic(name, PARTITIONS, 3) for name in ("in", "out")]
    for made in admin.create_topics(wanted).values():
        made.result(PATIENCE_S)
    leaders = {each.leader for each in brokers.image().topics["out"].assignments}
    assert leaders == {1, 2, 3}
    return brokers


def bootstrap_of(brokers):
    return ",".join(brokers[each].bootstrap for each in (1, 2, 3))


def producer_of(brokers, transactional_id="mine"):
    made = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap_of(brokers),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
            "log_level": 0,
        }
    )
    again(made.init_transactions)
    return made


def again(call, *arguments):
    """Makes a call of a client with time-out, and once more as long as the client says that it may be."""
    deadline_s = time.monotonic() + 2 * PATIENCE_S
    while True:
        try:
            return call(*arguments, PATIENCE_S)
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline_s:
                raise


def consumer_of(brokers, group="reader"):
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_of(brokers),
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )


def committed(brokers, topic="out"):
    """What is read of each partition, up to the last stable offset."""
    consumer = consumer_of(brokers)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found = {index: [] for index in range(PARTITIONS)}
    ended = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is None:
            found[message.partition()].append(message.value().decode())
        elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return found


def send(producer, text, topic="out"):
    for index in range(PARTITIONS):
        producer.produce(topic, text.encode(), partition=index)


def coordinator_of(brokers, key, topic="__transaction_state"):
    """The broker that leads the partition of a key."""
    assignments = brokers.image().topics[topic].assignments
    return assignments[partition_of(key, len(assignments))].leader


def everywhere(*texts):
    return {index: list(texts) for index in range(PARTITIONS)}


def test_commits_aborts_and_fencing(three):
    producers = [producer_of(three, f"id-{number}") for number in range(4)]
    assert len({coordinator_of(three, f"id-{number}") for number in range(4)}) > 1
    for number, producer in enumerate(producers):
        for commit in (True, False):
            producer.begin_transaction()
            send(producer, f"{number} {commit}")
            if commit:
                again(producer.commit_transaction)
            else:
                again(producer.abort_transaction)
    wanted = everywhere(*(f"{number} True" for number in range(4)))
    assert committed(three) == wanted
    producers[0].begin_transaction()
    send(producers[0], "fenced")
    producers[0].flush(PATIENCE_S)
    heir = producer_of(three, "id-0")
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producers[0].commit_transaction(PATIENCE_S)
    assert caught.value.args[0].fatal()
    heir.begin_transaction()
    send(heir, "heir")
    again(heir.commit_transaction)
    assert committed(three) == {index: [*texts, "heir"] for index, texts in wanted.items()}


@pytest.mark.parametrize("victim", ["coordinator", "leader", "group"])
def test_a_broker_is_killed_in_the_middle(three, victim):
    """What is read, transformed and written is there once, with the offsets of the group."""
    feeder = confluent_kafka.Producer({"bootstrap.servers": bootstrap_of(three), "log_level": 0})
    for number in range(30):
        feeder.produce("in", b"%d" % number, partition=0)
    assert feeder.flush(PATIENCE_S) == 0
    consumer, producer = consumer_of(three, "g"), producer_of(three)
    consumer.assign([TopicPartition("in", 0, 0)])
    done = transactions = hung = 0
    while done < 30:
        got = [each for each in consumer.consume(5, 1) if not each.error()]
        if not got:
            continue
        transactions += 1
        producer.begin_transaction()
        for each in got:
            send(producer, each.value().decode())
        position = [TopicPartition("in", 0, got[-1].offset() + 1)]
        if not offsets_are_sent(producer, position, consumer):
            hung += 1
            assert hung == 1
            producer = producer_of(three)  # its predecessor's transaction is aborted
            consumer.assign([TopicPartition("in", 0, got[0].offset())])
            continue
        if transactions == 2:
            kill(three, victim)
        if transactions % 3 == 0:
            again(producer.abort_transaction)
            consumer.assign([TopicPartition("in", 0, got[0].offset())])
        else:
            again(producer.commit_transaction)
            done += len(got)
    told = eventually(lambda: told_by_the_coordinator(consumer), PATIENCE_S)
    consumer.close()
    assert told[0].offset == 30
    wanted = everywhere(*(str(number) for number in range(30)))
    assert eventually(lambda: committed(three) == wanted or None, PATIENCE_S)


def offsets_are_sent(producer, position, consumer):
    """False if the client hangs: librdkafka 2.16 may do so for ten minutes, whatever its time-out.

    It keeps a handle of a group coordinator that Metadata has not listed for a while (docs/transactions.md).
    """
    sent = Future()

    def send_offsets():
        try:
            group = consumer.consumer_group_metadata()
            sent.set_result(again(producer.send_offsets_to_transaction, position, group))
        except confluent_kafka.KafkaException as error:
            sent.set_exception(error)

    Thread(target=send_offsets, daemon=True).start()
    try:
        sent.result(STUCK_S)
    except TimeoutError:
        return False
    return True


def told_by_the_coordinator(consumer):
    """The committed offset, or None while the client asks a broker that is no longer the coordinator.

    librdkafka looks for the new coordinator then, but leaves asking again to the program, and so it does
    while that reads its partition, and while a transaction is in the way.
    """
    try:
        return consumer.committed([TopicPartition("in", 0)], PATIENCE_S)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() not in TRANSIENT:
            raise
        return None


def kill(brokers, victim):
    if victim == "leader":
        leading = brokers.image().topics["out"].assignments[1].leader
    elif victim == "group":
        leading = coordinator_of(brokers, "g", "__consumer_offsets")
    else:
        leading = coordinator_of(brokers, "mine")
    brokers[leading].kill()
    brokers[leading].restart()
