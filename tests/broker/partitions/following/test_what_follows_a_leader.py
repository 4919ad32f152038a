"""What followers take over from their leader: its log start, deletions, and where it begins."""

from __future__ import annotations

import asyncio
import threading
import time

from tests.broker import asking
from tests.broker.partitions.inside import (
    delete_before,
    eventually,
    list_end,
    produce,
    values_of,
)
from tests.oracle import recordset, wire
from tidelog.broker.partitions.following.leader_clocks import LeaderClocks
from tidelog.broker.partitions.produce.appends import Appends
from tidelog.protocol.errors import ErrorCode
from tidelog.storage.log.times import partition_times


async def test_records_are_deleted_when_all_live_replicas_have_deleted_them(three):
    await three.create("t")
    for value in (b"a", b"b", b"c"):
        await produce(three[1], "t", value)
    answer = await delete_before(three[1], "t", 2)
    assert (answer.error_code, answer.low_watermark) == (0, 2)
    assert [each.log("t").log_start_offset for each in three.all.values()] == [2, 2, 2]


async def test_a_silent_replica_lets_a_deletion_time_out(three):
    await three.create("t")
    await produce(three[1], "t", b"a")
    await three[3].lose_session(is_noticed=False)
    answer = await delete_before(three[1], "t", 1, timeout_ms=100)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    await three[3].register()
    await eventually(lambda: three[3].log("t").log_start_offset == 1)


async def test_a_leaders_clock_is_noted_in_a_thread(three, monkeypatch):
    """What is noted is durable, and the event loop waits for no disk."""
    await three.create("t")
    await produce(three[1], "t", b"a")
    await eventually(lambda: three[2].log("t").high_watermark == 1)
    write, threads = partition_times.write, []

    def seen(directory, data, **how):
        threads.append(threading.current_thread())
        write(directory, data, **how)

    monkeypatch.setattr(partition_times, "write", seen)
    monkeypatch.setattr(LeaderClocks, "behind_ms", lambda *_: 30_000)
    await produce(three[1], "t", b"b")
    await eventually(lambda: three[2].log("t").state.timing.written_behind is not None)
    assert threads
    assert threading.main_thread() not in threads


async def test_the_end_is_not_said_before_a_new_leader_knows_it(three):
    await three.create("t")
    await produce(three[1], "t", b"a")
    for number in (1, 3):
        await three[number].lose_session()
    with three[2].log("t").state.append_lock:
        three[2].log("t").state.cut_ends(1, 0)  # its high watermark lags
    await three.elect("t", 2)
    answer = await list_end(three[2], "t")
    assert answer.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    for number in (1, 3):
        await three[number].register()
    await eventually(lambda: three[2].log("t").high_watermark == 1)
    assert (await list_end(three[2], "t")).offset == 1


async def test_a_follower_behind_the_leaders_log_start_begins_there(three):
    await three.create("t")
    await produce(three[1], "t", b"a")
    await three[3].lose_session()
    await three.put("t", isr=(1, 2))
    for value in (b"b", b"c", b"d"):
        await produce(three[1], "t", value)
    await delete_before(three[1], "t", 3, timeout_ms=100)
    assert three[1].log("t").log_start_offset == 3
    await three[3].register()
    await eventually(lambda: set(three.record("t").isr) == {1, 2, 3})
    log = three[3].log("t")
    assert (log.log_start_offset, values_of(log)) == (3, [b"d"])
    assert log.last_append_time == three[1].log("t").last_append_time


async def test_a_checkpoint_that_is_faster_than_the_loop_delays_no_acknowledgement(
    three, monkeypatch
):
    """It makes durable what a thread has appended, before the loop hears of the append."""
    write_in_turn = Appends._write

    def write_in_a_thread(self, partition, write, *, waits, is_heavy):
        def write_and_make_durable(**times):
            appended = write(**times)
            time.sleep(0.3)  # followers hear of the log's new end meanwhile, and park their fetches
            partition.commit()
            return appended

        return write_in_turn(self, partition, write_and_make_durable, waits=waits, is_heavy=True)

    monkeypatch.setattr(Appends, "_write", write_in_a_thread)
    for each in three.all.values():
        each.replicas.fetching.fetch_wait_ms = 50
    await three.create("t", configs={"flush.messages": "1"})
    async with asyncio.timeout(60):
        answer = await produce(three[1], "t", b"a")
    assert (answer.error_code, answer.base_offset) == (0, 0)


async def test_with_flush_messages_1_only_what_is_durable_everywhere_is_acknowledged(three):
    await three.create("t", configs={"flush.messages": "1"})
    answer = await produce(three[1], "t", b"a")
    assert answer.error_code == 0
    assert [each.log("t").durable_offset for each in three.all.values()] == [1, 1, 1]
    assert (await produce(three[1], "t", b"b", acks=1)).error_code == 0
    assert three[1].log("t").durable_offset == 2


def append_as_producer(port):
    """Appends two records to t-0 as producer 4000."""
    records = recordset.batch(
        asking.values("a", "b"), producer_id=4_000, producer_epoch=0, base_sequence=0
    )
    with wire.Connection(f"127.0.0.1:{port}") as connection:
        assert asking.produce(connection, "t", records)["error_code"] == 0


def producers_of(port):
    """The error code of t-0, and its producers with their last sequences, as one broker tells them."""
    topics = [{"name": "t", "partition_indexes": [0]}]
    with wire.Connection(f"127.0.0.1:{port}") as connection:
        (told,) = connection.ask("DescribeProducers", 0, topics=topics)["topics"][0]["partitions"]
    return told["error_code"], [
        (each["producer_id"], each["last_sequence"]) for each in told["active_producers"]
    ]


async def test_a_follower_tells_the_producers_that_it_knows_itself(three):
    await three.create("t", ((1, 2),))
    await asyncio.to_thread(append_as_producer, three[1].port)
    told = [await asyncio.to_thread(producers_of, three[each].port) for each in (1, 2, 3)]
    assert told == [
        (0, [(4_000, 1)]),
        (0, [(4_000, 1)]),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, []),
    ]


async def test_a_deleted_topic_is_deleted_by_each_broker_that_has_it(three):
    made = await three.create("t", ((1, 2, 3), (2, 3)))
    await produce(three[1], "t", b"a")
    await three[1].node.topics.delete("t")
    for broker in three.all.values():
        await eventually(lambda at=broker: not at.node.store.indexes("t"))
        await eventually(lambda at=broker: made.topic_id not in at.node.metadata.image.deletions)


async def test_a_replica_that_is_reassigned_leaves_its_broker(three):
    await three.create("t", ((1, 2),))
    await produce(three[1], "t", b"a")
    assert not three[3].node.store.indexes("t")
    await three.put("t", replicas=(1, 3), isr=(1,))
    await eventually(lambda: not three[2].node.store.indexes("t"))
    await eventually(lambda: set(three.record("t").isr) == {1, 3})
    assert values_of(three[3].log("t")) == [b"a"]
