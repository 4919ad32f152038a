"""MirrorMaker 2 with exactly-once: numbers from broker to broker, while it and its target are killed.

It writes records and the place it has read up to in one transaction of the target; what was aborted at the
source stays behind.
"""

from __future__ import annotations

import pytest

from tests.broker.subject import Subject
from tests.oracle import apache_kafka
from tests.tools.connect import MIRROR_MAKER, Program, mirroring, properties
from tests.tools.exactly_once.counting import Numbers, Reader, create, through_kills

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture
def source(tmp_path):
    with Subject(tmp_path / "source", {"log.retention.ms": -1}) as subject:
        yield subject
        assert subject.unexpected_errors == 0, subject.log()[-8000:]


def mirror(source, target, topic):
    """The settings of a MirrorMaker that copies one topic exactly once."""
    return mirroring(
        {"source": source, "target": target},
        {"source->target": topic},
        **{
            "target->source.enabled": "false",
            "target->source.emit.heartbeats.enabled": "false",
            "emit.heartbeats.enabled": "false",
            "emit.checkpoints.enabled": "false",
            "source.consumer.isolation.level": "read_committed",
            "source.consumer.max.poll.records": 5,  # so that a transaction holds a few
            "target.exactly.once.source.support": "enabled",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": "http://127.0.0.1:0",
            "target.session.timeout.ms": 10_000,
        },
    )


@pytest.mark.parametrize("version", ["3.9.1", "4.1.1"])
def test_numbers_arrive_once(source, broker, tmp_path, version):
    apache_kafka.require(f"connect-{version}")
    numbers = Numbers(source.bootstrap)
    copies = f"source.{numbers.topic}"
    create(broker.bootstrap, copies)
    own = mirror(source.bootstrap, broker.bootstrap, numbers.topic)
    path = properties(tmp_path, "mirror", own)

    def start():
        return Program(version, "mirror", MIRROR_MAKER, tmp_path, path)

    reader = Reader(broker.bootstrap, copies)
    through_kills(numbers.write, reader, start, broker, ["program", "broker", "both"])
    numbers.check(copies, broker.bootstrap)
