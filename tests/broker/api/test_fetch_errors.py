"""Fetch: an error of one partition that does not concern the others, and how often a client asks.

A client that asks again as soon as it is answered is counted: the broker holds each of its fetches for
max_wait_ms, so a slow machine makes it ask less often, not more.
"""

from __future__ import annotations

import threading
import time

import pytest

from tests.broker.asking import NO_ID, batch_of, create, fetch_fields, new_name, new_topic, produce
from tests.broker.inside import Inside
from tests.oracle import wire
from tidelog.broker.security.authorizer import Authorizer
from tidelog.protocol.acl import Operation

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID = 1, 3, 100
TOPIC_AUTHORIZATION_FAILED, INCONSISTENT_TOPIC_ID = 29, 103
FOR_EVER_MS = 600_000  # more than the connection waits for an answer
HELD_MS, LOOP_S = 500, 2
MOST_ASKED = 2 * LOOP_S * 1000 // HELD_MS
UNKNOWN_ID = NO_ID[:-1] + "9"


def fields_of(*topics, offset=0, **more):
    """A fetch of partition 0 of several topics, each from the same offset."""
    fields = {**fetch_fields(topics[0], offset), **more}
    fields["topics"] = [fetch_fields(each, offset)["topics"][0] for each in topics]
    return fields


def codes(answer):
    return sorted(
        each["error_code"] for topic in answer["responses"] for each in topic["partitions"]
    )


def asked_in_a_loop(connection, version, next_fields):
    """How often a client asks that does so as soon as it is answered."""
    number, end_s = 0, time.monotonic() + LOOP_S
    while time.monotonic() < end_s:
        connection.ask("Fetch", version, **next_fields(number))
        number += 1
    return number


@pytest.mark.parametrize(
    ("version", "code"), [(4, UNKNOWN_TOPIC_OR_PARTITION), (13, UNKNOWN_TOPIC_ID)]
)
def test_an_unknown_topic_beside_a_quiet_one_waits(connection, version, code):
    name = new_name()
    topic_id = create(connection, name)
    topics = (name, "nowhere") if version < 13 else (topic_id, UNKNOWN_ID)
    fields = fields_of(*topics, max_wait_ms=HELD_MS)
    assert asked_in_a_loop(connection, version, lambda _: fields) <= MOST_ASKED
    assert codes(connection.ask("Fetch", version, **fields)) == [0, code]


@pytest.mark.parametrize("version", [4, 12])
def test_unknown_topics_alone_are_answered_at_once(connection, version):
    fields = fields_of("nowhere", "nowhere-else", max_wait_ms=FOR_EVER_MS)
    assert codes(connection.ask("Fetch", version, **fields)) == [UNKNOWN_TOPIC_OR_PARTITION] * 2


def test_what_reading_finds_is_answered_at_once(connection, topic):
    fields = fields_of(new_topic(connection), topic, max_wait_ms=FOR_EVER_MS)
    fields["topics"][1]["partitions"][0]["fetch_offset"] = 7
    assert codes(connection.ask("Fetch", 12, **fields)) == [0, OFFSET_OUT_OF_RANGE]


def test_records_end_the_wait_beside_an_unknown_topic(broker, connection, topic):
    fields = fields_of("nowhere", topic, max_wait_ms=FOR_EVER_MS)
    timer = threading.Timer(0.2, _produce, (broker, topic))
    timer.start()
    try:
        answer = connection.ask("Fetch", 12, **fields)
    finally:
        timer.join()
    assert answer["responses"][1]["partitions"][0]["records"]


def test_a_topic_deleted_during_the_wait_ends_it(broker, connection, topic):
    other = new_topic(connection)
    fields = fields_of("nowhere", topic, other, max_wait_ms=FOR_EVER_MS)
    timer = threading.Timer(0.2, _delete, (broker, other))
    timer.start()
    try:
        assert UNKNOWN_TOPIC_OR_PARTITION in codes(connection.ask("Fetch", 12, **fields))
    finally:
        timer.join()


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("offset", [None, 7])
def test_an_error_that_a_session_was_told_does_not_end_its_wait(connection, topic, beside, offset):
    """An unknown topic, or an offset out of range; alone or beside a quiet partition."""
    wrong = "nowhere" if offset is None else topic
    names = (wrong, new_topic(connection)) if beside else (wrong,)
    fields = fields_of(*names, max_wait_ms=0, session_epoch=0)
    fields["topics"][0]["partitions"][0]["fetch_offset"] = offset or 0
    first = connection.ask("Fetch", 12, **fields)
    code = UNKNOWN_TOPIC_OR_PARTITION if offset is None else OFFSET_OUT_OF_RANGE
    assert code in codes(first)

    def next_fields(number):
        session = {"session_id": first["session_id"], "session_epoch": number + 1}
        return {**fields, **session, "topics": [], "max_wait_ms": HELD_MS}

    asked = asked_in_a_loop(connection, 12, next_fields)
    assert asked <= MOST_ASKED
    again = {**next_fields(asked), "topics": fields["topics"][:1], "max_wait_ms": HELD_MS}
    assert code in codes(connection.ask("Fetch", 12, **again)), "it is still told"
    another = {**next_fields(asked + 1), "topics": fields["topics"][:1]}
    another["topics"][0]["partitions"][0]["fetch_offset"] = 9
    if offset is not None:
        another["max_wait_ms"] = FOR_EVER_MS
    assert code in codes(connection.ask("Fetch", 12, **another)), "another question"


class NotReading(Authorizer):
    """Lets everybody do everything but read one topic."""

    def __init__(self, hidden):
        self.hidden = hidden

    def allows(self, session, operation, resource_type, name):
        return (operation, name) != (Operation.READ, self.hidden)


def test_a_topic_that_may_not_be_read_waits_beside_a_quiet_one(tmp_path):
    with Inside(tmp_path) as broker, broker.connect() as connection:
        quiet, hidden = new_topic(connection), new_topic(connection)
        broker.node.authorizer = NotReading(hidden)
        fields = fields_of(quiet, hidden, max_wait_ms=HELD_MS)
        assert asked_in_a_loop(connection, 12, lambda _: fields) <= MOST_ASKED
        assert codes(connection.ask("Fetch", 12, **fields)) == [0, TOPIC_AUTHORIZATION_FAILED]
        alone = fields_of(hidden, max_wait_ms=FOR_EVER_MS)
        assert codes(connection.ask("Fetch", 12, **alone)) == [TOPIC_AUTHORIZATION_FAILED]


def test_a_topic_that_was_made_again_is_told_at_once_and_once(broker, connection):
    name = new_name()
    ids = create(connection, new_name()), create(connection, name)
    fields = fields_of(*ids, max_wait_ms=0, session_epoch=0)
    begun = connection.ask("Fetch", 13, **fields)
    assert codes(begun) == [0, 0]
    _delete(broker, name)
    create(connection, name)

    def next_fields(number, max_wait_ms=HELD_MS):
        session = {"session_id": begun["session_id"], "session_epoch": number + 1}
        return {**fields, **session, "topics": [], "max_wait_ms": max_wait_ms}

    answer = connection.ask("Fetch", 13, **next_fields(0, FOR_EVER_MS))
    assert codes(answer) == [INCONSISTENT_TOPIC_ID]
    assert asked_in_a_loop(connection, 13, lambda each: next_fields(each + 1)) <= MOST_ASKED


def _produce(broker, topic):
    with wire.Connection(broker.bootstrap) as connection:
        produce(connection, topic, batch_of("x"))


def _delete(broker, topic):
    with wire.Connection(broker.bootstrap) as connection:
        connection.ask("DeleteTopics", 3, topic_names=[topic], timeout_ms=60_000)
