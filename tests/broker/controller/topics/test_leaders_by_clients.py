"""What clients are answered by a broker that leads a partition no longer, or in a newer epoch."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.broker import asking
from tests.broker.asking import delete_records
from tests.broker.inside import Inside
from tests.broker.subject import eventually
from tidelog.broker.metadata.records import NO_LEADER, PartitionRecord
from tidelog.storage.log import lookup, slices

NOT_LEADER, FENCED, UNKNOWN_EPOCH, UNKNOWN_TOPIC = 6, 74, 75, 3
OTHER = 7


@pytest.fixture
def broker(tmp_path):
    with Inside(tmp_path) as broker, broker.connect() as connection:
        asking.create(connection, "t", partitions=2)
        for partition in (0, 1):
            asking.produce(connection, "t", asking.batch_of("a"), partition=partition)
        yield broker


def lead(broker, leader, epoch):
    """Write the leader and the leader epoch of t-0 into the metadata, and let the logs follow."""

    async def change():
        metadata = broker.node.metadata
        record = PartitionRecord.led_by(leader, epoch)
        await metadata.put_partitions({("t", 0): record}, since=metadata.image)
        await broker.node.topics.start()

    asyncio.run_coroutine_threadsafe(change(), broker._loop).result(60)


def fetched(connection, **how):
    return asking.fetch(connection, "t", **how)["error_code"]


def produced(connection, partition=0):
    answer = asking.produce(connection, "t", asking.batch_of("b"), partition=partition)
    return answer["error_code"]


def listed(connection, **how):
    return asking.list_offset(connection, "t", 0, **how)["error_code"]


def end_asked(connection, partition=0, epoch=-1):
    wanted = {"partition": partition, "current_leader_epoch": epoch, "leader_epoch": 0}
    topics = [{"topic": "t", "partitions": [wanted]}]
    answer = connection.ask("OffsetForLeaderEpoch", 4, replica_id=-1, topics=topics)
    return answer["topics"][0]["partitions"][0]["error_code"]


def deleted(connection, partition=0):
    return delete_records(connection, "t", 0, partition=partition)[0]


def producers_described(connection, partition=0):
    topics = [{"name": "t", "partition_indexes": [partition]}]
    answer = connection.ask("DescribeProducers", 0, topics=topics)
    return answer["topics"][0]["partitions"][0]["error_code"]


def leader(connection):
    """The leader and the leader epoch of t-0, as Metadata names them."""
    topics = [{"name": "t"}]
    answer = connection.ask("Metadata", 9, topics=topics, allow_auto_topic_creation=False)
    found = {each["partition_index"]: each for each in answer["topics"][0]["partitions"]}
    return found[0]["leader_id"], found[0]["leader_epoch"]


REQUESTS = (fetched, produced, listed, end_asked, deleted, producers_described)


@pytest.mark.parametrize("ask", REQUESTS, ids=lambda ask: ask.__name__)
def test_only_the_leader_answers(broker, ask):
    with broker.connect() as connection:
        assert ask(connection) == 0
        lead(broker, OTHER, 4)
        assert ask(connection) == NOT_LEADER
        assert ask(connection, partition=1) == 0
        assert ask(connection, partition=2) == UNKNOWN_TOPIC
        assert leader(connection) == (NO_LEADER, 4), "the other one has no session"


@pytest.mark.parametrize("ask", [fetched, listed, end_asked], ids=lambda ask: ask.__name__)
def test_the_leader_epoch_of_the_client_is_checked(broker, ask):
    lead(broker, 1, 4)
    with broker.connect() as connection:
        assert leader(connection) == (1, 4)
        for epoch, code in ((-1, 0), (4, 0), (3, FENCED), (5, UNKNOWN_EPOCH)):
            assert ask(connection, epoch=epoch) == code


@pytest.mark.parametrize(
    ("change", "known_epoch", "code"), [((OTHER, 4), -1, NOT_LEADER), ((1, 4), 0, FENCED)]
)
def test_a_waiting_fetch_is_answered_when_the_leader_changes(broker, change, known_epoch, code):
    codes = []

    def fetch():
        with broker.connect() as connection:
            codes.append(
                fetched(connection, offset=1, min_bytes=1, max_wait_ms=200_000, epoch=known_epoch)
            )

    waiting = threading.Thread(target=fetch)
    waiting.start()
    eventually(lambda: len(broker.node.purgatory) == 1, what="the fetch to wait")
    lead(broker, *change)
    waiting.join(60)
    assert codes == [code]


@pytest.mark.parametrize("overtake", ["epoch", "truncation"])
@pytest.mark.parametrize("ask", [fetched, listed], ids=lambda ask: ask.__name__)
def test_a_read_that_a_change_overtakes_is_refused(broker, ask, overtake, monkeypatch):
    """The change comes while the read is between its beginning and its end."""
    partition = broker.node.store.partition("t", 0)

    def change():
        if overtake == "epoch":
            partition.leader_epoch += 1
        else:
            partition.truncater.truncate_to(0, below_high_watermark=True)

    def overtaken(find):
        def overtaken_find(*arguments, **how):
            found = find(*arguments, **how)
            change()
            return found

        return overtaken_find

    with broker.connect() as connection:
        assert ask(connection) == 0
        with monkeypatch.context() as patched:
            patched.setattr(slices, "read", overtaken(slices.read))
            patched.setattr(lookup, "find_time", overtaken(lookup.find_time))
            assert ask(connection) == NOT_LEADER
        assert ask(connection) == 0
