"""P1: INVALID_TIMESTAMP, and nobody knows which record, which time, which window.

What users see: after an upgrade, or with a mirror of old data, or a client that sends 0 for "undefined",
producers fail with one word; a batch of thousands is refused for one record (elastic/docs-content#2587,
aws-samples mirrormaker2-msk-migration#26, kafkajs#188, kafka-python#1302, kafka#11853).

Kafka: message.timestamp.before/after.max.ms refuse the whole append. From Produce v8 on the answer names each
record that is to blame, its time and the window. Java and kafka-python 3 show those words to the
user, librdkafka and aiokafka the error's name alone.

Here: the same rule and the same room for words: index, value, window; -1 ("no time") is exempt.
"""

import pytest

from tests.broker import asking
from tests.clients import clients
from tests.clients.environments import Unavailable
from tests.clients.session import ANSWER_TIMEOUT_S, Session
from tests.field.complaints import DAY_MS, HOUR_MS, NEW_YEAR_MS, create, found, wall_ms
from tests.oracle import codecs, recordset
from tests.oracle.recordset import Rec

INVALID_TIMESTAMP = 32
LATEST = -1
LINGER_MS = 10_000  # Java's waits for so long; all others are told to send at once what there is
WINDOW = {
    "message_timestamp_before_max_ms": str(DAY_MS),
    "message_timestamp_after_max_ms": str(HOUR_MS),
}
EDGES = (NEW_YEAR_MS - DAY_MS, NEW_YEAR_MS + HOUR_MS)
SHOWN = f"[{EDGES[0]}, {EDGES[1]}]"
# Good, undefined as 0, none, seconds, a millisecond too late, and both edges.
TIMES = (NEW_YEAR_MS, 0, -1, NEW_YEAR_MS // 1000, EDGES[1] + 1, *EDGES)
BAD = {n: time for n, time in enumerate(TIMES) if time != -1 and not EDGES[0] <= time <= EDGES[1]}


def put(connection, topic, times, version=9, codec=codecs.NONE):
    batch = recordset.batch([Rec(one, b"v") for one in times], codec)
    return asking.produce(connection, topic, batch, version=version)


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP, codecs.ZSTD])
@pytest.mark.parametrize("version", [8, 12])
def test_the_answer_names_index_value_and_window(connection, version, codec):
    topic = create(connection, **WINDOW)
    answer = put(connection, topic, TIMES, version, codec)
    assert answer["error_code"] == INVALID_TIMESTAMP
    told = {e["batch_index"]: e["batch_index_error_message"] for e in answer["record_errors"]}
    assert sorted(told) == sorted(BAD) == [1, 3, 4]
    for index, text in told.items():
        assert text == f"record {index}: timestamp {BAD[index]} is outside the window {SHOWN}"
    assert SHOWN in answer["error_message"]


@pytest.mark.parametrize("magic", ["0.10.0", "3.0"])
@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP])
def test_what_retention_would_delete_at_once_is_refused_where_a_topic_asks(
    connection, codec, magic
):
    topic = create(
        connection,
        retention_ms=str(DAY_MS),
        retention_refuse_expired="true",
        message_format_version=magic,
    )
    edge = NEW_YEAR_MS - DAY_MS
    answer = put(connection, topic, [NEW_YEAR_MS, edge - 1, -1, edge], 8, codec)
    assert answer["error_code"] == INVALID_TIMESTAMP
    (told,) = answer["record_errors"]
    assert told["batch_index"] == 1
    why = f"outside the window [{edge}, ...]: retention.ms={DAY_MS} would delete it at once"
    assert told["batch_index_error_message"] == f"record 1: timestamp {edge - 1} is {why}"
    assert answer["error_message"] == f"1 records have timestamps {why}"
    assert found(connection, topic, LATEST) == (0, -1)
    assert put(connection, topic, [NEW_YEAR_MS, -1, edge], 8, codec)["error_code"] == 0


@pytest.mark.parametrize("version", [3, 7, 12])
def test_the_whole_batch_is_refused_and_the_rest_of_it_can_be_sent(connection, version):
    topic = create(connection, **WINDOW)
    assert put(connection, topic, TIMES, version)["error_code"] == INVALID_TIMESTAMP
    assert found(connection, topic, LATEST) == (0, -1)
    good = [time for n, time in enumerate(TIMES) if n not in BAD]
    assert put(connection, topic, good, version)["error_code"] == 0
    assert found(connection, topic, LATEST) == (4, -1)


def test_a_mirror_of_old_data_is_taken_where_there_is_no_window(connection):
    """Which is the default; Kafka 4 has an hour for the future."""
    topic = create(connection)
    assert put(connection, topic, [0, 5, NEW_YEAR_MS * 1000, -900])["error_code"] == 0


# --- what the users of clients see ---------------------------------------------------------------

GUILTY = f"record 0: timestamp 5 is outside the window {SHOWN}"
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


def seen_by(client, broker, connection, times):
    """What a client's user gets for the first record of a batch that is refused."""
    topic = create(connection, **WINDOW)
    try:
        command = client.command(broker.bootstrap)
    except Unavailable as reason:
        pytest.skip(str(reason))
    records = [{"key": "k", "value": "v", "timestamp": time} for time in times]
    batch = {"topic": topic, "partition": 0, "records": records}
    # One batch, however long the client stands still between the first record and the second.
    asked = {"op": "produce", "codec": "none", "idempotent": False, "linger_ms": LINGER_MS}
    with Session(client.name, command) as session:
        (answer,) = session.ask({**asked, "batches": [batch]}, ANSWER_TIMEOUT_S)
    assert found(connection, topic, LATEST) == (0, -1)
    return answer["error"]


def check_what_is_seen(client, broker, connection):
    for times, expected in zip(
        ((5, NEW_YEAR_MS), (NEW_YEAR_MS, 5)), SEEN[client.name], strict=True
    ):
        error = seen_by(client, broker, connection, times)
        code, name, words = expected
        assert (error["code"], error["name"]) == (code, name), error
        assert words in error["message"]
        assert ("window" in error["message"]) == (words == GUILTY)


@pytest.mark.parametrize("client", clients.QUICK, ids=lambda client: client.name)
def test_what_the_user_of_a_client_sees(broker, connection, client):
    """Some show the words of the record's own error, some the name of the batch's alone."""
    check_what_is_seen(client, broker, connection)


@pytest.mark.clients
def test_what_the_user_of_java_sees(broker, connection):
    check_what_is_seen(clients.JAVA_39, broker, connection)


@pytest.mark.oracle
def test_kafka_names_them_too(kafka):
    topic = create(kafka, **WINDOW)
    now_ms = wall_ms()
    answer = put(kafka, topic, [now_ms, 0, -1, now_ms + DAY_MS])
    assert answer["error_code"] == INVALID_TIMESTAMP
    assert [one["batch_index"] for one in answer["record_errors"]] == [1, 3]
    assert found(kafka, topic, LATEST) == (0, -1)
