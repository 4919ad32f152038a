"""Rows about consumer groups: a rebalance of many members, commits, many consumers of one topic.

The clients are prepared bytes on one event loop (members.py), the same for both brokers. `client`
is how much of a CPU they used: near 100 per cent the wall-clock figure is the client's, and only
the broker's CPU is meaningful.
"""

from __future__ import annotations

import statistics
import time
import uuid
from typing import TYPE_CHECKING

import loads
import members
import prepared
import raw
from brokers import cpu_s
from rows import Figure, Place, Row, drop_topic_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_MEMBERS = 100
_CONSUMERS = 50
_BATCH = 500


def _client(what: str) -> Figure:
    return Figure("client", f"{what}: the client's share of its CPU", "%", 0)


def rebalance_row() -> Row:
    """All members of a group join and sync again: wall-clock time, and the broker's CPU."""
    rounds = 10

    def measure(place: Place) -> dict[str, float]:
        group = f"rebalance-{uuid.uuid4().hex[:8]}"
        broker = place.broker
        found = members.run(
            members.rebalances(broker.port, group, _MEMBERS, rounds, lambda: cpu_s(broker))
        )
        return {
            "wall": statistics.median(one.seconds for one in found) * 1e3,
            "cpu": sum(one.broker_cpu_s for one in found) / rounds * 1e3,
            "client": statistics.median(one.client_share for one in found),
        }

    title = f"rebalance of {_MEMBERS} members"
    figures = (
        Figure("wall", f"{title}, until the last is assigned", "ms", 1),
        Figure("cpu", f"{title}, broker CPU", "ms", 1),
        _client(title),
    )
    return Row("rebalance", figures, _coordinator, measure, drop_topic_of)


def _coordinator(place: Place) -> str:
    """Creates the coordinator: Apache Kafka creates its topic at the first request."""
    topic = loads.make_topic(place.broker, "groups", _CONSUMERS)
    frames = [members.commit_v7("bench-warm-up", topic, 0)]
    members.settle(place.broker.port, frames, members.commit_v7_error_at(topic))
    return topic


def commits_row(key: str, title: str, groups: int, connections: int, depth: int) -> Row:
    """OffsetCommit of one partition as fast as the broker answers."""

    def frames(topic: str) -> Sequence[bytes]:
        return [
            members.commit_v7(f"bench-{at % groups}", topic, at % _CONSUMERS)
            for at in range(connections)
        ]

    def prepare(place: Place) -> str:
        topic = _coordinator(place)
        members.settle(place.broker.port, frames(topic), members.commit_v7_error_at(topic))
        return topic

    def measure(place: Place) -> dict[str, float]:
        topic, broker = place.state, place.broker
        before, began = time.process_time(), time.perf_counter()
        done = raw.pipelined(
            broker.port,
            frames(topic),
            depth,
            members.commit_v7_error_at(topic),
            3 * place.scale,
            lambda: cpu_s(broker),
        )
        used, took = time.process_time() - before, time.perf_counter() - began
        return {
            "rate": done.requests / done.broker_cpu_s,
            "wall": done.requests / done.seconds,
            "client": 100 * used / took,
        }

    figures = (
        Figure("rate", f"{title}, per second of broker CPU", "1/s", 0),
        Figure("wall", f"{title}, per second by the clock", "1/s", 0),
        _client(title),
    )
    return Row(key, figures, prepare, measure, drop_topic_of)


def consumers_row() -> Row:
    """Fifty consumers, each of one partition, read all records."""
    count, size, passes = 1_000_000, 100, 4

    def per_partition(place: Place) -> int:
        return max(1, place.scaled(count) // _CONSUMERS // _BATCH) * _BATCH

    def prepare(place: Place) -> str:
        topic = loads.make_topic(place.broker, "consumers", _CONSUMERS)
        records = prepared.batch_v2(loads.values_of(size)[:_BATCH], int(time.time() * 1000))
        with raw.connect(place.broker.port) as connection:
            for index in range(_CONSUMERS):
                frame = prepared.produce_v9(topic, index, records)
                at = prepared.produce_v9_error_at(topic)
                for _ in range(per_partition(place) // _BATCH):
                    answer = raw.exchange(connection, frame)
                    if answer[at : at + 2] != b"\0\0":
                        raise raw.RawError(f"Produce answered {answer.hex()}")
        return topic

    def measure(place: Place) -> dict[str, float]:
        broker, each = place.broker, per_partition(place)
        took = members.run(
            members.consumers(
                broker.port, place.state, each, _CONSUMERS, passes, lambda: cpu_s(broker)
            )
        )
        records = each * _CONSUMERS * passes
        return {
            "cpu": took.broker_cpu_s / records * 1e6,
            "wall": records / took.seconds / 1e6,
            "client": took.client_share,
        }

    title = f"fetch by {_CONSUMERS} consumers of one topic, 100 B"
    figures = (
        Figure("cpu", f"broker CPU, {title}", "s/M", 3),
        Figure("wall", f"{title}, by the clock", "M/s", 2),
        _client(title),
    )
    return Row("consumers", figures, prepare, measure, drop_topic_of)


GROUP_ROWS: tuple[Row, ...] = (
    rebalance_row(),
    commits_row("commits-1", "commits of 8 clients of one group, 4 under way each", 1, 8, 4),
    commits_row("commits-50", "commits of 50 groups, one client each", 50, 50, 1),
    consumers_row(),
)
