"""Kafka Connect with an exactly-once source (KIP-618): a file's lines, while worker and broker are killed.

The worker writes lines and the place it has read up to in one transaction. A worker that was killed leaves
one open; the next one fences its producers, and reads on from the last place that was committed.
"""

from __future__ import annotations

import threading
import time

import pytest

from tests.broker.subject import Subject, eventually
from tests.oracle import apache_kafka
from tests.tools.connect import Lines, rest, start_distributed
from tests.tools.exactly_once.counting import (
    DEADLINE_S,
    Reader,
    create,
    parsed,
    problems,
    read,
    through_kills,
)

SESSION_MS = 10_000
PORTION, PAUSE_S = 5, 0.1  # how a file grows: so many lines, and for how long none


@pytest.fixture
def broker(tmp_path):
    settings = {"group.min.session.timeout.ms": 1_000, "auto.create.topics.enable": "false"}
    with Subject(tmp_path / "data", settings) as subject:
        yield subject
        assert subject.unexpected_errors == 0, subject.log()[-8000:]


def check(version, broker, directory, kills):
    """Lines arrive once, whoever is killed in the middle of them."""
    apache_kafka.require(f"connect-{version}")
    lines, connectors = Lines(directory), []
    create(broker.bootstrap, lines.topic, partitions=1)
    own = {**lines.source(), "exactly.once.support": "required", "transaction.boundary": "poll"}

    def start():
        """A worker that takes exactly-once sources; the first is given the connector."""
        worker = start_distributed(
            version,
            broker.bootstrap,
            directory,
            SESSION_MS,
            exactly_once_source_support="enabled",
        )
        port = eventually(worker.rest_port, DEADLINE_S, f"a worker:\n{worker.tail()}")
        if not connectors:
            asked = (port, "PUT", f"/connectors/{lines.topic}/config", own)
            taken = eventually(lambda: given(port) and rest(*asked), DEADLINE_S, "a connector")
            connectors.append(taken["name"])
        return worker

    def write(count):
        """Lines, some at a time: what the connector finds in the file is one transaction."""
        feeding.append(threading.Thread(target=feed, args=(lines, count)))
        feeding[-1].start()

    feeding = []
    through_kills(write, Reader(broker.bootstrap, lines.topic), start, broker, kills)
    for each in feeding:
        each.join()
    (texts,) = read(broker.bootstrap, lines.topic)
    found = parsed(text.removeprefix("line ") for text in texts)
    assert problems(range(lines.count), found) == []


def feed(lines, count):
    for _ in range(0, count, PORTION):
        lines.give(PORTION)
        time.sleep(PAUSE_S)


def given(port):
    """Whether a worker answers: before, it takes no connector."""
    return rest(port, "GET", "/connectors") is not None


@pytest.mark.oracle
@pytest.mark.timeout(900)
def test_a_killed_worker_leaves_no_line_twice(broker, tmp_path):
    check("4.1.1", broker, tmp_path, ["program"])


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", ["3.9.1", "4.1.1"])
def test_worker_and_broker_are_killed(broker, tmp_path, version):
    check(version, broker, tmp_path, ["program", "broker", "both", "program"])
