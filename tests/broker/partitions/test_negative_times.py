"""Times before 1970 over the wire (KIP-228): every version of Produce, Fetch and ListOffsets.

What a broker stores is read back with kafka-python's reader, so that no code of ours judges itself.
Storage's own rules are in tests/time/kip-228.txt; what clients make of it, in tests/clients.
"""

from __future__ import annotations

import json
import urllib.error
import warnings

import pytest

from tests.broker.asking import create, fetch, list_offset, new_name, new_topic, produce
from tests.oracle import codecs, recordset
from tests.oracle.recordset import Rec

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, at import
    from kafka.record import MemoryRecords

LOWEST, HIGHEST = -(2**63), 2**63 - 1
INVALID_TIMESTAMP, UNSUPPORTED_VERSION = 32, 35
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}
NONE = -1
# offsets 0..7
TIMES = (-386_380_800_000, LOWEST, -2, NONE, 0, HIGHEST, -7, -8)


def int64(value):
    return (value + 2**63) % 2**64 - 2**63


def record_set(magic, times, codec=codecs.NONE):
    """What a producer of that format sends; the times wrap as a Java client's do."""
    recs = [Rec(time, b"v%d" % number) for number, time in enumerate(times)]
    if magic == 2:
        return recordset.batch(recs, codec)
    if codec:
        return recordset.wrapper(magic, recs, codec)
    return recordset.plain_set(magic, recs)


def seen(connection, topic, version, offset=0):
    """The times that a consumer sees by offset, -1 where it sees none."""
    got = fetch(connection, topic, offset, version=version)
    assert got["error_code"] == 0, got
    times, found = {}, MemoryRecords(got["records"])
    while (batch := found.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            times[record.offset] = NONE if record.timestamp is None else int64(record.timestamp)
    return [times[number] for number in sorted(times)]


def fetch_magic(version):
    return 0 if version < 2 else 1 if version < 4 else 2


def asked(connection, topic, timestamp, version=7):
    got = list_offset(connection, topic, timestamp, version=version)
    return got["error_code"], got["offset"], got["timestamp"]


@pytest.fixture(scope="module")
def topic(broker):
    name = new_name("negative")
    with broker.connect() as connection:
        create(connection, name, segment_bytes="100", retention_ms="-1")
        for time in TIMES:
            assert produce(connection, name, record_set(2, [time]))["error_code"] == 0
    return name


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP])
@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize(("magic", "versions"), [(0, (0, 1)), (1, (2,)), (2, (3, 7, 9, 11))])
def test_every_format_in_and_out(connection, magic, versions, stored, codec):
    """Written by every version, kept in every format, read by every version: the time is the same."""
    for version in versions:
        name = new_name("negative")
        settings = {"message_format_version": FORMATS[stored], "retention_ms": "-1"}
        create(connection, name, **settings)
        answer = produce(connection, name, record_set(magic, TIMES, codec), version=version)
        assert (answer["error_code"], answer["base_offset"]) == (0, 0)
        assert answer.get("log_append_time_ms", NONE) == NONE
        for reader in (0, 1, 2, 3, 4, 11, 12):
            carried = min(magic, stored, fetch_magic(reader))
            expected = list(TIMES) if carried else [NONE] * len(TIMES)
            assert seen(connection, name, reader) == expected, (version, reader)


def test_lookups_below_the_sentinels(connection, topic):
    """T < -6 is a time, answered exactly; Kafka answers UNSUPPORTED_VERSION."""
    for target in (LOWEST, LOWEST + 1, -386_380_800_000, -386_380_799_999, -9, -8, -7):
        offset = next(i for i, time in enumerate(TIMES) if time != NONE and time >= target)
        for version in range(1, 12):
            assert asked(connection, topic, target, version) == (0, offset, TIMES[offset])
    for target, first in ((LOWEST, 0), (-386_380_799_999, 2), (-7, 2), (1, 5)):
        got = list_offset(connection, topic, target, version=0)
        assert (got["error_code"], got["old_style_offsets"][0]) == (0, first)


@pytest.mark.parametrize("version", range(12))
def test_the_six_values_that_are_no_times(connection, topic, version):
    """They stay Kafka's, in every version: those milliseconds can be asked for over HTTP alone."""
    expected = {-1: (8, -1), -2: (0, -1), -3: (5, HIGHEST), -4: (0, -1)}
    for sentinel, since in {-1: 0, -2: 0, -3: 7, -4: 8, -5: 9, -6: 11}.items():
        if version < since:
            got = list_offset(connection, topic, sentinel, version=version)
            assert got["error_code"] == UNSUPPORTED_VERSION
        elif version == 0:
            got = list_offset(connection, topic, sentinel, version=0)["old_style_offsets"]
            assert got[0] == (len(TIMES) if sentinel == -1 else 0)
        else:
            found = expected.get(sentinel, (-1, -1))
            assert asked(connection, topic, sentinel, version) == (0, *found)


def test_refusals_name_negative_times_and_the_window(connection):
    name = new_topic(connection, message_timestamp_before_max_ms="1000", retention_ms="-1")
    answer = produce(connection, name, record_set(2, [NONE, -2, LOWEST]), version=8)
    assert answer["error_code"] == INVALID_TIMESTAMP
    errors = {e["batch_index"]: e["batch_index_error_message"] for e in answer["record_errors"]}
    assert sorted(errors) == [1, 2]
    assert "timestamp -2 is outside the window [" in errors[1]
    assert f"timestamp {LOWEST} is outside the window [" in errors[2]
    assert seen(connection, name, 12) == []


# --- over HTTP, which has a number for every millisecond -----------------------------------------


def over_http(broker, topic, at, **more):
    query = "&".join(f"{name}={value}" for name, value in {"at": at, **more}.items())
    (one,) = json.loads(broker.page(f"/v1/topics/{topic}/offsets?{query}"))["partitions"]
    return one["offset"], one["timestamp_ms"]


def test_the_milliseconds_that_the_protocol_has_no_number_for(broker, topic):
    """-7 and -8 lie behind -2 in the log, so all six lead to -2 or to what is after 1970."""
    for at in (-6, -5, -4, -3, -2, "1969-12-31T23:59:59.998Z"):
        assert over_http(broker, topic, at) == (2, -2)
    assert over_http(broker, topic, LOWEST) == (0, TIMES[0])


def test_the_millisecond_that_is_no_time_is_refused_or_shifted(broker, topic):
    for at in (-1, "1969-12-31T23:59:59.999Z"):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            over_http(broker, topic, at)
        assert refusal.value.code == 400
        assert "shift" in json.loads(refusal.value.read())["message"]
        assert over_http(broker, topic, at, shift="true") == (4, 0)
