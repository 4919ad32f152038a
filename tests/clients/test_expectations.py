"""The judge of the matrix judged: a perfect reader passes, and every planted fault is named.

The reader here is made of the expectations themselves, so these tests say nothing about a broker;
they show that a lost record, a wrong offset, text, header, time or time type cannot slip through.
"""

from __future__ import annotations

import itertools

import pytest

from tests.clients import clients, matrix
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
    records = rules.records_for(topic, codec)
    return matrix.Written(topic, 0, codec, records, BEGAN_MS, ENDED_MS)


def perfect(entry, consumer):
    """What a consumer hands out if all is right; an append time somewhere in its bounds."""
    expected = rules.expect(entry.topic, entry.records, consumer, entry.began_ms, entry.ended_ms)
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
    report = matrix.Report()
    matrix.compare(entry, consumer, 0, {"records": records}, report)
    return report


def test_a_perfect_reader_passes_everywhere():
    for producer, consumer, magic, kind in CASES:
        entry = entry_of(producer, magic, kind)
        report = judge(entry, consumer, perfect(entry, consumer))
        assert report.differences() == []
        assert report.good.total() == len(entry.records)


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
    report = matrix.Report()
    place = ("format2-append-x", 0, 0)
    matrix.compare_times({"a": {place: 5}, "b": {place: 5}, "c": {place: -1}}, report)
    assert report.differences() == []
    matrix.compare_times({"a": {place: 5}, "b": {place: 6}}, report)
    assert report.differences() == ["format2-append-x/0 offset 0: times differ {5: 'a', 6: 'b'}"]


def test_the_tables_name_every_client_and_count_what_is_wrong():
    report = matrix.Report()
    report.versions = {"a": "a 1.0", "b": "b 2.0"}
    report.good["a", "b", 2] = 7
    report.bad["b", "a", 2] = ["time"]
    report.good["b", "a", 2] = 6
    report.skipped["c"] = "npm is not installed"
    text = matrix.render(report)
    assert "Clients: a 1.0; b 2.0." in text
    assert "| a | - | ok 7 |" in text
    assert "| b | **1 wrong**, 6 ok | - |" in text
    assert "- c: skipped, npm is not installed\n1 client(s) skipped." in text


def test_the_page_keeps_what_stands_around_the_matrix(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{matrix.MARK_BEGIN}old\n{matrix.MARK_END}after\n")
    matrix.write_between_markers(page, "new\n")
    assert page.read_text() == f"before\n{matrix.MARK_BEGIN}new\n{matrix.MARK_END}after\n"
    page.write_text("no markers\n")
    with pytest.raises(ValueError, match="lacks the lines"):
        matrix.write_between_markers(page, "new\n")


def test_expected_skips_are_names_of_clients():
    assert matrix.allowed_skips() <= {client.name for client in clients.CLIENTS}
