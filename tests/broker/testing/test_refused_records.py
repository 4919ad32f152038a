"""What a producer was refused because a sync failed does not come back when the broker starts again."""

from __future__ import annotations

import pytest

from tests.broker import asking
from tidelog.protocol.error_codes import ErrorCode


def send(connection, topic, text):
    return asking.produce(connection, topic, asking.batch_of(text))["error_code"]


@pytest.mark.parametrize("ends", ["is killed", "is stopped"])
def test_refused_records_are_gone_after_a_restart(start, ends):
    broker = start({"control.listener": "127.0.0.1:0"})
    with broker.connect() as connection:
        asking.create(connection, "t", flush_messages="1")
        assert send(connection, "t", "kept") == 0
        broker.faults.add(storage="sync", topic="t", error="EIO")
        assert send(connection, "t", "refused") == ErrorCode.KAFKA_STORAGE_ERROR
        assert send(connection, "t", "refused too") == ErrorCode.KAFKA_STORAGE_ERROR
    broker.faults.clear()
    if ends == "is killed":
        broker.kill()
    else:
        assert broker.stop() == 1, "the stop is not a clean one"
    broker.restart()
    with broker.connect() as connection:
        assert asking.read_values(connection, "t") == [b"kept"]
        assert send(connection, "t", "sent again") == 0
        assert asking.read_values(connection, "t") == [b"kept", b"sent again"]
