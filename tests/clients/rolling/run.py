"""Restarts under load: brokers are stopped and started while clients work.

`roll` does what an operator does for a new release: SIGTERM, wait for its end, start again, wait until every
partition has all its replicas, the next one. `stop_all` leaves clients without any broker for some seconds.
Every client of `clients.ROLLING` sends and reads all the time.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.broker.subject import json_at
from tests.clients import topics
from tests.clients.environments import Unavailable
from tests.clients.rolling.load import PARTITIONS, Load, Log, Verdict, Work, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.clients.clients import Client
    from tidelog.cluster import BrokerCluster

BEGIN_WITHIN_S = 120.0
IN_SYNC_WITHIN_S = 60.0
DOWN_S = 1.0  # how long a broker stays down
ALL_DOWN_S = 5.0  # how long all of them do: longer than clients wait before they try once more
BETWEEN_S = 1.0
READ_TIMEOUT_S = 60.0


class Rolled(NamedTuple):
    """One client's part in a rolling restart."""

    version: str
    work: Work
    verdict: Verdict


def roll(cluster: BrokerCluster) -> list[float]:
    """Restarts every broker, one at a time; returns how long each was away, in s."""
    away = []
    for broker in range(1, len(cluster) + 1):
        began_s = time.monotonic()
        if status := cluster.stop(broker):
            raise AssertionError(f"broker {broker} ended with status {status}")
        time.sleep(DOWN_S)
        cluster.restart(broker)
        away.append(time.monotonic() - began_s)
        wait_in_sync(cluster)
        time.sleep(BETWEEN_S)
    return away


def stop_all(cluster: BrokerCluster) -> None:
    """Stops every broker and starts them again: meanwhile there is neither a leader nor a coordinator."""
    for broker in range(len(cluster), 0, -1):
        if status := cluster.stop(broker):
            raise AssertionError(f"broker {broker} ended with status {status}")
    time.sleep(ALL_DOWN_S)
    for broker in range(1, len(cluster) + 1):
        cluster.restart(broker)
    wait_in_sync(cluster)


def wait_in_sync(cluster: BrokerCluster) -> None:
    """Waits until every partition has a leader and all its replicas in sync."""
    deadline_s = time.monotonic() + IN_SYNC_WITHIN_S
    while True:
        found = json_at(cluster[1].http, "/v1/cluster")[1]["partitions"]
        if not (behind := [each for each in found if each["state"] != "ok"]):
            return
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not in sync after {IN_SYNC_WITHIN_S:.0f} s: {behind[:3]}")
        time.sleep(0.1)


def stored(server: str, topic: str) -> Log:
    """Everything a topic holds, read by a client that took no part."""
    client = Consumer({"bootstrap.servers": server, "group.id": "judge", "log_level": 0})
    places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    try:
        ends = [client.get_watermark_offsets(place, timeout=READ_TIMEOUT_S)[1] for place in places]
        log: Log = {number: [] for number in range(PARTITIONS)}
        client.assign(places)
        deadline_s = time.monotonic() + READ_TIMEOUT_S
        while any(len(log[number]) < end for number, end in enumerate(ends)):
            for message in client.consume(1000, timeout=0.2):
                if message.error() is not None:
                    raise AssertionError(f"{topic} cannot be read: {message.error()}")
                log[message.partition()].append(message.value().decode())
            if time.monotonic() > deadline_s:
                raise AssertionError(f"{topic} ends at {ends}, of which not all can be read")
        return log
    finally:
        client.close()


def run(
    cluster: BrokerCluster,
    chosen: Sequence[Client],
    restart: Callable[[BrokerCluster], object] = roll,
) -> tuple[dict[str, Rolled], dict[str, str]]:
    """Restarts the cluster while clients work; what each did by its name, and who was skipped and why."""
    skipped: dict[str, str] = {}
    with ExitStack() as stack:
        loads = []
        for client in chosen:
            try:
                loads.append(stack.enter_context(Load(client, cluster.bootstrap)))
            except Unavailable as reason:
                skipped[client.name] = str(reason)
        wanted = [NewTopic(load.topic, PARTITIONS, topics.REPLICAS) for load in loads]
        topics.create(cluster.bootstrap, wanted)
        wait_in_sync(cluster)
        for load in loads:
            load.start()
        deadline_s = time.monotonic() + BEGIN_WITHIN_S
        while any(not load.handed and not load.has_failed() for load in loads):
            if time.monotonic() > deadline_s:
                break  # the verdict tells who was handed nothing
            time.sleep(0.1)
        for load in loads:
            load.measure_from_now()
        restart(cluster)
        works = [(load, load.finish()) for load in loads]
        rolled = {}
        for load, work in works:
            verdict = judge(work, stored(cluster.bootstrap, work.topic))
            rolled[load.client.name] = Rolled(load.version, work, verdict)
        return rolled, skipped


def table(rolled: dict[str, Rolled]) -> str:
    """What each client did, as a Markdown table."""
    heads = ("client", "sent", "handed out", "twice in the log", "handed out twice")
    heads += ("longest send", "longest silence")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for each in rolled.values():
        work, verdict = each.work, each.verdict
        twice = "none (idempotent)" if work.idempotent else str(verdict.sent_twice)
        lines.append(
            f"| {each.version} | {work.sent} | {len(work.handed)} | {twice} | {verdict.handed_twice} "
            f"| {work.longest_send_ms} ms | {work.longest_silence_ms} ms |"
        )
    return "\n".join(lines)
