"""What the users of clients see of a record whose time is outside the window (INVALID_TIMESTAMP).

From Produce v8 on the answer names each record that is to blame, its time and the window. Java and
kafka-python 3 show those words, librdkafka and aiokafka the error's name alone.
"""

from __future__ import annotations

import time

import pytest

from tests.broker import asking
from tests.clients import clients
from tests.clients.environments import Unavailable
from tests.clients.session import ANSWER_TIMEOUT_S, Session
from tests.oracle import wire

INVALID_TIMESTAMP = 32
LATEST = -1
LINGER_MS = 10_000  # Java's waits for so long; all others are told to send at once what there is
DAY_MS = 86_400_000
GUILTY = "record 0: timestamp 5 is outside the window ["
INNOCENT = (
    "it was part of a batch which had one more more invalid records"  # the clients' own words
)
# Client -> the error of the record that is to blame, and of another one in its batch: code, name, words.
SEEN = {
    "confluent-kafka": ((INVALID_TIMESTAMP, "INVALID_TIMESTAMP", "Broker: Invalid timestamp"),) * 2,
    "kafka-python 3.0": (
        (INVALID_TIMESTAMP, "InvalidTimestampError", GUILTY),
        (None, "KafkaError", INNOCENT),
    ),
    "aiokafka": ((INVALID_TIMESTAMP, "InvalidTimestampError", "[Error 32] "),) * 2,
    "java 3.9": (
        (INVALID_TIMESTAMP, "InvalidTimestampException", GUILTY),
        (None, "KafkaException", INNOCENT),
    ),
}
TRIED = [
    *clients.QUICK,
    pytest.param(clients.JAVA_39, marks=pytest.mark.clients),
]


def seen_by(command, name, connection, times):
    """Returns what a client's user gets for the first record of a batch that is refused."""
    topic = asking.new_name("refused")
    asking.create(connection, topic, message_timestamp_before_max_ms=str(DAY_MS))
    records = [{"key": "k", "value": "v", "timestamp": at} for at in times]
    batch = {"topic": topic, "partition": 0, "records": records}
    # One batch, however long the client stands still between the first record and the second.
    asked = {"op": "produce", "codec": "none", "idempotent": False, "linger_ms": LINGER_MS}
    with Session(name, command) as session:
        (answer,) = session.ask({**asked, "batches": [batch]}, ANSWER_TIMEOUT_S)
    assert asking.list_offset(connection, topic, LATEST)["offset"] == 0
    return answer["error"]


@pytest.mark.parametrize("client", TRIED, ids=lambda client: client.name)
def test_what_the_user_of_a_client_sees(tidelog_broker_factory, client):
    server = tidelog_broker_factory().bootstrap
    try:
        command = client.command(server)
    except Unavailable as reason:
        pytest.skip(str(reason))
    now_ms = int(time.time() * 1000)
    with wire.Connection(server, timeout_s=60) as connection:
        for times, expected in zip(((5, now_ms), (now_ms, 5)), SEEN[client.name], strict=True):
            error = seen_by(command, client.name, connection, times)
            code, name, words = expected
            assert (error["code"], error["name"]) == (code, name), error
            assert words in error["message"]
            assert ("window" in error["message"]) == (words == GUILTY)
