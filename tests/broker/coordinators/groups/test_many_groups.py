"""Offsets and groups that go without a request, many at once: all others have their turn meanwhile.

The work is counted in lines of Python that the event loop executes, so no machine makes a difference.
"""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

from tests.broker.inside import Inside
from tests.broker.network.test_holds import WorkClock
from tests.broker.polls import Polls

GROUPS, PARTITIONS = 150, 400
_MOST_LINES = 25_000  # a few milliseconds; at once it would be more than twice as many


class Held:
    """A broker, and the most lines that its event loop executes from one poll to the next."""

    def __init__(self, broker, clock):
        self.broker, self._clock = broker, clock
        self._polls = broker.call(lambda: Polls(broker._loop, lambda: clock.lines))

    def most_lines(self, work):
        self.broker.call(lambda: sys.settrace(self._clock.trace))
        self.broker.call(self._polls.forget)
        work()
        self.broker.call(lambda: sys.settrace(None))
        return self._polls.longest

    def groups(self):
        return self.broker.call(lambda: len(self.broker.node.coordinator.runtime.all()))

    def run(self, coroutine):
        asyncio.run_coroutine_threadsafe(coroutine, self.broker._loop).result(60)

    def expire(self):
        self.run(self.broker.node.coordinator.cleanup.expire())

    def delete(self, topic):
        with self.broker.connect() as connection:
            connection.ask("DeleteTopics", 0, topic_names=[topic], timeout_ms=60_000)


@pytest.fixture
def held(tmp_path):
    clock = WorkClock()
    with Inside(tmp_path, clock) as broker:
        broker.call(broker.node.coordinator.start)
        with broker.connect() as connection:
            for name, partitions in (("many", 1), ("wide", PARTITIONS)):
                topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
                connection.ask("CreateTopics", 0, topics=[topic], timeout_ms=60_000)
        found = Held(broker, clock)
        with broker.connect() as connection:  # what is imported now is no work of the tests
            commit(connection, "first", "many", 1, 1)
            time.sleep(0.01)
            found.expire()
            found.delete("none")
        yield found


def commit(connection, group, topic, partitions, retention_ms=-1):
    offsets = [
        {"partition_index": index, "committed_offset": 0, "committed_metadata": ""}
        for index in range(partitions)
    ]
    answer = connection.ask(
        "OffsetCommit",
        2,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time_ms=retention_ms,
        topics=[{"name": topic, "partitions": offsets}],
    )
    codes = {each["error_code"] for topic in answer["topics"] for each in topic["partitions"]}
    assert codes == {0}


def commit_all(held, retention_ms=-1):
    """Makes many groups with an offset each, and one with many."""
    with held.broker.connect() as connection:
        for number in range(GROUPS):
            commit(connection, f"g{number}", "many", 1, retention_ms)
        commit(connection, "one", "wide", PARTITIONS, retention_ms)
    assert held.groups() == GROUPS + 1


@pytest.mark.slow
@pytest.mark.parametrize(("topic", "left"), [("many", 1), ("wide", GROUPS)])
def test_the_offsets_of_a_deleted_topic_go_in_slices(held, topic, left):
    commit_all(held)
    assert held.most_lines(lambda: held.delete(topic)) < _MOST_LINES
    assert held.groups() == left


def test_offsets_expire_in_slices(held):
    commit_all(held, retention_ms=1)
    time.sleep(0.01)
    assert held.most_lines(held.expire) < _MOST_LINES
    assert held.groups() == 0


@pytest.mark.slow
def test_the_offsets_of_a_topic_that_is_there_again_stay(held):
    commit_all(held)
    held.run(held.broker.node.coordinator.cleanup.delete_topic("many"))
    assert held.groups() == GROUPS + 1
