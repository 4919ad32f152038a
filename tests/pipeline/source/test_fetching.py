"""Where the fetches of one split go, with a client that answers from a list."""

from __future__ import annotations

import sys

import pytest

from tidelog.client.calls.records import NO_REPLICA, Fetched
from tidelog.client.flow import Node
from tidelog.pipeline.source.fetching import Fetches
from tidelog.pipeline.source.reading import ReadOptions
from tidelog.pipeline.source.splits import Split

RECORDS = memoryview(b"records of the leader")


def answer(replica=NO_REPLICA, records=b""):
    return Fetched(memoryview(records), 10, 10, 0, (), (), replica)


class Client:
    """Every broker names another replica, except to a client without a rack."""

    def __init__(self, named):
        self.asked = []
        self._named = iter(named)

    def begin(self, call, *, otherwise=None):
        self.asked.append(call.target.node_id if isinstance(call.target, Node) else "leader")
        return lambda: answer(next(self._named))

    def perform(self, call):
        self.asked.append("leader")
        return answer(records=RECORDS)


@pytest.mark.parametrize("times", [4, 2 * sys.getrecursionlimit()])
def test_replicas_that_name_each_other_are_left_for_the_leader(times):
    client = Client([2 + number % 2 for number in range(times)])
    fetches = Fetches(client, Split("t", 0, 0, 10, 100, brokers="x"), ReadOptions(rack="r"))
    assert fetches.begin(0)().records == RECORDS
    assert client.asked == ["leader", 2, 3, 2, "leader"]
