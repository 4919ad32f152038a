"""At least once: where a run continues, what it compares before, what it says may be there twice."""

from __future__ import annotations

import dataclasses
import time
import types

import pytest

from tests.pipeline.jobs.test_killed_replays import Compacted, ListSource, made, stored, task_of
from tests.pipeline.jobs.test_mirror import plain, some
from tidelog.client import Client
from tidelog.pipeline.errors import FINDINGS
from tidelog.pipeline.replay import comparing, conclusion, delivery, replay
from tidelog.pipeline.replay.delivery import AT_LEAST_ONCE, POSITION
from tidelog.pipeline.replay.replay import replay_partition
from tidelog.process import BrokerProcess
from tidelog.protocol.records.batch import Record, build

DAY_MS = 86_400_000
NOW = 1_700_000_000_000


def begun(bootstrap, topic, wanted, count, mode=AT_LEAST_ONCE):
    """A task whose first records are there, and somebody else's behind them."""
    made(bootstrap, topic)
    task = task_of(bootstrap, topic, wanted, mode)
    part = dataclasses.replace(task, source=ListSource(tuple(wanted[:count])))
    assert replay_partition(part).error is None
    with Client(bootstrap) as other:
        other.produce(topic, 0, build([Record(n, 5, b"theirs", b"") for n in range(30)]))
    return task


def ours(bootstrap, topic):
    return plain([one for one in stored(bootstrap, topic) if one.key != b"theirs"])


@pytest.mark.parametrize("gone", [1, 60])
def test_a_source_that_lost_records_meanwhile_stops_the_run(broker, topic, gone):
    """To count them would pass over others in their place."""
    wanted = some(300, 31, odd=False)
    task = begun(broker.bootstrap, topic, wanted, 150)
    outcome = replay_partition(
        dataclasses.replace(task, source=Compacted(tuple(wanted), gone=gone))
    )
    assert outcome.error is not None
    assert "the source has changed" in outcome.error
    assert ours(broker.bootstrap, topic) == plain(wanted[:150])


@pytest.fixture
def forgetful(tmp_path):
    """A broker that forgets a producer after a day, with a manual clock."""
    with BrokerProcess(tmp_path / "data", clock="manual") as process:
        process.clock.freeze(NOW)
        yield process


def forget(broker, topic, task):
    """Let two days go by: the next producer that is new finds those that are due."""
    broker.clock.freeze(NOW + 2 * DAY_MS)
    with Client(broker.bootstrap) as client:
        producer_id, epoch = client.init_producer_id()
        theirs = [Record(0, 5, b"theirs", b"")]
        more = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
        client.produce(topic, 0, build(theirs, **more))
        assert client.last_sequence(topic, 0, task.delivery.producer_id) is None


@pytest.mark.slow
def test_what_the_log_has_of_a_forgotten_producer_is_not_written_again(forgetful, topic):
    wanted = some(300, 33)
    task = begun(forgetful.bootstrap, topic, wanted, 150)
    forget(forgetful, topic, task)
    outcome = replay_partition(task)
    assert (outcome.error, outcome.found, outcome.doubts) == (None, 150, ())
    assert ours(forgetful.bootstrap, topic) == plain(wanted)


@pytest.mark.slow
def test_what_may_be_there_twice_is_said(forgetful, topic, tmp_path, monkeypatch, capsys):
    """The producer is forgotten, and others have written more than is searched for it."""
    monkeypatch.setattr(comparing, "MOST_BYTES", 1)
    monkeypatch.setattr(comparing, "FIRST_OFFSETS", 10)
    wanted = some(300, 34)
    task = begun(forgetful.bootstrap, topic, wanted, 150)
    forget(forgetful, topic, task)
    outcome = replay_partition(task)
    assert (outcome.error, outcome.found, outcome.count) == (None, 0, 300)
    (said,) = outcome.doubts
    assert "up to 171 records may be there twice" in said
    assert ours(forgetful.bootstrap, topic) == plain(wanted[:150] + wanted)
    more = {"mode": AT_LEAST_ONCE, "seconds": 1.0, "kind": "html"}
    assert conclusion.conclude("mirror", "r", tmp_path, [outcome], **more) == FINDINGS
    assert said in capsys.readouterr().err
    assert "may be there twice" in (tmp_path / "report.html").read_text()


def test_what_cannot_be_compared_is_said(broker, topic, monkeypatch):
    wanted = some(300, 35)
    task = begun(broker.bootstrap, topic, wanted, 150)
    monkeypatch.setattr(comparing, "MOST_BYTES", 1)
    monkeypatch.setattr(comparing, "FIRST_OFFSETS", 10)
    outcome = replay_partition(task)
    assert (outcome.error, outcome.found) == (None, 150)
    assert any("150 records that were there" in one for one in outcome.doubts)
    assert ours(broker.bootstrap, topic) == plain(wanted)


# --- a gap in the sequences that does not go away ---------------------------------------------------


def test_a_gap_that_stays_ends_the_task(broker, topic, monkeypatch):
    """It is asked again with growing pauses, and not for ever; by a clock that the pauses alone move."""
    wanted = some(300, 36)
    made(broker.bootstrap, topic)
    task = task_of(broker.bootstrap, topic, wanted, POSITION, timeout_s=60.0)
    part = dataclasses.replace(task, source=ListSource(tuple(wanted[:100])))
    assert replay_partition(part).error is None
    tries, pauses = [], []

    def wrong(self, number):
        tries.append(number)
        return number + 7

    clock = types.SimpleNamespace(
        monotonic=lambda: 5.0 + sum(pauses), process_time=time.process_time, sleep=pauses.append
    )
    monkeypatch.setattr(replay, "time", clock)
    monkeypatch.setattr(delivery.PartitionWriter, "sequence", wrong)
    outcome = replay_partition(task)
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in outcome.error
    assert f"started over {outcome.restarts} times" in outcome.error
    assert (outcome.found, outcome.count) == (100, 100)
    assert tries.count(100) == outcome.restarts + 1 == len(pauses) + 1
    for number, pause_s in enumerate(pauses):
        longest_s = min(0.05 * 2**number, 2.0)
        assert longest_s / 2 <= pause_s <= longest_s
    assert 58 < sum(pauses) <= 60
