"""The judge of the matrix judged: a perfect reader passes, and every injected fault is named.

The reader here is made of the expectations themselves, so these tests say nothing about a broker;
they show that a lost record, a wrong offset, text, header, time or time type cannot slip through.
"""

from __future__ import annotations

import itertools

import pytest

from tests.clients import clients, matrix, reading, report
from tests.clients import expectations as rules

BEGAN_MS, ENDED_MS = 1_800_000_000_000, 1_800_000_000_500
CASES = [
    (producer, consumer, magic, kind)
    for producer, consumer in itertools.product(clients.CLIENTS, clients.CLIENTS)
    for magic in (0, 1, 2)
    for kind in rules.TIMESTAMP_TYPES
]


def entry_of(producer, magic, kind, codec="none"):
    topic = rules.topic_of(producer, magic, kind)
    records = rules.records_for(topic, codec, rules.BROKERS["tidelog"])
    return rules.Written(topic, 0, codec, records, BEGAN_MS, ENDED_MS)


def perfect(entry, consumer):
    """What a consumer hands out if all is right; an append time somewhere in its bounds."""
    expected = rules.expect(entry, consumer)
    return [
        {
            "offset": one.offset,
            "key": one.key,
            "value": one.value,
            "headers": one.headers,
            "timestamp": (one.earliest + one.latest) // 2 if consumer.shows_timestamps else None,
            "timestamp_type": one.timestamp_type if consumer.shows_types else None,
        }
        for one in expected
    ]


def judge(entry, consumer, records):
    found = report.Report()
    reading.compare([entry], consumer, 0, {"records": records}, found)
    return found


def test_a_perfect_reader_passes_everywhere():
    for producer, consumer, magic, kind in CASES:
        entry = entry_of(producer, magic, kind)
        found = judge(entry, consumer, perfect(entry, consumer))
        assert found.differences() == []
        assert found.good.total() == len(entry.records)


FAULTS = {
    "a lost record": lambda records: records.pop(3),
    "a doubled record": lambda records: records.append(records[-1]),
    "an offset": lambda records: records[2].update(offset=records[2]["offset"] + 1),
    "two records swapped": lambda records: records.insert(0, records.pop(1)),
    "a key": lambda records: records[0].update(key="second"),
    "a null key": lambda records: records[1].update(key=""),
    "a null value": lambda records: records[3].update(value=""),
    "a long value": lambda records: records[5].update(value=records[5]["value"][:-1]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_content_is_found(fault):
    for producer, consumer, magic, kind in CASES:
        entry = entry_of(producer, magic, kind)
        records = perfect(entry, consumer)
        FAULTS[fault](records)
        assert judge(entry, consumer, records).differences(), (producer, consumer, magic, kind)


def test_a_wrong_time_is_found_by_every_reader_that_shows_times():
    for producer, consumer, magic, kind in CASES:
        if not consumer.shows_timestamps:
            continue
        for wrong in (BEGAN_MS - 1, ENDED_MS + 1, -2, 0):
            entry = entry_of(producer, magic, kind)
            records = perfect(entry, consumer)
            records[4]["timestamp"] = wrong
            assert judge(entry, consumer, records).differences()


def test_a_wrong_time_type_is_found_by_every_reader_that_shows_types():
    for producer, consumer, magic, kind in CASES:
        entry = entry_of(producer, magic, kind)
        records = perfect(entry, consumer)
        if not consumer.shows_types or rules.hides_type(consumer, entry.topic, records[4]):
            continue
        records[4]["timestamp_type"] = "create" if kind == "LogAppendTime" else "append"
        assert judge(entry, consumer, records).differences()


def test_lost_and_changed_headers_are_found():
    for producer, consumer, kind in itertools.product(
        clients.CLIENTS, clients.CLIENTS, rules.TIMESTAMP_TYPES
    ):
        entry = entry_of(producer, 2, kind)
        if not (producer.headers and consumer.headers):
            continue
        for headers in ([], [["trace", "ä1"]], [["trace", None], ["origin", None]]):
            records = perfect(entry, consumer)
            records[0]["headers"] = headers
            assert judge(entry, consumer, records).differences()


def test_readers_that_were_told_different_times_are_found():
    found = report.Report()
    place = ("format2-append-x", 0, 0)
    reading.compare_times({"a": {place: 5}, "b": {place: 5}, "c": {place: -1}}, found)
    assert found.differences() == []
    reading.compare_times({"a": {place: 5}, "b": {place: 6}}, found)
    assert found.differences() == ["format2-append-x/0 offset 0: times differ {5: 'a', 6: 'b'}"]


def test_expected_skips_are_names_of_clients_each_with_a_reason():
    allowed = matrix.allowed_skips()
    known = {client.name for client in (*clients.CLIENTS, *clients.ROLLING)}
    assert set(allowed) <= known
    assert all(allowed.values())


def test_a_skip_that_grew_or_changed_its_reason_is_found():
    ((name, reason), *_) = matrix.allowed_skips().items()
    assert matrix.unexpected_skips({name: reason}) == {}
    assert matrix.unexpected_skips({name: f"{reason}, in more words"}) == {}
    another = {name: "its build failed"}
    assert matrix.unexpected_skips(another) == another
    grown = {"kcat": reason}
    assert matrix.unexpected_skips({name: reason, **grown}) == grown


def test_lookups_agree_with_a_plain_search():
    for producer, magic, kind in itertools.product(
        clients.CLIENTS, (0, 1, 2), rules.TIMESTAMP_TYPES
    ):
        entry = entry_of(producer, magic, kind)
        (start, end, *questions) = rules.lookups([entry])
        assert start == (-2, 0)
        assert end == (-1, len(entry.records))
        for shift in (0, ENDED_MS - BEGAN_MS):  # an append time lies anywhere in its bounds
            times = [min(low + shift, high) for low, high in rules.stored_times(entry)]
            for target, answer in questions:
                late = [n for n, time in enumerate(times) if time != -1 and time >= target]
                assert answer == (late[0] if late else None)


def test_wrong_offsets_are_found():
    class Liar:
        def ask(self, command, timeout_s):
            return [{**one, "offset": 2} for one in command["partitions"]]

    found = report.Report()
    entry = entry_of(clients.JAVA_39, 2, "CreateTime")
    broker = rules.BROKERS["tidelog"]
    reading.find(Liar(), clients.CONFLUENT, [[entry]], broker, found)
    assert found.found.total() == 1  # the latest time is that of offset 2
    assert found.differences()[0].startswith("confluent-kafka finds 4 wrong offsets: ")
