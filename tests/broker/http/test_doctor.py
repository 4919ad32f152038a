"""GET /v1/doctor: every illness alone, all at once, none, and one topic or partition."""

from __future__ import annotations

import re
import shutil
import threading

import pytest

from tests.broker import asking
from tests.broker.illnesses import ILLNESSES, NOW_MS, examined, findings_of, inject
from tests.broker.subject import eventually, json_at
from tests.oracle import codecs, recordset
from tests.oracle.recordset import Rec
from tests.protocol.records import framings
from tidelog.broker.http.doctor import COMMANDS
from tidelog.cli.parser import main
from tidelog.storage.log.retention import findings


def ask(broker, query=""):
    """Status and JSON of /v1/doctor."""
    return json_at(broker.http, f"/v1/doctor{query}")


def found(answer):
    return [(each["topic"], each["finding"]) for each in answer["findings"]]


@pytest.fixture(scope="module")
def every_illness(tmp_path_factory):
    """A directory with every illness at once; broken by no test."""
    log_dir = tmp_path_factory.mktemp("ill") / "data"
    inject(log_dir)
    return log_dir


@pytest.fixture(scope="module")
def broker(every_illness):
    with examined(every_illness) as subject:
        yield subject


def test_every_illness_at_once_is_found_and_nothing_else(broker):
    status, answer = ask(broker)
    assert status == 200
    assert found(answer) == findings_of(ILLNESSES)
    assert (answer["partitions_examined"], answer["segments_unread"]) == (len(ILLNESSES) + 1, 0)
    assert (answer["errors"], answer["now_ms"]) == ([], NOW_MS)
    for each in answer["findings"]:
        assert set(each) == {
            *("broker", "topic", "partition", "finding", "figure", "unit", "sentence", "command"),
        }
        assert each["figure"] > 0
        assert re.fullmatch(r"[A-Z].*\.", each["sentence"])
        assert each["command"].startswith("tidelog ")
    figures = {
        (each["topic"], each["finding"]): (each["figure"], each["unit"])
        for each in answer["findings"]
    }
    assert figures["ahead", "append time ahead of the clock"] == (3650 * 86_400_000, "ms")
    # Retention, the segment and a round take two days and five minutes of these sixty.
    assert figures["overdue", "records outlive their retention"] == (
        58 * 86_400_000 - 300_000,
        "ms",
    )


@pytest.mark.parametrize("name", ILLNESSES)
def test_each_illness_of_one_topic_is_found_alone(broker, name):
    status, answer = ask(broker, f"?topic={name}")
    assert status == 200
    assert found(answer) == findings_of([name])
    assert (answer["topic"], answer["partitions_examined"]) == (name, 1)
    assert ask(broker, f"?topic={name}&partition=0")[1]["findings"] == answer["findings"]


def test_logs_that_a_clean_stop_closed_stay_closed(broker):
    ask(broker)
    # Only the one that must be read is open: nothing describes its times.
    assert broker.metric("tidelog_append_times_unknown_bytes") > 0
    assert broker.metric("tidelog_newest_append_time_ms") == 0


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ("?topic=nobody", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("?topic=healthy&partition=1", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("?topic=healthy&partition=x", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("?partition=0", 400, "BAD_REQUEST"),
        ("?topic=healthy&topic=seconds", 400, "BAD_REQUEST"),
        ("?tpic=healthy", 400, "UNKNOWN_PARAMETER"),
    ],
)
def test_mistakes(broker, query, status, error):
    given, answer = ask(broker, query)
    assert (given, answer["error"]) == (status, error)


@pytest.fixture
def copied(every_illness, tmp_path):
    """A directory with every illness, of a broker that has crashed: all logs are opened and read."""
    shutil.copytree(every_illness, tmp_path / "data")
    for path in (tmp_path / "data").glob(".kafka_cleanshutdown"):
        path.unlink()
    return tmp_path / "data"


def test_logs_that_were_not_closed_are_judged_as_they_are_also_by_a_clock_that_leaps(copied):
    names = sorted(set(ILLNESSES) - {"ahead"})  # what opening a log may correct by itself
    with examined(copied) as broker:
        answer = ask(broker)[1]
        assert [each for each in found(answer) if each[0] in names] == findings_of(names)
        assert answer["segments_unread"] == 0
        broker.clock.leap("400d")
        broker.clock.step("1s")
        answer = ask(broker, "?topic=endless")[1]
        assert found(answer) == [(None, "clock has leapt"), *findings_of(["endless"])]
        leapt = answer["findings"][0]
        assert (leapt["figure"], leapt["unit"]) == (400 * 86_400_000, "ms")
        assert (leapt["partition"], leapt["command"]) == (None, "tidelog clock accept")
        assert "2027-02-05T00:00:01.000Z, and has leapt" in leapt["sentence"]
        idle = ask(broker, "?topic=idle")[1]["findings"][1]
        assert idle["figure"] == 59 * 86_400_000 - 1 + 1_000  # by the time that is trusted


def test_what_the_broker_has_counted_of_times_in_a_wrong_unit_is_found(tmp_path):
    """No first or largest time of a segment shows a batch of seconds between right ones."""
    inject(tmp_path / "data", [])
    with examined(tmp_path / "data") as broker:
        with broker.connect() as connection:
            for time in (NOW_MS, NOW_MS // 1000, NOW_MS):
                data = recordset.batch([Rec(time, b"v")])
                assert asking.produce(connection, "healthy", data)["error_code"] == 0
        counted = broker.metric("tidelog_suspect_time_batches_total", topic="healthy")
        for query in ("", "?topic=healthy"):
            (finding,) = ask(broker, query)[1]["findings"]
            assert finding["finding"] == "times in a wrong unit arrived"
            assert (finding["topic"], finding["partition"]) == ("healthy", None)
            assert (finding["figure"], finding["unit"]) == (counted, "batches")
            assert "1 batch with times that look like seconds" in finding["sentence"]
            assert "message.timestamp.before.max.ms" in finding["command"]
        assert ask(broker, "?topic=healthy&partition=0")[1]["findings"] == []


@pytest.mark.slow
def test_where_nothing_was_injected_nothing_is_found_also_by_a_clock_that_goes_back(tmp_path):
    inject(tmp_path / "data", [])
    with examined(tmp_path / "data") as broker:
        assert found(ask(broker)[1]) == []
        broker.clock.step("-1d")
        assert found(ask(broker)[1]) == []


def test_nothing_else_waits_for_a_diagnosis_that_reads(copied):
    with examined(copied) as broker:
        fault = broker.faults.add(storage="read", topic="adopted", partition=0, delay="1h")
        answers = []
        slow = [
            threading.Thread(
                target=lambda: answers.append(found(ask(broker, "?topic=adopted")[1])), daemon=True
            )
            for _ in range(3)
        ]
        for thread in slow:
            thread.start()
        eventually(lambda: fault.hits >= 1, what="a diagnosis reads")
        assert json_at(broker.http, "/v1/topics/healthy/offsets")[0] == 200
        with broker.connect() as connection:
            assert asking.read_values(connection, "healthy") == [b"v", b"v"]
        assert "tidelog" in broker.page("/metrics")
        assert answers == []
        fault.lift()
        for thread in slow:
            thread.join(60)
        assert answers == [findings_of(["adopted"])] * 3


def test_every_remedy_has_a_command_that_there_is():
    names = "RESET END_BY_AGE APPEND REFUSE_OLD REFUSE_FUTURE NAME_MISSING EXPLAIN"
    remedies = {getattr(findings, name) for name in names.split()}
    assert set(COMMANDS) == {
        *remedies,
        "accept",
        "status",
        "scrub",
        "scrub all",
        "cluster",
        "settings",
    }
    for command in COMMANDS.values():
        with pytest.raises(SystemExit) as ended:
            main([command.split()[1], "--help"])
        assert ended.value.code == 0


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_set_of_another_broker_that_java_refuses_is_named_also_after_a_restart(tmp_path, magic):
    log_dir = tmp_path / "data"
    inject(log_dir, ["adopted"])
    recs = [Rec(NOW_MS - 1000, b"value" * 20, b"k%d" % i) for i in range(3)]
    with (log_dir / "adopted-0" / f"{0:020}.log").open("ab") as file:
        file.write(linked_set(magic, 1, recs))
    named = ("adopted", "Java clients stop")
    for _ in range(2):
        with examined(log_dir) as broker:
            answer = ask(broker, "?topic=adopted")[1]
            assert named in found(answer)
            (finding,) = [each for each in answer["findings"] if each["finding"] == named[1]]
            assert (finding["partition"], finding["figure"]) == (0, 1)
            assert (
                "The compressed batch at offset 1, which another broker stored"
                in finding["sentence"]
            )
            assert broker.stop() == 0
    # The command that helps says where the batch ends.
    command = finding["command"].split()
    assert command[0] == "tidelog"
    assert main([*command[1:], "--json"]) == 1


def linked_set(magic, first_offset, recs):
    """A compressed set in an lz4 frame of linked blocks, as a broker stores it."""
    if magic == 2:
        payload = b"".join(
            recordset.record(rec, recs[0].timestamp, i) for i, rec in enumerate(recs)
        )
        packed = framings.frame(framings.block(payload), flags=0x40)
        return recordset.batch(recs, codecs.LZ4, base_offset=first_offset, payload=packed)
    inner = b"".join(
        recordset.message(magic, rec, offset=i if magic else first_offset + i)
        for i, rec in enumerate(recs)
    )
    packed = framings.frame(framings.block(inner), flags=0x40)
    if not magic:
        packed = codecs.break_lz4_header(packed)
    wrapper, last_offset = Rec(recs[-1].timestamp, packed), first_offset + len(recs) - 1
    return recordset.message(magic, wrapper, offset=last_offset, attributes=codecs.LZ4)
