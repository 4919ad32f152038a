"""Produce with the zero times of Go and .NET: records that age at once, or that have no time.

Times are read back, found and expired from outside, in each format, compressed and not.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.broker import asking
from tests.broker.conftest import of_module
from tests.oracle import codecs, recordset
from tests.oracle.recordset import Rec

DAY_MS, NOW_MS = 86_400_000, 1_767_225_600_000  # new year 2026
GO_MS, YEAR_1_MS = -6_795_364_578_871, -62_135_596_800_000
SETTING = "message.timestamp.missing.values"
LISTED = {SETTING: f"{GO_MS}, {YEAR_1_MS}"}
FORMATS = {1: "0.10.2", 2: "3.0"}
EARLIEST, LATEST = -2, -1
INVALID_TIMESTAMP, INVALID_CONFIG = 32, 40

broker = of_module({"clock": "manual", "clock.start.ms": NOW_MS})

SETS = {
    "format 1": (2, lambda recs: recordset.plain_set(1, recs)),
    "format 1, gzip": (2, lambda recs: recordset.wrapper(1, recs, codecs.GZIP)),
    "format 2": (9, recordset.batch),
    "format 2, gzip": (9, lambda recs: recordset.batch(recs, codecs.GZIP)),
}
TIMES = {
    "all of Go": (GO_MS, GO_MS),
    "all of year 1": (YEAR_1_MS, YEAR_1_MS),
    "both": (GO_MS, YEAR_1_MS),
    "among others": (NOW_MS, YEAR_1_MS, -1, NOW_MS - 1, GO_MS, 0, GO_MS + 1),
}


def shown(connection, topic):
    """Time, key, value and headers of each record that a consumer sees."""
    found = []
    for batch in recordset.parse(asking.fetch(connection, topic)["records"])[0]:
        assert batch["crc_ok"]
        for one in batch.get("records") or batch.get("inner") or [batch]:
            headers = [(name, value) for name, value in one.get("headers", ())]
            found.append((one["timestamp"], one["key"], one["value"], headers))
    return found


def put(connection, topic, times, how="format 2"):
    version, write = SETS[how]
    recs = [Rec(time, b"v%d" % i, b"k%d" % i) for i, time in enumerate(times)]
    return asking.produce(connection, topic, write(recs), version=version)


@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("how", SETS)
@pytest.mark.parametrize("kind", TIMES)
def test_a_listed_time_is_none(broker, connection, stored, how, kind):
    times = TIMES[kind]
    topic = asking.new_topic(connection, **{"message.format.version": FORMATS[stored]}, **LISTED)
    answer = put(connection, topic, times, how)
    assert (answer["error_code"], answer["base_offset"]) == (0, 0)
    wanted = [-1 if time in (GO_MS, YEAR_1_MS) else time for time in times]
    assert shown(connection, topic) == [
        (time, b"k%d" % i, b"v%d" % i, []) for i, time in enumerate(wanted)
    ]
    found = asking.list_offset(connection, topic, YEAR_1_MS)
    real = [(time, i) for i, time in enumerate(wanted) if time != -1]
    first = (-1, -1) if not real else next((time, i) for time, i in real)
    assert (found["timestamp"], found["offset"]) == first
    broker.clock.freeze(NOW_MS + 7 * DAY_MS)  # the append is as old as retention.ms, and no older
    assert broker.sweep(topic) == []
    broker.clock.step(1)
    assert [each["end_offset"] for each in broker.sweep(topic)] == [len(times)]
    broker.clock.freeze(NOW_MS)


def test_without_the_setting_it_is_a_time(broker, connection):
    topic = asking.new_topic(connection)
    put(connection, topic, (GO_MS, YEAR_1_MS))
    assert [time for time, *_ in shown(connection, topic)] == [GO_MS, YEAR_1_MS]
    assert len(broker.sweep(topic)) == 1


def test_the_brokers_default_and_a_change_count_from_the_next_append_on(broker, connection):
    topic = asking.new_topic(connection, **{"retention.ms": "-1"})
    change = (f"log.{SETTING}", 0, str(YEAR_1_MS))
    assert asking.alter(connection, asking.BROKER, "", change)[0] == 0
    put(connection, topic, (YEAR_1_MS, GO_MS))
    assert asking.alter(connection, asking.TOPIC, topic, (SETTING, 0, ""))[0] == 0
    put(connection, topic, (YEAR_1_MS,))
    assert [time for time, *_ in shown(connection, topic)] == [-1, GO_MS, YEAR_1_MS]
    assert asking.alter(connection, asking.BROKER, "", (f"log.{SETTING}", 1, None))[0] == 0


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP, codecs.LZ4, codecs.ZSTD])
def test_headers_producers_and_the_codec_stay(connection, codec):
    topic = asking.new_topic(connection, **LISTED)
    headers = (("h", b"1"), ("h", None))
    recs = [Rec(YEAR_1_MS, b"v", None, headers), Rec(NOW_MS, None, b"k")]
    identity = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    data = recordset.batch(recs, codec, **identity)
    for _ in range(2):  # the second one is a duplicate
        answer = asking.produce(connection, topic, data)
        assert (answer["error_code"], answer["base_offset"]) == (0, 0)
    assert asking.list_offset(connection, topic, LATEST)["offset"] == 2
    assert shown(connection, topic) == [
        (-1, None, b"v", [(b"h", b"1"), (b"h", None)]),
        (NOW_MS, b"k", None, []),
    ]
    (batch,), _ = recordset.parse(asking.fetch(connection, topic)["records"])
    assert batch["attributes"] & 7 == codec
    assert batch["max_timestamp"] == NOW_MS
    assert {name: batch[name] for name in identity} == identity


def test_the_window_and_the_refusal_of_expired_records_are_not_for_it(connection):
    limits = {"message.timestamp.before.max.ms": str(DAY_MS), "retention.refuse.expired": "true"}
    topic = asking.new_topic(connection, **limits, **LISTED)
    assert put(connection, topic, (YEAR_1_MS, NOW_MS, GO_MS))["error_code"] == 0
    answer = put(connection, topic, (YEAR_1_MS, YEAR_1_MS + 1))
    assert answer["error_code"] == INVALID_TIMESTAMP
    assert [each["batch_index"] for each in answer["record_errors"]] == [1]
    keyed = asking.new_topic(connection, **{"cleanup.policy": "compact"}, **LISTED)
    unkeyed = recordset.batch([Rec(YEAR_1_MS, b"v")])
    assert asking.produce(connection, keyed, unkeyed)["error_code"] == 87  # INVALID_RECORD


@pytest.mark.parametrize(
    "settings", [{"message.timestamp.type": "LogAppendTime"}, {"message.format.version": "0.9.0"}]
)
def test_where_the_producers_time_is_not_used_nothing_changes(connection, settings):
    topic = asking.new_topic(connection, **settings, **LISTED)
    for how in ("format 1", "format 1, gzip", "format 2"):
        assert put(connection, topic, (YEAR_1_MS, GO_MS), how)["error_code"] == 0
    assert asking.list_offset(connection, topic, LATEST)["offset"] == 6


@pytest.mark.parametrize("text", ["x", "1,,2", "1.5", str(2**63), ",".join(map(str, range(17)))])
def test_what_is_no_list_of_times_is_refused(connection, text):
    answer = asking.try_to_create(connection, asking.new_name(), **{SETTING: text})
    assert answer["error_code"] == INVALID_CONFIG


def test_librdkafka_writes_them_and_nothing_is_lost(broker, connection):
    topic = asking.new_topic(connection, **LISTED)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    failed = []
    for time in (YEAR_1_MS, GO_MS):
        producer.produce(
            topic, b"v", timestamp=time, on_delivery=lambda error, _: failed.append(error)
        )
    assert producer.flush(60) == 0
    assert failed == [None, None]
    assert broker.sweep(topic) == []
    assert [time for time, *_ in shown(connection, topic)] == [-1, -1]
