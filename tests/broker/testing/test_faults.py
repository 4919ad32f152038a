"""Faults by request: what may be injected, when it strikes, and what a client sees of it."""

import errno
import threading
import time
from pathlib import Path

import pytest

from tests.broker import asking
from tests.broker.conftest import of_module
from tests.broker.subject import eventually
from tidelog.broker.testing.fault_storage import FaultySystem
from tidelog.broker.testing.faults import Faults, served_apis
from tidelog.control import ControlError
from tidelog.protocol import message
from tidelog.protocol.error_codes import ErrorCode
from tidelog.storage import files

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


one = of_module({"control.listener": "127.0.0.1:0"})


@pytest.fixture
def broker(one):
    """The broker of this file, with nothing injected."""
    yield one
    if one.is_running:
        one.faults.clear()


@pytest.fixture
def topic(connection):
    return asking.new_topic(connection, partitions=2)


def code(connection, topic, partition=0, **how):
    answer = asking.produce(connection, topic, asking.batch_of("v"), partition=partition, **how)
    return None if answer is None else answer["error_code"]


# --- what may be injected -------------------------------------------------------------------------


PRODUCE = {"api": "Produce"}
FETCH = {"api": "Fetch"}
WRITE = {"storage": "write"}
MISTAKES = (
    ({}, "say where: api (such as Produce) or storage (such as write), one of them"),
    ({**PRODUCE, **WRITE, "error": "EIO"}, "say where: api"),
    ({"api": "produce", "error": "X"}, "there is none of that name; did you mean Produce?"),
    (PRODUCE, "say what: error, delay or disconnect, one of them"),
    ({**PRODUCE, "error": "X", "delay": 1}, "say what: error, delay or disconnect"),
    ({**PRODUCE, "error": "NOT_LEADER"}, "did you mean NOT_LEADER_OR_FOLLOWER?"),
    ({**PRODUCE, "error": "NONE"}, "error='NONE': there is none of that name"),
    ({**PRODUCE, "error": 6}, "error=6: there is none of that name"),
    ({**PRODUCE, "delay": "long"}, "delay=long: 'long' is not a span of time"),
    ({**PRODUCE, "delay": "2d"}, "delay=2d: expected more than 0 and at most a day"),
    ({**PRODUCE, "disconnect": "after"}, "disconnect='after': expected true"),
    ({**FETCH, "disconnect": True, "when": "late"}, "when='late': expected before, after"),
    ({**FETCH, "error": "UNKNOWN_SERVER_ERROR", "when": "after"}, "was served: only of Produce"),
    ({**PRODUCE, "partition": 0, "error": "X"}, "partition needs a topic"),
    ({**FETCH, "topic": "t", "partition": -1, "delay": 1}, "partition=-1: expected an int"),
    ({**FETCH, "topic": "t", "partition": True, "delay": 1}, "partition=True: expected"),
    ({**FETCH, "topic": "", "delay": 1}, "topic='': expected a name"),
    ({"api": "ApiVersions", "topic": "t", "delay": 1}, "cannot be selected by topic; "),
    (
        {"api": "Metadata", "topic": "t", "partition": 0, "delay": 1},
        "Metadata cannot be selected by partition; Produce, Fetch, ",
    ),
    ({**FETCH, "log_dir": "data", "delay": 1}, "log_dir goes with storage, not with api"),
    ({**FETCH, "delay": 1, "times": 0}, "times=0: expected an integer, 1 or more"),
    ({**FETCH, "delay": 1, "skip": 1.5}, "skip=1.5: expected an integer, 0 or more"),
    ({**FETCH, "delay": 1, "probability": 0}, "probability=0: expected a number above 0"),
    ({**FETCH, "delay": 1, "seed": 3}, "seed goes with a probability below 1"),
    ({**FETCH, "delay": 1, "time": 3}, "'time' is nothing a fault has; did you mean times?"),
    ({"storage": "chmod", "error": "EIO"}, "storage='chmod': expected open, read, write, sync"),
    ({**WRITE, "error": "ENOSPACE"}, "did you mean ENOSPC?"),
    ({**WRITE, "disconnect": True}, "disconnect and when go with api, not with"),
    ({**WRITE, "error": "EIO", "log_dir": "/x"}, "log_dir='/x': expected "),
)


def test_a_mistake_is_told(broker):
    for given, sentence in MISTAKES:
        with pytest.raises(ControlError) as caught:
            broker.ask_control("POST", "/v1/faults", given)
        assert sentence in str(caught.value)
    assert broker.faults.list() == []


def test_injected_listed_counted_lifted(broker, connection, topic):
    first = broker.faults.add(api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=1)
    second = broker.faults.add(storage="sync", delay="1ms", probability=0.5, seed=7)
    third = broker.faults.add(api="Fetch", disconnect=True, when="after", skip=3)
    assert code(connection, topic) == NOT_LEADER
    assert code(connection, topic) == 0
    shown = {each["id"]: each for each in broker.faults.list()}
    assert shown[first.id] == {
        "id": first.id,
        "api": "Produce",
        "topic": topic,
        "error": "NOT_LEADER_OR_FOLLOWER",
        "when": "before",
        "times": 1,
        "seen": 2,
        "hits": 1,
    }
    assert {name: shown[second.id][name] for name in ("storage", "delay_ms", "probability", "seed")}
    assert shown[third.id]["skip"] == 3
    assert first.hits == 1
    assert first.lift() == 1
    with pytest.raises(ControlError, match=f"there is no fault {first.id}"):
        first.lift()
    assert [each["id"] for each in broker.faults.list()] == [second.id, third.id]
    broker.faults.clear()
    assert broker.faults.list() == []
    with broker.faults.add(api="Fetch", delay=1):
        assert len(broker.faults.list()) == 1
    assert broker.faults.list() == []


# --- when it strikes -----------------------------------------------------------------------------


def strikes(count, **given):
    fault = Faults([]).add({"api": "Fetch", "delay": 1, **given})
    return [fault.strikes() for _ in range(count)]


def test_times_and_skip():
    assert strikes(5) == [True] * 5
    assert strikes(5, times=2) == [True, True, False, False, False]
    assert strikes(5, times=1, skip=2) == [False, False, True, False, False]
    assert strikes(3, skip=2) == [False, False, True]


def test_a_seed_makes_chance_the_same_every_time():
    first = strikes(1000, probability=0.3, seed=1)
    assert 250 < sum(first) < 350
    assert first == strikes(1000, probability=0.3, seed=1)
    assert first != strikes(1000, probability=0.3, seed=2)
    assert sum(strikes(1000, probability=0.3, seed=1, times=5)) == 5


def test_many_threads_share_the_count():
    fault = Faults([]).add({"storage": "write", "error": "EIO", "times": 100})
    struck = []
    ask = lambda: struck.extend(fault.strikes() for _ in range(1000))
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(struck), fault.seen, fault.hits) == (100, 4000, 100)


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", asking.all_versions("Produce"))
def test_an_error_of_produce_strikes_one_partition(broker, connection, topic, version):
    broker.faults.add(api="Produce", topic=topic, partition=1, error="NOT_LEADER_OR_FOLLOWER")
    name = asking.named(connection, topic, version)
    records = asking.records_for(version, "v")
    ask = lambda index: asking.produce(connection, name, records, version=version, partition=index)
    assert [ask(0)["error_code"], ask(1)["error_code"], ask(0)["base_offset"]] == [0, NOT_LEADER, 1]


def test_of_several_partitions_only_those_that_are_meant(broker, connection, topic):
    fault = broker.faults.add(api="Produce", topic=topic, partition=1, error="CORRUPT_MESSAGE")
    fields = asking.produce_fields(topic, asking.batch_of("a"))
    data = fields["topic_data"][0]["partition_data"]
    data.append({"index": 1, "records": asking.batch_of("b")})
    answer = connection.ask("Produce", 9, **fields)
    told = answer["responses"][0]["partition_responses"]
    assert [each["error_code"] for each in told] == [0, ErrorCode.CORRUPT_MESSAGE]
    assert told[1]["error_message"].endswith(f"(injected, fault {fault.id})")
    assert broker.metric("kafka_server_brokertopicmetrics_failedproducerequests_total") >= 1


def test_an_old_client_is_told_by_the_name_it_knows(broker, connection, topic):
    broker.faults.add(api="Produce", topic=topic, error="KAFKA_STORAGE_ERROR")
    assert code(connection, topic, version=3) == NOT_LEADER
    assert code(connection, topic, version=4) == STORAGE_ERROR


def test_without_acks_an_error_ends_the_connection_as_it_does_in_kafka(broker, connection, topic):
    broker.faults.add(api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=1)
    asking.produce(connection, topic, asking.batch_of("v"), acks=0)
    assert connection.receive() is None
    connection.close()
    assert asking.list_offset(connection, topic, -1)["offset"] == 0


def test_an_error_after_the_append_leaves_the_records_there(broker, connection, topic):
    broker.faults.add(api="Produce", topic=topic, error="REQUEST_TIMED_OUT", when="after", times=1)
    assert code(connection, topic) == ErrorCode.REQUEST_TIMED_OUT
    assert code(connection, topic) == 0
    assert asking.list_offset(connection, topic, -1)["offset"] == 2


def test_a_fetch_with_an_error_is_answered_at_once(broker, connection, topic):
    broker.faults.add(api="Fetch", topic=topic, error="OFFSET_OUT_OF_RANGE", times=1)
    answer = asking.fetch(connection, topic, max_wait_ms=600_000, min_bytes=1)
    assert answer["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert asking.fetch(connection, topic)["error_code"] == 0


def test_errors_of_fetch_sessions_are_the_requests_own(broker, connection, topic):
    broker.faults.add(api="Fetch", error="FETCH_SESSION_ID_NOT_FOUND", times=1)
    answer = connection.ask("Fetch", 12, **asking.fetch_fields(topic))
    assert (answer["error_code"], answer["responses"]) == (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        [],
    )


def test_every_api_answers_an_error_in_its_own_shape(broker, connection):
    """One that nothing of ours raises; a raw client decodes the answer with schemas not ours."""
    for api, body in asking.BODIES.items():
        broker.faults.add(api=api, error="THROTTLING_QUOTA_EXCEEDED", times=1)
        version = {"Produce": 12, "Fetch": 12}.get(api, asking.VERSIONS[api])
        answers = [connection.ask(api, version, **body) for _ in range(2)]
        struck = [ErrorCode.THROTTLING_QUOTA_EXCEEDED in asking.codes_in(each) for each in answers]
        assert struck == [True, False], api


def test_every_api_served_has_a_body_above():
    assert set(asking.BODIES) == set(served_apis())
    assert len(served_apis()) == len(message.served_apis())


def metadata(connection, topics, version=12):
    asked = None if topics is None else [{"name": name} for name in topics]
    answer = connection.ask("Metadata", version, topics=asked, allow_auto_topic_creation=False)
    assert answer["brokers"]
    return {each["name"]: each["error_code"] for each in answer["topics"]}


def test_metadata_by_topic(broker, connection, topic):
    other = asking.new_topic(connection)
    fault = broker.faults.add(api="Metadata", topic=topic, error="LEADER_NOT_AVAILABLE")
    told = {topic: ErrorCode.LEADER_NOT_AVAILABLE, other: 0}
    assert metadata(connection, [topic, other]) == told
    assert told.items() <= metadata(connection, None).items()
    assert metadata(connection, [other]) == {other: 0}
    assert fault.hits == 2


def test_topics_are_not_made_and_not_deleted(broker, connection, topic):
    broker.faults.add(api="CreateTopics", topic="never", error="NOT_CONTROLLER")
    broker.faults.add(api="DeleteTopics", topic=topic, error="NOT_CONTROLLER")
    wanted = [{"name": "never", "num_partitions": 1, "replication_factor": 1}]
    answer = connection.ask("CreateTopics", 5, topics=wanted, timeout_ms=1, validate_only=False)
    assert answer["topics"][0]["error_code"] == ErrorCode.NOT_CONTROLLER
    by_id = {"topics": [{"topic_id": asking.topic_id_of(connection, topic)}]}
    by_name = {"topics": [{"name": topic}]}
    for version, topics in ((5, {"topic_names": [topic]}), (6, by_name), (6, by_id)):
        answer = connection.ask("DeleteTopics", version, timeout_ms=1, **topics)
        assert answer["responses"][0]["error_code"] == ErrorCode.NOT_CONTROLLER
    assert metadata(connection, [topic, "never"]) == {
        topic: 0,
        "never": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


# --- disconnects and delays ----------------------------------------------------------------------


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize(("when", "end"), [("before", 1), ("after", 2)])
def test_a_disconnect_before_or_after_the_append(broker, connection, topic, when, end, acks):
    broker.faults.add(api="Produce", topic=topic, disconnect=True, when=when, times=1)
    bad_requests = broker.bad_requests
    assert code(connection, topic, acks=acks) is None
    assert code(connection, topic, acks=acks) == 0
    assert asking.list_offset(connection, topic, -1)["offset"] == end
    assert broker.bad_requests == bad_requests  # the client did nothing wrong


@pytest.mark.parametrize(("when", "end"), [("before", 0), ("after", 1)])
def test_a_delay_holds_one_connection_until_it_is_lifted(broker, connection, topic, when, end):
    """Before the append, or its answer alone."""
    fault = broker.faults.add(api="Produce", topic=topic, delay="1h", when=when)
    held = threading.Thread(target=lambda: code(connection, topic), daemon=True)
    held.start()
    eventually(lambda: fault.hits == 1)
    with broker.connect() as other:
        eventually(lambda: asking.list_offset(other, topic, -1)["offset"] == end)
        assert held.is_alive()
        fault.lift()
        held.join(60)
        assert not held.is_alive()
        assert asking.list_offset(other, topic, -1)["offset"] == 1


def test_a_stop_waits_for_no_delay(start):
    broker = start({"control.listener": "127.0.0.1:0"})
    with broker.connect() as connection:
        asking.create(connection, "t")
        fault = broker.faults.add(api="Produce", delay="1d")
        held = threading.Thread(target=lambda: code(connection, "t"), daemon=True)
        held.start()
        eventually(lambda: fault.hits == 1)
        assert broker.stop() == 0
        held.join(60)
        assert not held.is_alive()


@pytest.mark.slow
def test_a_disk_that_is_full_at_the_end(start):
    """The stop fails, and says so; the next start finds everything that was acknowledged."""
    broker = start({"control.listener": "127.0.0.1:0"})
    with broker.connect() as connection:
        asking.create(connection, "t")
        assert code(connection, "t") == 0
        broker.faults.add(storage="write", error="ENOSPC", topic="t")
        broker.faults.add(storage="sync", delay="1d", skip=1)
        assert broker.stop() == 1
        assert broker.lines(
            "level=critical", "broker stopped on error", "t-0: the log cannot be closed"
        )
        broker.restart()
        connection.close()
        assert asking.read_values(connection, "t") == [b"v"]


# --- the disk ------------------------------------------------------------------------------------


def test_a_full_disk_fails_appends_of_one_partition(broker, connection, topic):
    fault = broker.faults.add(storage="write", error="ENOSPC", topic=topic, partition=0)
    refused = asking.produce(connection, topic, asking.batch_of("v"))
    assert refused["error_code"] == STORAGE_ERROR
    assert "No space left on device" in refused["error_message"]
    assert code(connection, topic, partition=1) == 0
    assert asking.fetch(connection, topic)["error_code"] == 0
    fault.lift()
    assert code(connection, topic) == 0
    assert asking.read_values(connection, topic) == [b"v"]
    assert broker.lines("storage error", f"topic={topic}", "No space left on device")


def test_a_checkpoint_that_finds_no_room_is_told_in_a_line(start):
    """And no producer minds: the next one makes good for it."""
    chores = {"connections.max.idle.ms": "4000", "control.listener": "127.0.0.1:0"}  # every second
    broker = start(chores)
    with broker.connect() as connection:
        asking.create(connection, "t")
        assert code(connection, "t") == 0
    with broker.faults.add(storage="rename", error="ENOSPC", topic="t"):
        with broker.connect() as connection:
            assert code(connection, "t") == 0
        eventually(lambda: broker.lines("level=error", "checkpoint failed", "reason=", "injected"))
        with broker.connect() as connection:
            assert code(connection, "t") == 0
    with broker.connect() as connection:
        assert asking.read_values(connection, "t") == [b"v"] * 3


def test_a_disk_that_cannot_be_read(broker, connection, topic):
    assert code(connection, topic) == 0
    broker.faults.add(storage="read", error="EIO", topic=topic)
    assert asking.fetch(connection, topic)["error_code"] == STORAGE_ERROR
    broker.faults.clear()
    assert asking.read_values(connection, topic) == [b"v"]


WHERE = (
    ({}, ["a/t-0", "a/t-1", "a/u-0", "b/t-2"]),
    ({"log_dir": "a"}, ["a/t-0", "a/t-1", "a/u-0"]),
    ({"topic": "t"}, ["a/t-0", "a/t-1", "b/t-2"]),
    ({"topic": "t", "partition": 1}, ["a/t-1"]),
    ({"topic": "t", "log_dir": "b"}, ["b/t-2"]),
)


@pytest.mark.parametrize(
    ("asked", "ask"),
    [
        ("open", files.Descriptor),
        ("read", lambda path: files.read_at(files.Descriptor(path), 1, 0)),
        (
            "write",
            lambda path: files.write_at(files.Descriptor(path, writable=True), [b"x"], 0, 1),
        ),
        ("sync", files.sync),
        ("sync", lambda path: files.sync(path.parent)),
        ("sync", lambda path: files.sync_data(files.Descriptor(path))),
        ("truncate", lambda path: files.truncate(path, 1)),
        ("rename", lambda path: files.rename(path, path.with_suffix(".new"))),
        ("unlink", files.unlink),
    ],
)
def test_where_and_at_what_the_disk_fails(tmp_path, monkeypatch, asked, ask):
    monkeypatch.chdir(tmp_path)
    logs = [Path(name) for name in ("a/t-0", "a/t-1", "a/u-0", "b/t-2")]
    for log in logs:
        log.mkdir(parents=True)
    faults = Faults([Path("a"), Path("b")])
    before = files.use(FaultySystem(faults))
    try:
        for where, struck in WHERE:
            for log in logs:
                (log / "0.log").write_bytes(b"xx")
            fault = faults.add({"storage": asked, "error": "EIO", **where})
            for log in logs:
                if str(log) in struck:
                    with pytest.raises(OSError, match=f"injected, fault {fault.number}") as caught:
                        ask(log / "0.log")
                    assert caught.value.errno == errno.EIO
                else:
                    ask(log / "0.log")
            assert fault.hits == len(struck)
            faults.clear()
            ask(Path(struck[0]) / "0.log")
    finally:
        files.use(before)


def test_a_sweep_names_what_it_could_not_do(broker, connection):
    topic = asking.new_topic(connection, retention_ms="1", segment_bytes="100")
    for _ in range(2):
        assert code(connection, topic) == 0  # of 1970
    with broker.faults.add(storage="rename", error="EIO", topic=topic):
        told = broker.ask_control("POST", "/v1/sweep", {"topic": topic})
    ((failed),) = told["failed"]
    assert (failed["topic"], failed["partition"], told["deleted"]) == (topic, 0, [])
    assert "injected" in failed["reason"]
    assert broker.lines("level=error", "retention failed", f"log={topic}-0")


def test_a_disk_that_dawdles_over_a_sync(broker, connection):
    """A sync comes to Produce where flush.messages is 1."""
    topic = asking.new_topic(connection, flush_messages="1")
    slow = broker.faults.add(storage="sync", topic=topic, delay="50ms", times=1)
    began_s = time.monotonic()
    assert code(connection, topic) == 0
    assert time.monotonic() - began_s >= 0.05
    assert slow.hits == 1


def test_records_that_a_failed_sync_has_refused_are_gone_after_a_restart(start):
    broker = start({"control.listener": "127.0.0.1:0"})
    with broker.connect() as connection:
        asking.create(connection, "t", flush_messages="1")
        assert code(connection, "t") == 0
        broker.faults.add(storage="sync", topic="t", error="EIO")
        assert [code(connection, "t") for _ in range(2)] == [STORAGE_ERROR] * 2
    broker.kill()
    broker.restart()
    with broker.connect() as connection:
        assert asking.read_values(connection, "t") == [b"v"]
        assert code(connection, "t") == 0
        assert asking.read_values(connection, "t") == [b"v"] * 2
