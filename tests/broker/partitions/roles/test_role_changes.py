"""A change of role while threads are at work on the log."""

from __future__ import annotations

import asyncio
import random
import threading

from tests.broker.partitions.inside import append, eventually, part_of, produce, values_of
from tidelog.broker.lifecycle.cluster import NO_SESSION
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records.batch import build
from tidelog.protocol.records.layout import Compression, Record

LARGE_BYTES = 20_000  # of compressed records: a thread appends them
APPEND_THREADS = 2
LONG_S = 60
SOON_S = 0.2


def append_large(broker, value: bytes, *, acks: int):
    """Appends a batch in a thread."""
    key = random.Random(1).randbytes(LARGE_BYTES)
    records = build([Record(0, 1_000, key, value)], compression=Compression.GZIP)
    return append(broker, "t", records, acks=acks)


class BusyThreads:
    """Keeps all threads for appends of a broker busy while a `with` lasts."""

    def __init__(self, broker) -> None:
        self._pool = broker.node.pools.appends
        self._end = threading.Event()
        self._work = []

    def __enter__(self):
        self._work = [self._pool.submit(self._end.wait, LONG_S) for _ in range(APPEND_THREADS)]
        return self

    def __exit__(self, *_):
        self._end.set()


async def test_a_role_waits_for_an_append_in_a_thread_and_its_producer_is_refused(three):
    await three.create("t")
    await produce(three[1], "t", b"first")
    old = three[1]
    log = old.log("t")
    with BusyThreads(old):
        sent = asyncio.create_task(append_large(old, b"late", acks=-1))
        await eventually(lambda: old.node.appends.is_busy(log))
        await three.elect("t", 2)
        await eventually(lambda: not old.leads("t"))
        await asyncio.sleep(SOON_S)
        assert log.state.leadership.epoch == 0, "a role has begun beside the append"
        assert not sent.done()
    answer = part_of(await sent)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await produce(three[2], "t", b"second")).base_offset == 1
    await eventually(lambda: values_of(log) == [b"first", b"second"])
    assert log.state.leadership.epoch == 1
    assert log.state.epochs.entries == three[2].log("t").state.epochs.entries


async def test_who_waits_for_the_disk_of_a_leader_is_refused_when_another_one_leads(three):
    """The next role may cut what was appended, and then no sync would end the wait."""
    await three.create("t", configs={"flush.messages": "1"})
    log = three[1].log("t")
    with log.state.commit_lock:  # the disk does not answer
        sent = [asyncio.create_task(produce(three[1], "t", b"v", acks=acks)) for acks in (1, -1)]
        await eventually(lambda: log.log_end_offset == 2)
        await three.elect("t", 2)
        async with asyncio.timeout(LONG_S):
            answers = await asyncio.gather(*sent)
    assert [each.error_code for each in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


async def test_who_leads_again_waits_for_an_append_of_its_last_epoch(three):
    await three.create("t")
    await produce(three[1], "t", b"first")
    old = three[1]
    log = old.log("t")
    with BusyThreads(old):
        sent = asyncio.create_task(append_large(old, b"late", acks=1))
        await eventually(lambda: old.node.appends.is_busy(log))
        await three.put("t", leader=1, leader_epoch=1)
        await eventually(lambda: not old.leads("t"))
        await asyncio.sleep(SOON_S)
        assert log.state.leadership.epoch == 0
    await sent
    await eventually(lambda: old.leads("t"))
    assert (await produce(old, "t", b"second")).base_offset == 2
    # What was appended before the epoch began belongs to the one before.
    assert [tuple(each) for each in log.state.epochs.entries] == [(0, 0), (1, 2)]
    await eventually(lambda: three[3].log("t").log_end_offset == 3)
    assert values_of(three[3].log("t")) == [b"first", b"late", b"second"]


async def test_no_role_begins_in_a_session_that_has_ended_while_the_log_began_its_epoch(three):
    """Another lease may be there by now, and the end of the session is not known to the partition yet."""
    await three.create("t")
    two, log = three[2], three[2].log("t")
    with log.state.append_lock:  # the epoch cannot begin
        await three.put("t", leader=2, leader_epoch=1)
        await eventually(lambda: two.replicas.followed_by_id(log.topic_id, 0) is None)
        two.cluster.epoch = NO_SESSION
    await eventually(lambda: log.state.leadership.epoch == 1)
    await asyncio.sleep(SOON_S)
    assert not two.leads("t")
    await two.lose_session()
    await two.register()
    await eventually(lambda: two.leads("t"))


async def test_no_role_of_a_deleted_topic_is_taken_on_the_log_of_one_with_its_name(three):
    await three.create("t")
    await three.elect("t", 2)
    last = three[3]
    await eventually(lambda: last.log("t").state.leadership.epoch == 1)
    before = last.node.metadata.image
    await last.node.metadata.delete_topic("t")
    await eventually(lambda: not last.node.metadata.image.deletions)
    again = await three.create("t")
    await eventually(lambda: last.replicas.followed_by_id(again.topic_id, 0))

    # A session begins before the roles of the deleted topic have been ended.
    await last.replicas.assigned.apply(before)
    await asyncio.sleep(SOON_S)
    assert last.log("t").state.leadership.epoch == 0
    await last.replicas.assigned.apply(last.node.metadata.image)
    await produce(three[1], "t", b"first")
    await eventually(lambda: values_of(last.log("t")) == [b"first"])

    await three.create("other")  # with the next image nothing of the deleted topic is left
    await eventually(lambda: len(last.replicas.assigned.here()) == 2)
