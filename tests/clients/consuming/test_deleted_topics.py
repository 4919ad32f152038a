"""How often a consumer asks while one of its topics is deleted: the broker holds its fetches.

A fetch waits for max_wait_ms beside the topic that is gone. The machine may make the client slower, so only
the largest number is demanded.
"""

from __future__ import annotations

import threading
import time

import pytest

from tests.broker import asking
from tests.broker.subject import Subject, eventually
from tests.clients import clients
from tests.clients.environments import Unavailable
from tests.clients.session import ANSWER_TIMEOUT_S, Session
from tests.oracle.wire import Connection

CONSUME_MS = 8_000
MAX_WAIT_MS = 50  # of the consumer of drivers/go/franz.go
LOOP_S = 5


@pytest.mark.clients
@pytest.mark.timeout(300)
def test_franz_go_asks_no_more_often_than_it_waits(tmp_path):
    with Subject(tmp_path / "data", {}) as broker, broker.connect() as connection:
        topics = [asking.new_topic(connection) for _ in range(2)]
        for topic in topics:
            asking.produce(connection, topic, asking.batch_of("x"))
        try:
            command = clients.FRANZ_GO.command(broker.bootstrap)
        except Unavailable as reason:
            pytest.skip(str(reason))
        partitions = [{"topic": each, "partition": 0, "from": 0, "count": 2} for each in topics]
        asked = {"op": "consume", "timeout_ms": CONSUME_MS, "partitions": partitions}
        found = []
        with Session("franz-go", command) as session:
            consumer = threading.Thread(
                target=lambda: found.extend(session.ask(asked, ANSWER_TIMEOUT_S))
            )
            consumer.start()
            try:
                eventually(lambda: fetches(broker) >= 3, what="the consumer waits for more")
                delete(broker, topics[1])
                before = fetches(broker)
                began_s = time.monotonic()
                time.sleep(LOOP_S)
                count = fetches(broker) - before
                lasted_ms = (time.monotonic() - began_s) * 1000
            finally:
                consumer.join()
        assert count <= 2 * lasted_ms / MAX_WAIT_MS, count
        (kept,) = (each for each in found if each["topic"] == topics[0])
        assert [record["value"] for record in kept["records"]] == ["x"]


def fetches(broker):
    return sum(
        value
        for labels, value in broker.samples("kafka_network_requestmetrics_requests_total")
        if labels["request"] == "Fetch"
    )


def delete(broker, topic):
    with Connection(broker.bootstrap) as connection:
        connection.ask("DeleteTopics", 3, topic_names=[topic], timeout_ms=60_000)
