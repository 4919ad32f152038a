"""Exactly once, whatever is killed: the driver, the target, a task beside its zombie; and who else writes."""

from __future__ import annotations

import dataclasses
import math
import signal
import threading

import numpy as np
import pytest

from tests.broker.subject import eventually
from tests.pipeline.drivers import standing_still
from tests.pipeline.jobs.test_mirror import KEEP, check, delete, everything, mirror, plain, some
from tests.pipeline.offset_maps import target_offset_of
from tidelog.client import READ_COMMITTED, Client, Fenced
from tidelog.client.appender import Appender
from tidelog.client.calls import producers
from tidelog.pipeline.errors import OK
from tidelog.pipeline.replay import delivery
from tidelog.pipeline.replay.delivery import AT_LEAST_ONCE, POSITION, TRANSACTIONS, Delivery
from tidelog.pipeline.replay.replay import Task, replay_partition
from tidelog.pipeline.replay.targets import look_at
from tidelog.pipeline.replay.transactions import Transactions, ensure_progress_topic
from tidelog.process import BrokerProcess
from tidelog.protocol.records.batch import Record, build
from tidelog.protocol.records.column_batches import EncodedBatch, encode_batches
from tidelog.protocol.records.columns import ColumnBuffers, RecordSelection, append_set

DEADLINE_S = 90


@dataclasses.dataclass
class Rows:
    count: int
    buffers: ColumnBuffers
    offset: np.ndarray


@dataclasses.dataclass(frozen=True)
class ListSource:
    """Records of a list, `step` of them at a time; their offsets are 0, 2, 4 ..."""

    records: tuple[Record, ...]
    step: int = 50

    def read(self):
        for start in range(0, len(self.records), self.step):
            part = self.records[start : start + self.step]
            columns = ColumnBuffers()
            data = build([one._replace(offset=n) for n, one in enumerate(part)])
            append_set(data, columns, RecordSelection())
            numbers = np.arange(start, start + len(part), dtype=np.int64) * 2
            yield Rows(len(part), columns, numbers)


def task_of(bootstrap, topic, wanted, mode, *, name="test/run", start=0, **more):
    with Client(bootstrap) as client:
        if mode == TRANSACTIONS:
            ensure_progress_topic(client)
        producer_id, _ = client.init_producer_id()
    return Task(
        brokers=bootstrap,
        topic=topic,
        partition=0,
        delivery=Delivery(mode, name, start, producer_id),
        source=ListSource(tuple(wanted)),
        source_topic="source",
        source_partition=0,
        **{"batch_limit": 2000, "compression": 0, **more},
    )


def made(bootstrap, topic):
    with Client(bootstrap) as client:
        client.create_topic(topic, 1, KEEP)


def stored(bootstrap, topic):
    with Client(bootstrap) as client:
        return everything(client, topic, 0)


def is_exact(outcome, bootstrap, topic, wanted):
    """Whether every record is there once, in order, and where the map says."""
    found = stored(bootstrap, topic)
    return (
        outcome.error is None
        and plain(found) == plain(wanted)
        and [target_offset_of(outcome.map.runs, 2 * n) for n in range(len(wanted))]
        == [one.offset for one in found]
    )


# --- what stops and continues ---------------------------------------------------------------------


@pytest.fixture(params=[POSITION, pytest.param(TRANSACTIONS, marks=pytest.mark.oracle)])
def place(request):
    """A target and the mode that is exact there."""
    name = "kafka" if request.param == TRANSACTIONS else "broker"
    return request.getfixturevalue(name).bootstrap, request.param


@pytest.mark.parametrize("stop_after", [1, 137, 900])
def test_a_task_that_died_is_done_again(place, topic, stop_after):
    bootstrap, mode = place
    wanted = some(1000, 11)
    made(bootstrap, topic)
    task = task_of(bootstrap, topic, wanted, mode)

    class DiedError(Exception):
        pass

    @dataclasses.dataclass(frozen=True)
    class Dying(ListSource):
        def read(self):
            seen = 0
            for rows in super().read():
                yield rows
                seen += rows.count
                if seen >= stop_after:
                    raise DiedError

    with pytest.raises(DiedError):
        replay_partition(dataclasses.replace(task, source=Dying(tuple(wanted))))
    for _ in range(2):
        outcome = replay_partition(task)
        assert is_exact(outcome, bootstrap, topic, wanted)
    assert outcome.found == 1000


@dataclasses.dataclass(frozen=True)
class Together(ListSource):
    """It gives its records to nobody before all have asked for them: nobody is done before another begins."""

    all_ask: threading.Barrier = dataclasses.field(kw_only=True)
    have_asked: threading.Event = dataclasses.field(default_factory=threading.Event, kw_only=True)

    def read(self):
        if not self.have_asked.is_set():  # who comes second reads again
            self.all_ask.wait(DEADLINE_S)
            self.have_asked.set()
        yield from super().read()


def three_at_once(task):
    outcomes = []
    together = Together(task.source.records, all_ask=threading.Barrier(3))
    task = dataclasses.replace(task, source=together)
    threads = [
        threading.Thread(target=lambda: outcomes.append(replay_partition(task))) for _ in range(3)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join(DEADLINE_S)
    assert len(outcomes) == 3
    return outcomes


def test_two_tasks_at_once_write_each_record_once(broker, topic):
    """A speculative task, or one whose machine was only out of sight."""
    wanted = some(3000, 12)
    made(broker.bootstrap, topic)
    outcomes = three_at_once(task_of(broker.bootstrap, topic, wanted, POSITION))
    assert all(is_exact(one, broker.bootstrap, topic, wanted) for one in outcomes)


@pytest.mark.oracle
def test_a_fenced_zombie_stops(kafka, topic):
    wanted = some(400, 14)
    made(kafka.bootstrap, topic)
    task = task_of(kafka.bootstrap, topic, wanted, TRANSACTIONS, name=f"zombie/{topic}")
    with Client(kafka.bootstrap) as client:
        zombie = delivery.writer(client, topic, 0, task.delivery)
        assert zombie.begin() == 0
        (rows,) = ListSource(tuple(wanted), step=400).read()

        def append(start, end):
            for batch in encode_batches(
                rows.buffers, start, end, producer=zombie.producer, base_sequence=zombie.sequence(0)
            ):
                zombie.append(batch, rows.offset[start:end])

        append(0, 100)  # in a transaction that is never committed
        assert is_exact(replay_partition(task), kafka.bootstrap, topic, wanted)

        def go_on():
            append(100, 200)
            zombie.finish()

        with pytest.raises(Fenced, match="a newer task"):
            go_on()
    assert is_exact(replay_partition(task), kafka.bootstrap, topic, wanted)


@pytest.mark.slow
def test_a_broker_killed_in_the_middle(broker, topic, tmp_path):
    wanted = some(20_000, 15, odd=False)
    with BrokerProcess(tmp_path / "data") as target:
        made(target.bootstrap, topic)
        task = task_of(target.bootstrap, topic, wanted, POSITION, timeout_s=DEADLINE_S)
        outcomes = []
        writing = threading.Thread(target=lambda: outcomes.append(replay_partition(task)))
        writing.start()
        for share in (0.2, 0.6):
            wait_for(target.bootstrap, topic, int(share * len(wanted)))
            target.kill()
            target.restart()
        writing.join(DEADLINE_S)
        assert is_exact(outcomes[0], target.bootstrap, topic, wanted)


def wait_for(bootstrap, topic, count):
    with Client(bootstrap, timeout_s=DEADLINE_S) as client:
        eventually(lambda: client.end_offset(topic, 0) >= count, DEADLINE_S)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["tidelog", pytest.param("kafka", marks=pytest.mark.oracle)])
def test_a_driver_killed_in_the_middle(request, broker, topic, tmp_path, target):
    bootstrap = broker.bootstrap
    to = request.getfixturevalue("kafka").bootstrap if target == "kafka" else bootstrap
    copy = f"{topic}-copy"
    wanted = some(30_000, 16, odd=False)
    with Client(bootstrap) as client, Client(to) as there:
        client.create_topic(topic, 1, KEEP)
        there.create_topic(copy, 1, KEEP)
        for start in range(0, len(wanted), 5000):
            part = [one._replace(offset=n) for n, one in enumerate(wanted[start : start + 5000])]
            client.produce(topic, 0, build(part))
    how = ("--rename", f"{topic}={copy}", "--batch-bytes", "2000")
    command = ["mirror", "--brokers", bootstrap, "--to-brokers", to, "--topics", topic]
    command += ["--master", "inline", "--run", "r", "--out", str(tmp_path), *how]
    for share in (0.1, 0.5, math.inf):
        with standing_still(command, after=share * len(wanted)) as driver:
            driver.kill()
        assert driver.returncode == -signal.SIGKILL
        assert not (tmp_path / "r" / "report.json").exists()
    assert mirror(bootstrap, to, topic, tmp_path, *how) == OK
    check(to, copy, {0: wanted}, tmp_path)


# --- who else writes ------------------------------------------------------------------------------


def test_somebody_else_in_the_partition_is_noticed(broker, topic):
    wanted = some(500, 17)
    made(broker.bootstrap, topic)
    task = task_of(broker.bootstrap, topic, wanted, POSITION)

    @dataclasses.dataclass(frozen=True)
    class Disturbed(ListSource):
        def read(self):
            for number, rows in enumerate(super().read()):
                if number == 5:
                    with Client(broker.bootstrap) as other:
                        other.produce(topic, 0, build([Record(0, 5, b"theirs", b"")]))
                yield rows

    outcome = replay_partition(dataclasses.replace(task, source=Disturbed(tuple(wanted))))
    assert "somebody else writes to this partition" in outcome.error
    again = replay_partition(task)
    assert "has another record at offset" in again.error
    theirs = [one for one in stored(broker.bootstrap, topic) if one.key == b"theirs"]
    assert len(theirs) == 1


def test_another_record_before_the_place_to_go_on_is_noticed(broker, topic):
    wanted = some(300, 18, odd=False)
    made(broker.bootstrap, topic)
    task = task_of(broker.bootstrap, topic, wanted[:200], POSITION)
    assert replay_partition(task).error is None
    for changed in (
        wanted[199]._replace(timestamp=wanted[199].timestamp + 1),
        wanted[199]._replace(value=b"other"),
        wanted[199]._replace(headers=((b"h", b"other"),)),
    ):
        other = dataclasses.replace(
            task, source=ListSource((*wanted[:199], changed, *wanted[200:]))
        )
        outcome = replay_partition(other)
        assert f"{topic}-0 has another record at offset 199" in outcome.error
    assert len(stored(broker.bootstrap, topic)) == 200
    whole = dataclasses.replace(task, source=ListSource(tuple(wanted)))
    assert is_exact(replay_partition(whole), broker.bootstrap, topic, wanted)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("message.timestamp.type", "LogAppendTime"), ("message.timestamp.missing.values", None)],
)
def test_times_are_not_compared_where_the_target_changes_them(broker, topic, setting, value):
    wanted = some(200, 19, odd=False)
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, {setting: value or str(wanted[-1].timestamp)})
        changes_times = look_at(client, topic).changes_times
    task = task_of(broker.bootstrap, topic, wanted, POSITION, changes_times=changes_times)
    assert replay_partition(task).error is None
    assert replay_partition(task).error is None
    assert (
        "has another record"
        in replay_partition(dataclasses.replace(task, changes_times=False)).error
    )


def test_a_shared_partition_gets_each_record_once_while_it_remembers(broker, topic):
    wanted = some(600, 20)
    made(broker.bootstrap, topic)
    task = task_of(broker.bootstrap, topic, wanted, AT_LEAST_ONCE)
    with Client(broker.bootstrap) as other:
        part = dataclasses.replace(task, source=ListSource(tuple(wanted[:250])))
        assert replay_partition(part).error is None
        other.produce(topic, 0, build([Record(0, 5, b"theirs", b"")]))
        outcome = replay_partition(task)
    assert (outcome.error, outcome.found, outcome.map.is_complete) == (None, 250, False)
    found = stored(broker.bootstrap, topic)
    assert plain([one for one in found if one.key != b"theirs"]) == plain(wanted)


def test_a_source_that_lost_records_is_noticed(broker, topic):
    wanted = some(100, 21)
    made(broker.bootstrap, topic)
    task = task_of(broker.bootstrap, topic, wanted, POSITION)
    assert replay_partition(task).error is None
    shorter = dataclasses.replace(task, source=ListSource(tuple(wanted[:40])))
    assert "has 100 records where the run reads 40" in replay_partition(shorter).error


def test_a_topic_that_was_made_anew_is_noticed(broker, topic):
    made(broker.bootstrap, topic)
    task = task_of(broker.bootstrap, topic, some(5, 22), POSITION, start=10)
    assert "ended at 10 before" in replay_partition(task).error


# --- what a task is told and what it reads do not fit -----------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize("limit", [500_000, 300])
def test_a_run_ends_when_readers_of_committed_records_see_all_of_it(
    kafka, topic, monkeypatch, limit
):
    """The broker answers a commit before it writes the markers; here it writes them half a second later."""
    made(kafka.bootstrap, topic)
    wanted = some(300, 26)
    task = task_of(kafka.bootstrap, topic, wanted, TRANSACTIONS)
    late = []

    def end_late(self, *, commit):
        def end():
            with Client(kafka.bootstrap) as client:
                call = producers.end(self.transactional_id, self._producer, commit=commit)
                client.perform(call)

        late.append(threading.Timer(0.5, end))
        late[-1].start()

    monkeypatch.setattr(delivery, "TRANSACTION_RECORDS", limit)  # at 300 an append commits all
    monkeypatch.setattr(Transactions, "end", end_late)
    outcome = replay_partition(task)
    with Client(kafka.bootstrap) as client:
        readable = client.end_offset(topic, 0, isolation=READ_COMMITTED)
    late[0].join()
    assert len(late) == 1
    assert (outcome.count, outcome.error, outcome.doubts) == (300, None, ())
    assert readable == 301  # the records and the marker


@pytest.mark.oracle
def test_a_marker_that_never_comes_is_told(kafka, topic, monkeypatch):
    made(kafka.bootstrap, topic)
    task = task_of(kafka.bootstrap, topic, some(300, 27), TRANSACTIONS, timeout_s=2.0)
    monkeypatch.setattr(Transactions, "end", lambda self, *, commit: None)
    outcome = replay_partition(task)
    (doubt,) = outcome.doubts
    assert "has not written the marker of the last transaction within 2 s" in doubt


@pytest.mark.oracle
def test_a_run_does_not_wait_for_the_transactions_of_others(kafka, topic):
    made(kafka.bootstrap, topic)
    with Client(kafka.bootstrap) as client:
        ensure_progress_topic(client)
        other = Transactions(client, f"other/{topic}", topic, 0)
        identity = other.begin()
        other.open()
        batch = build(
            [Record(0, 5, None, b"open")],
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=0,
            is_transactional=True,
        )
        appender = Appender(client, topic, 0, transactional_id=other.transactional_id)
        appender.send(EncodedBatch(batch, 0, 1, 0))
        list(appender.flush())
        task = task_of(kafka.bootstrap, topic, some(300, 28), TRANSACTIONS, start=1)
        outcome = replay_partition(task)
        assert (outcome.count, outcome.error, outcome.doubts) == (300, None, ())
        assert client.end_offset(topic, 0, isolation=READ_COMMITTED) == 0
        other.end(commit=False)


@pytest.mark.oracle
def test_a_run_of_the_same_name_is_another_run(kafka, topic):
    """The directory of a run was removed, or is another: its name alone says nothing of what is there."""
    made(kafka.bootstrap, topic)
    for seed in (21, 22):
        wanted = some(300, seed)
        with Client(kafka.bootstrap) as client:
            start = client.end_offset(topic, 0)
        task = task_of(kafka.bootstrap, topic, wanted, TRANSACTIONS, start=start)
        outcome = replay_partition(task)
        assert (outcome.count, outcome.found, outcome.error) == (300, 0, None)
        assert plain(stored(kafka.bootstrap, topic))[-300:] == plain(wanted)


@pytest.mark.oracle
def test_a_target_that_was_made_anew_stops_the_run(kafka, topic):
    """What the progress counts is not there any more."""
    wanted = some(300, 23)
    made(kafka.bootstrap, topic)
    task = task_of(kafka.bootstrap, topic, wanted, TRANSACTIONS)
    assert replay_partition(task).error is None
    delete(kafka.bootstrap, topic)
    made(kafka.bootstrap, topic)
    outcome = replay_partition(task)
    assert outcome.error is not None
    assert "its topic was deleted or truncated" in outcome.error


@dataclasses.dataclass(frozen=True)
class Compacted(ListSource):
    """The same source when its first records are gone."""

    gone: int = 0

    def read(self):
        for rows in super().read():
            first = min(max(0, self.gone - int(rows.offset[0]) // 2), rows.count)
            if first < rows.count:
                columns = ColumnBuffers()
                part = self.records[int(rows.offset[first]) // 2 : int(rows.offset[-1]) // 2 + 1]
                data = build([one._replace(offset=n) for n, one in enumerate(part)])
                append_set(data, columns, RecordSelection())
                yield Rows(len(part), columns, rows.offset[first:])


@pytest.mark.oracle
@pytest.mark.parametrize("gone", [1, 60])
def test_a_source_that_lost_records_meanwhile_stops_the_run(kafka, topic, gone):
    """To count them would pass over others in their place, and these are all alike."""
    bootstrap, mode = kafka.bootstrap, TRANSACTIONS
    wanted = [Record(0, 5, None, b"the same")] * 300
    made(bootstrap, topic)
    task = task_of(bootstrap, topic, wanted, mode)
    part = dataclasses.replace(task, source=ListSource(tuple(wanted[:150])))
    assert replay_partition(part).error is None
    outcome = replay_partition(
        dataclasses.replace(task, source=Compacted(tuple(wanted), gone=gone))
    )
    assert outcome.error is not None
    assert "the source has lost records" in outcome.error
    assert plain(stored(bootstrap, topic)) == plain(wanted[:150])
