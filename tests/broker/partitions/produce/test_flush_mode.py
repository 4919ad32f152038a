"""Flush mode over TCP: who is answered when, how many share a sync, and what a failed one does."""

import asyncio
import contextlib
import errno
import threading

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from tests.broker import asking
from tests.broker.inside import Inside
from tests.broker.subject import eventually
from tests.simulation.disks import Disk
from tidelog.broker.logs.maintenance.checkpoint import checkpoint as make_durable
from tidelog.storage import files

STORAGE_ERROR = 56
PRODUCERS = 8


@pytest.fixture
def disk():
    disk = Disk()
    before = files.use(disk)
    yield disk
    disk.may_sync.set()
    files.use(before)


@pytest.fixture
def broker(tmp_path, disk):
    with Inside(tmp_path) as broker:
        yield broker
        disk.may_sync.set()  # or it could not stop


def create(broker, **settings):
    topic = asking.new_name()
    with broker.connect() as connection:
        asking.create(connection, topic, **settings)
        assert asking.produce(connection, topic, asking.batch_of("first"))["error_code"] == 0
    return topic


def create_durable(broker):
    """Creates a topic in flush mode; returns its name and the partition."""
    topic = create(broker, **{"flush.messages": "1"})
    return topic, broker.node.store.partition(topic, 0)


def checkpoint(broker):
    """Carries a checkpoint out on the loop of the broker."""
    done = broker.call(
        lambda: asyncio.ensure_future(
            make_durable(broker.node.store, broker.node.pools, broker.node.purgatory)
        )
    )
    eventually(done.done)
    done.result()


class Producing:
    """One connection that produces in a thread; `answer` is what it got."""

    def __init__(self, broker, topic, acks=-1):
        self.answer = None
        self._thread = threading.Thread(target=self._work, args=(broker, topic, acks))
        self._thread.start()

    def _work(self, broker, topic, acks):
        with broker.connect() as connection:
            self.answer = asking.produce(connection, topic, asking.batch_of("more"), acks=acks)

    def join(self):
        self._thread.join(60)
        return self.answer


def many_wait_for_one_sync(broker, disk):
    """Hold the disk, let many produce, release it; the answers, and how often a log was committed."""
    topic, partition = create_durable(broker)
    eventually(lambda: partition.high_watermark == 1, what="the first record to be durable")
    before = broker.node.metrics.commits
    disk.is_syncing.clear()
    disk.may_sync.clear()
    producing = [Producing(broker, topic, acks) for acks in (-1, 1) * (PRODUCERS // 2)]
    eventually(lambda: partition.log_end_offset == PRODUCERS + 1, what="all to be written")
    assert disk.is_syncing.wait(60)
    with broker.connect() as connection:
        assert asking.list_offset(connection, topic, -1)["offset"] == 1, "the end moved too early"
        assert asking.fetch(connection, topic, 1)["records"] in (None, b""), "shown too early"
    early = [each.answer for each in producing if each.answer is not None]
    assert not early, "acknowledged before the sync"
    disk.may_sync.set()
    answers = [each.join() for each in producing]
    assert [answer["error_code"] for answer in answers] == [0] * PRODUCERS
    assert sorted(answer["base_offset"] for answer in answers) == list(range(1, PRODUCERS + 1))
    return broker.node.metrics.commits - before


def test_many_producers_share_a_sync(broker, disk):
    assert 1 <= many_wait_for_one_sync(broker, disk) <= 2


def test_acks_0_waits_for_no_disk(broker, disk):
    topic, partition = create_durable(broker)
    disk.may_sync.clear()
    with broker.connect() as connection:
        for _ in range(3):
            asking.produce(connection, topic, asking.batch_of("x"), acks=0)
        eventually(lambda: partition.log_end_offset == 4, what="three appends without an answer")
        assert partition.high_watermark == 1
        disk.may_sync.set()
        eventually(lambda: partition.high_watermark == 4, what="the sync all the same")


def test_a_waiting_consumer_is_woken_by_the_sync(broker, disk):
    topic, partition = create_durable(broker)
    disk.may_sync.clear()
    producing = Producing(broker, topic)
    eventually(lambda: partition.log_end_offset == 2, what="the append")
    got = []
    with broker.connect() as connection:
        waiting = threading.Thread(
            target=lambda: got.append(asking.fetch(connection, topic, 1, max_wait_ms=200_000))
        )
        waiting.start()
        eventually(lambda: len(broker.node.purgatory) == 1, what="the consumer to wait")
        disk.may_sync.set()
        waiting.join(60)
    assert got
    assert got[0]["records"]
    assert producing.join()["error_code"] == 0


def test_flush_ms_makes_records_durable_in_the_background(broker):
    topic = create(broker, **{"flush.ms": "5"})
    partition = broker.node.store.partition(topic, 0)
    eventually(lambda: partition.durable_offset == 1, what="the first record to be durable")
    with broker.connect() as connection:
        assert asking.produce(connection, topic, asking.batch_of("x"))["error_code"] == 0
    eventually(lambda: partition.durable_offset == 2, what="the second, by another timer")


def test_flush_messages_of_three_lets_the_third_wait(broker, disk):
    topic = create(broker, **{"flush.messages": "3"})
    partition = broker.node.store.partition(topic, 0)
    with broker.connect() as connection:
        disk.may_sync.clear()
        assert asking.produce(connection, topic, asking.batch_of("x"))["error_code"] == 0
        assert partition.durable_offset == 0
        third = Producing(broker, topic)
        assert disk.is_syncing.wait(60)
        eventually(lambda: partition.log_end_offset == 3, what="the third append")
        assert third.answer is None
        disk.may_sync.set()
        assert third.join()["error_code"] == 0
    assert partition.durable_offset == 3


def test_a_failed_sync_is_said_to_everybody(broker, disk):
    topic, other = create(broker, **{"flush.messages": "1"}), create(broker)
    assert broker.page("/readyz")[0] == 200
    disk.failures = 1
    with broker.connect() as connection:
        refused = asking.produce(connection, topic, asking.batch_of("lost"))
        assert refused["error_code"] == STORAGE_ERROR
        assert "Input/output error" in refused["error_message"]
        again = asking.produce(connection, topic, asking.batch_of("again"))
        assert (again["error_code"], "offline" in again["error_message"]) == (STORAGE_ERROR, True)
        assert asking.fetch(connection, topic, 0)["error_code"] == STORAGE_ERROR
        assert asking.list_offset(connection, topic, -1)["error_code"] == STORAGE_ERROR
        assert asking.list_offset(connection, topic, 0)["error_code"] == STORAGE_ERROR
        assert asking.produce(connection, other, asking.batch_of("fine"))["error_code"] == 0
    status, reason = broker.page("/readyz")
    assert (status, f"{topic}-0 is offline" in reason) == (503, True)
    assert "Input/output error" in reason
    _, metrics = broker.page("/metrics")
    assert "tidelog_offline_logs 1.0" in metrics
    assert "kafka_log_logmanager_offlinelogdirectorycount 1.0" in metrics


def test_after_a_restart_the_disk_decides(tmp_path, disk):
    with Inside(tmp_path) as broker:
        topic = create(broker, **{"flush.messages": "1"})
        disk.failures = 1
        with broker.connect() as connection:
            assert asking.produce(connection, topic, asking.batch_of("x"))["error_code"] == 56
    with Inside(tmp_path) as broker, broker.connect() as connection:
        assert asking.read_values(connection, topic)[0] == b"first"
        assert asking.produce(connection, topic, asking.batch_of("y"))["error_code"] == 0
        assert broker.page("/readyz")[0] == 200


def test_a_real_client_meets_a_full_disk_and_gets_over_it(broker, disk):
    """Librdkafka retries what is refused, and its records arrive once there is room."""
    topic = create(broker)
    disk.room = 0
    delivered = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 20})
    producer.produce(topic, b"late", on_delivery=lambda error, _: delivered.append(error))
    eventually(
        lambda: producer.poll(0.01) or broker.node.metrics.failed_produces,
        what="a refusal",
    )
    assert not delivered
    with broker.connect() as connection:
        refused = asking.produce(connection, topic, asking.batch_of("x"))
        assert (refused["error_code"], "the disk is full" in refused["error_message"]) == (56, True)
        assert asking.list_offset(connection, topic, 0)["offset"] == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    with contextlib.closing(consumer):
        assert consumer.list_topics(timeout=60).topics[topic].error is None
    with broker.connect() as connection:
        assert asking.read_values(connection, topic) == [b"first"]
        disk.room = None
        assert producer.flush(60) == 0
        assert delivered == [None] or delivered[0].code() == KafkaError.NO_ERROR
        assert asking.read_values(connection, topic) == [b"first", b"late"]
    assert broker.page("/readyz")[0] == 503, "nobody has looked for room yet"
    broker.node.store.restore_reserves(forgets_full=True)
    assert broker.page("/readyz")[0] == 200


def log_bytes(directory):
    return [each.stat().st_size for each in directory.glob("*.log")]


class Picky(Disk):
    """A disk without room for partition.times, or a process without descriptors for a commit's names."""

    is_full = has_no_descriptors = False

    def rename(self, path, target):
        if self.is_full and target.name == "partition.times":
            raise OSError(errno.ENOSPC, "No space left on device")
        super().rename(path, target)

    def open(self, path, flags):
        if self.has_no_descriptors and path.is_dir() and any(log_bytes(path)):
            raise OSError(errno.EMFILE, "Too many open files")
        return super().open(path, flags)


@pytest.fixture
def picky(tmp_path):
    disk = Picky()
    before = files.use(disk)
    try:
        with Inside(tmp_path) as broker:
            yield broker, disk
    finally:
        files.use(before)


def test_what_is_stored_becomes_durable_on_a_disk_without_room(picky):
    broker, disk = picky
    topic, node = asking.new_name(), broker.node
    with broker.connect() as connection:
        asking.create(connection, topic, **{"flush.messages": "1"})
        disk.is_full = True
        for _ in range(2):
            assert asking.produce(connection, topic, asking.batch_of("more"))["error_code"] == 0
        partition = node.store.partition(topic, 0)
        assert (partition.high_watermark, partition.durable_offset) == (2, 2)
        assert partition.recovery_point == 0, "partition.times was written after all"
        disk.is_full = False
        checkpoint(broker)
        assert partition.recovery_point == 2


@pytest.mark.parametrize("later", ["checkpoint", "retry"])
def test_what_failed_to_become_durable_at_first_wakes_who_waits_once_it_has(picky, later):
    """Nobody is refused meanwhile: what is stored would be read later, and be there twice."""
    broker, disk = picky
    topic, node = asking.new_name(), broker.node
    with broker.connect() as connection:
        asking.create(connection, topic, **{"flush.messages": "1"})
        disk.has_no_descriptors = True
        producing = [Producing(broker, topic) for _ in range(2)]
        partition = node.store.partition(topic, 0)
        eventually(lambda: partition.log_end_offset == 2, what="both to be stored")
        eventually(lambda: partition.state.logged_errors, what="a commit to fail")
        assert (partition.high_watermark, partition.offline) == (0, None)
        size, fetched = partition.size, []

        def wait():
            with broker.connect() as other:
                fetched.append(asking.fetch(other, topic, 0, min_bytes=size, max_wait_ms=200_000))

        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: len(node.purgatory) == 1, what="a fetch to wait")
        assert [each.answer for each in producing] == [None, None]
        disk.has_no_descriptors = False
        if later == "checkpoint":
            checkpoint(broker)
        waiting.join(60)
        assert fetched, "nobody has told it"
        assert len(fetched[0]["records"]) >= size
        assert [each.join()["error_code"] for each in producing] == [0, 0]
        assert len(asking.read_values(connection, topic)) == 2
