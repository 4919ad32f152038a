"""MirrorMaker 2 from broker to broker: records keep times, groups places, topics settings.

From tidelog to tidelog with both versions, and from Apache Kafka to tidelog.
"""

from __future__ import annotations

import contextlib
import struct
import time
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests import committing
from tests.broker.asking import alter, create, own, produce
from tests.broker.subject import Subject, eventually
from tests.oracle import apache_kafka, recordset, wire
from tests.oracle.brokers import wait_for_coordinators, wait_for_leaders
from tests.oracle.recordset import Rec
from tests.tools.connect import MIRROR_MAKER, PATIENT, Program, mirroring, properties

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

DEADLINE_S = 150
TOPIC, SET = 2, 0
CREATE_TIME, LOG_APPEND_TIME = 1, 2
# Every time a Java producer takes, in no order: the first millisecond, the last there is, the year 2100.
TIMES = (0, 1, 1_577_836_800_000, 5, 2**63 - 1, 4_102_444_800_000, 1_600_000_000_000)
NUMBERS = [str(i).encode() for i in range(len(TIMES))]
INTERVALS = (
    "refresh.topics",
    "refresh.groups",
    "sync.topic.configs",
    "emit.checkpoints",
    "emit.heartbeats",
    "sync.group.offsets",
)


class Seen(NamedTuple):
    """What a consumer sees of a record."""

    kind: int
    time_ms: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]] | None


def read(bootstrap, topic, count, partition=0):
    """The first records of a partition, in their order, as soon as there are so many."""
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer({**config, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []

    def enough():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            key, value = message.key(), message.value()
            found.append(Seen(*message.timestamp(), key, value, message.headers()))
        return len(found) >= count

    try:
        eventually(enough, DEADLINE_S, f"{count} records of {topic}")
    finally:
        consumer.close()
    return found


def write(bootstrap, topic, times, first=0):
    """One record in a batch of its own for each time; its number is its value and its key."""
    with wire.Connection(bootstrap) as connection:
        for number, at in enumerate(times, first):
            text = str(number).encode()
            rec = Rec(at, text, text, (("where", b"from"),))
            assert produce(connection, topic, recordset.batch([rec]))["error_code"] == 0


def committed(bootstrap, group):
    """What the group has committed for the mirrored partition; negative if nothing."""
    (offset,) = committing.committed(of_group(bootstrap, group), "source.kept", 1)
    return offset


def of_group(bootstrap, group):
    return {"bootstrap.servers": bootstrap, "group.id": group}


def own_settings(bootstrap, topic):
    """What somebody set on a topic, not what it takes from the broker."""
    with wire.Connection(bootstrap) as connection:
        return own(connection, topic)


def mirror(source, target):
    """The settings of a MirrorMaker that copies three topics and keeps everything up to the second.

    It takes a worker's settings with the name of the cluster written to, and passes over others. Heartbeats
    to the source would be one more topic to copy, for which its only task would start anew amid the work.
    """
    return mirroring(
        {"source": source, "target": target},
        {"source->target": "kept, stamped, latest"},
        **{
            "target->source.enabled": "false",
            "target->source.emit.heartbeats.enabled": "false",
            "sync.group.offsets.enabled": "true",
            "offset.lag.max": 0,
            "target.offset.flush.interval.ms": 500,
            "target.session.timeout.ms": 60_000,
            **{f"target.{name}": value for name, value in PATIENT.items()},
            **{f"{each}.interval.seconds": 1 for each in INTERVALS},
        },
    )


@contextlib.contextmanager
def tidelog(directory):
    with Subject(directory / "data", {"log.retention.ms": -1}) as subject:
        yield subject.bootstrap
        assert subject.unexpected_errors == 0, subject.log()[-8000:]
        assert subject.bad_requests == 0, subject.log()[-8000:]


@contextlib.contextmanager
def kafka(directory):
    apache_kafka.require("3.9.1")
    with apache_kafka.ApacheKafka("3.9.1", directory, jvm=apache_kafka.QUICK) as running:
        wait_for_coordinators(running.bootstrap)
        yield running.bootstrap


@contextlib.contextmanager
def running(version, directory, source, target):
    apache_kafka.require(f"connect-{version}")
    path = properties(directory, "mirror", mirror(source, target))
    program = Program(version, "mirror", MIRROR_MAKER, directory, path)
    try:
        yield program
    except AssertionError as error:
        raise AssertionError(f"{program.tail(30)}\n\n{error}") from error
    finally:
        program.stop()


def prepare(source, target):
    with wire.Connection(source) as here, wire.Connection(target) as there:
        create(here, "kept", 2, retention_ms="-1", max_message_bytes="123456")
        create(here, "stamped", 1)
        create(here, "latest", 1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.9")
        create(there, "source.stamped", 1, message_timestamp_type="LogAppendTime")
        wait_for_leaders(here, {"kept": 2, "stamped": 1, "latest": 1})
    for topic in ("kept", "stamped", "latest"):
        write(source, topic, TIMES)
    for group, offset in (("all-read", len(TIMES)), ("one-left", len(TIMES) - 1)):
        committing.commit(of_group(source, group), "kept", {0: offset})


def check_records(target, began_ms):
    """Times as they were; where the target's topic stamps, its own, in the order of arrival."""
    for topic in ("source.kept", "source.latest"):
        seen = read(target, topic, len(TIMES))
        assert seen == [
            Seen(CREATE_TIME, at, text, text, [("where", b"from")])
            for at, text in zip(TIMES, NUMBERS, strict=True)
        ]
    stamped = read(target, "source.stamped", len(TIMES))
    assert {each.kind for each in stamped} == {LOG_APPEND_TIME}
    assert [each.value for each in stamped] == NUMBERS
    stamps = [each.time_ms for each in stamped]
    assert stamps == sorted(stamps)
    assert began_ms <= stamps[0] <= stamps[-1] <= time.time() * 1000


def check_heartbeats(target):
    """A heartbeat says its time twice: in the record's time and in its value, after a version."""
    beat = read(target, "heartbeats", 1)[0]
    assert b"source" in beat.key
    assert struct.unpack_from(">hq", beat.value) == (0, beat.time_ms)


def check_groups(target):
    """Groups go on at the target where they were at the source.

    Both places can be told from the pair of offsets of the last record alone. MirrorMaker promises no other:
    it has few pairs on their way at once, passes over those that wait when a later one comes, and leaves a
    group that lies before the first it wrote without a place.
    """
    for group, place in (("all-read", len(TIMES)), ("one-left", len(TIMES) - 1)):
        eventually(lambda: committed(target, group) == place, DEADLINE_S, f"the place of {group}")
    assert read(target, "source.checkpoints.internal", 2)


def check_settings(source, target):
    """Settings come along, and their changes, but not the time type: that is the target's."""
    told = own_settings(target, "source.kept")
    assert (told["retention.ms"], told["max.message.bytes"]) == ("-1", "123456")
    assert own_settings(target, "source.latest")["cleanup.policy"] == "compact"
    assert own_settings(target, "mm2-offsets.source.internal")["cleanup.policy"] == "compact"
    with wire.Connection(source) as connection:
        for change in (("retention.ms", SET, "777777777777"), ("segment.bytes", SET, "7777777")):
            assert alter(connection, TOPIC, "stamped", change) == (0, None)
    wanted = {"retention.ms": "777777777777", "segment.bytes": "7777777"}
    wanted["message.timestamp.type"] = "LogAppendTime"
    eventually(lambda: own_settings(target, "source.stamped") == wanted, DEADLINE_S)


@pytest.mark.parametrize(
    ("version", "origin"), [("3.9.1", tidelog), ("4.1.1", tidelog), ("4.1.1", kafka)]
)
def test_a_mirror(version, origin, tmp_path):
    places = [tmp_path / name for name in ("source", "target", "mirror")]
    for place in places:
        place.mkdir()
    with origin(places[0]) as source, tidelog(places[1]) as target:
        prepare(source, target)
        began_ms = int(time.time() * 1000)
        with running(version, places[2], source, target) as program:
            check_records(target, began_ms)
            check_heartbeats(target)
            check_groups(target)
            check_settings(source, target)
            if origin is tidelog:
                check_times_java_does_not_take(source, target, program)
        if origin is kafka:
            check_restart(version, places[2], source, target)


def check_times_java_does_not_take(source, target, program):
    """No time becomes the time of copying; one before 1970 ends the copying, with a sentence."""
    began_ms = time.time() * 1000
    write(source, "kept", [-1], first=7)
    seen = read(target, "source.kept", 8)[-1]
    assert (seen.kind, seen.value) == (CREATE_TIME, b"7")
    assert began_ms - 1 <= seen.time_ms <= time.time() * 1000
    write(source, "kept", [-5], first=8)
    eventually(lambda: b"Invalid record timestamp -5" in program.out.read_bytes(), DEADLINE_S)


def check_restart(version, directory, source, target):
    """What came meanwhile is copied, and nothing twice."""
    write(source, "kept", [33, 22], first=len(TIMES))
    with running(version, directory, source, target):
        seen = read(target, "source.kept", len(TIMES) + 2)
        assert [each.time_ms for each in seen] == [*TIMES, 33, 22]
        write(source, "kept", [11], first=len(TIMES) + 2)
        seen = read(target, "source.kept", len(TIMES) + 3)
        assert [int(each.value) for each in seen] == list(range(len(TIMES) + 3))
