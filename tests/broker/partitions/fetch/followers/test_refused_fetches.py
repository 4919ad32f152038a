"""Fetches of followers that the leader refuses, or answers otherwise than a follower hopes."""

from __future__ import annotations

import logging
import time
from collections import Counter

from tests.broker.partitions.inside import eventually, produce, values_of
from tidelog.broker.partitions import replication_state
from tidelog.broker.partitions.fetch.followers.follower_fetch import FollowerFetch
from tidelog.broker.partitions.fetch.followers.session import FollowerSession
from tidelog.broker.partitions.following.fetcher import Fetcher
from tidelog.broker.partitions.following.partition_follower import PartitionFollower
from tidelog.protocol.errors import InvalidFetchSessionEpoch


def warnings(caplog):
    """Returns what the replicas have warned of until now."""
    return [
        (each.message, each.broker, str(each.reason))
        for each in caplog.records
        if each.name == "tidelog.replicas" and each.levelno >= logging.WARNING
    ]


async def test_a_follower_that_is_refused_again_and_again_asks_less_often(two, monkeypatch, caplog):
    refused_s = []

    def refuse(*_):
        refused_s.append(time.monotonic())
        raise InvalidFetchSessionEpoch

    take = FollowerSession.take
    monkeypatch.setattr(FollowerSession, "take", refuse)
    await two.create("t", ((1, 2),))
    await eventually(lambda: refused_s and refused_s[-1] - refused_s[-2:][0] >= 0.3)
    reason = (
        "a fetch is refused: INVALID_FETCH_SESSION_EPOCH: The fetch session expects another epoch."
    )
    assert warnings(caplog) == [("fetch from leader failed", 1, reason)]
    monkeypatch.setattr(FollowerSession, "take", take)
    assert (await produce(two[1], "t", b"a")).error_code == 0


async def test_a_leader_without_sessions_is_asked_for_everything_each_time(
    two, monkeypatch, caplog
):
    read = FollowerFetch._read_all

    def without_session(self, asked, permit):
        answer = read(self, asked, permit)
        answer.session_id = 0
        return answer

    monkeypatch.setattr(FollowerFetch, "_read_all", without_session)
    await two.create("t", ((1, 2),) * 2)
    connections = await eventually(lambda: set(two[1].node.connections))
    for value in (b"a", b"b"):
        for index in (0, 1):
            assert (await produce(two[1], "t", value, index=index)).error_code == 0
    assert connections <= set(two[1].node.connections)
    assert [values_of(two[2].log("t", index)) for index in (0, 1)] == [[b"a", b"b"]] * 2
    assert warnings(caplog) == []


async def test_records_without_the_state_of_the_log_fail_their_partition_alone(
    two, monkeypatch, caplog
):
    read = replication_state.read_for_follower

    def read_some(partition, *arguments, **options):
        found = read(partition, *arguments, **options)
        if partition.index == 0:
            found.data.replication_state = None
        return found

    await two.create("t", ((1, 2),) * 2)
    connections = await eventually(lambda: set(two[1].node.connections))
    monkeypatch.setattr(replication_state, "read_for_follower", read_some)
    assert (await produce(two[1], "t", b"a", acks=1)).error_code == 0
    said = "CORRUPT_MESSAGE: the leader sent records without the state of its log"
    await eventually(lambda: said in {getattr(each, "reason", "") for each in caplog.records})
    assert (await produce(two[1], "t", b"b", index=1)).error_code == 0
    assert connections <= set(two[1].node.connections)
    assert values_of(two[2].log("t")) == []


async def test_a_leader_with_little_room_serves_partitions_in_turn(two, monkeypatch):
    append, send, served = PartitionFollower._append, Fetcher._send, []
    ends = [("busy", 0), ("busy", 1), ("other", 0)]

    def noted(self, data, *limit):
        served.append((self.partition.topic, self.partition.index))
        append(self, data, *limit)

    def send_together(self):
        # Replicas begin to follow one after another: nothing is asked for before all are ready.
        if served or len(self._to_ask) == len(ends):
            send(self)

    await two.create("busy", ((1, 2),) * 2)
    await two.create("other", ((1, 2),))
    for name, index in ends:  # the first append takes long
        assert (await produce(two[1], name, b"a", index=index)).error_code == 0
    await two[2].lose_session()
    for _ in range(10):
        for name, index in ends:
            await produce(two[1], name, b"a", index=index, acks=1)
    monkeypatch.setattr(PartitionFollower, "_append", noted)
    monkeypatch.setattr(Fetcher, "_send", send_together)
    two[2].replicas.fetching.partition_max_bytes = two[2].replicas.fetching.response_max_bytes = 1
    await two[2].register()
    for name in ends:
        await eventually(lambda at=name: two[2].log(*at).log_end_offset == 11)
    first = Counter(served[:15])
    assert min(first[name] for name in ends) >= 3
