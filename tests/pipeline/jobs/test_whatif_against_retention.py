"""What a policy is said to delete is what a log then loses, over the whole table of event-time retention.

The table is that of `tests/storage/time/event_time_table.py`: 1,440 topics, four rounds each. Once
with logs that this process writes, and once with a broker of its own that somebody holds the clock of.
"""

import os
import shutil
import tempfile
import uuid
from pathlib import Path

import pytest

from tests.broker import asking
from tests.oracle import wire
from tests.sampling import sampled
from tests.storage.time.event_time_table import (
    EVENT,
    FORMATS,
    LOADS,
    START,
    moments,
    rows,
    write,
)
from tidelog.pipeline import retention_inputs
from tidelog.pipeline.engine import whatif
from tidelog.process import BrokerProcess
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.log.partition import Partition
from tidelog.storage.time.event_time import event_slack
from tidelog.storage.time.retention import retention_of

ROOM_BYTES = 2 << 30
ONE_IN = 5


@pytest.fixture
def fast_directory(tmp_path):
    """A directory in memory, where there is one with room for all that write there at once."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < ROOM_BYTES:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as directory:
        yield Path(directory)


def told(log, policy, rounds):
    """What is deleted in each round, as (base offset, policy)."""
    outcome = whatif.judge(log, policy, rounds)
    deleted = [(e.at_ms, e.base_offset, e.policy) for e in outcome.deleted]
    return [[(base, by) for at, base, by in deleted if at == now] for now in rounds], outcome


def read(directory, config, now_ms=START):
    """What is known of the log in a directory `<topic>-<partition>`."""
    topic, _, number = directory.name.rpartition("-")
    partition = retention_inputs.PartitionDirectory(topic, int(number), directory)
    return retention_inputs.read(partition, event_slack_ms=event_slack(config), now_ms=now_ms)


def lived(row, directory, *, stopped, change=None):
    """What is told, and what goes, of one row."""
    directory = directory / "t-0"
    directory.mkdir(parents=True)
    partition, _ = write(row, directory)
    if stopped:
        partition.close()
        (directory.parent / ".kafka_cleanshutdown").touch()
    log = read(directory, row.config)
    if stopped:
        partition = Partition(
            directory,
            "t",
            0,
            uuid.UUID(int=1),
            row.config,
            now_ms=partition.last_append_time or START,
            was_clean=True,
            recovery_point=partition.recovery_point,
        )
    rounds = [now for _, now in moments(row)]
    policy = whatif.Policy("now", row.config)
    said, outcome = told(log if change is None else change(log), policy, rounds)
    gone = []
    for now, kept in zip(rounds, outcome.rounds, strict=True):
        gone.append(
            [(each.base_offset, each.policy) for each in partition.retainer.apply_retention(now)]
        )
        left = [s for s in partition.segments if s.tail.size]
        sizes = sum(segment.tail.size for segment in left)
        assert change or (kept.size, kept.first_offset) == (sizes, partition.log_start_offset)
    return said, gone


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_every_combination_is_foretold(stopped, fast_directory):
    deleted, wrong = 0, []
    for number, row in enumerate(sampled(list(rows()), ONE_IN)):
        said, gone = lived(row, fast_directory / str(number), stopped=stopped)
        deleted += sum(map(len, gone))
        if said != gone:
            wrong.append(f"{row.words()}: told {said}, gone {gone}")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:5])
    assert deleted > 500


def without_event_times(log):
    return log._replace(max_event_time=None)


def a_little_later(log):
    def moved(segment):
        times = segment.times.copy()
        times.last_append += 1
        times.aging += 1
        return segment._replace(times=times)

    return log._replace(segments=tuple(map(moved, log.segments)))


@pytest.mark.slow
@pytest.mark.parametrize("change", [without_event_times, a_little_later])
def test_an_injected_bug_shows(change, fast_directory):
    wrong = 0
    for number, row in enumerate(rows()):
        if number % 10 == 0 and row.event >= 0:
            said, gone = lived(row, fast_directory / str(number), stopped=False, change=change)
            wrong += said != gone
    assert wrong


# --- a broker, with a manual clock ---------------------------------------------------------


def own_settings(row):
    """What a topic of a row is made with, and what it is changed to."""
    own = {"segment.bytes": "500", "message.timestamp.type": row.kind}
    own |= {"message.format.version": FORMATS[row.magic], "segment.min.roll.interval.ms": "0"}
    own |= {"retention.ms": str(row.ms), "retention.bytes": str(row.size), EVENT: str(row.event)}
    if row.given is not None:
        own["retention.time.basis"] = row.given
    before = {"segment.bytes": "500", "message.format.version": FORMATS[row.before]}
    before |= {"segment.min.roll.interval.ms": "0", "retention.ms": "-1"}
    return (own if row.age == "new" else before), own


def on_the_wire(times):
    return build([Record(i, time, None, b"v" * 40, ()) for i, time in enumerate(times)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "load",
    [
        "backfill",
        "absurd",
        pytest.param("live", marks=pytest.mark.long),
        pytest.param("interleaved", marks=pytest.mark.long),
    ],
)
def test_every_combination_is_foretold_of_a_running_broker(load, fast_directory):
    """All rows of a load at once; of "transactions" none: markers cannot be sent."""
    assert load in LOADS
    table = [(f"row{n}", row) for n, row in enumerate(r for r in rows() if r.load == load)]
    settings = {"log.retention.check.interval.ms": 10**12}
    directory = fast_directory / "data"
    with BrokerProcess(directory, settings, clock="manual") as broker:
        broker.clock.freeze(START)
        with wire.Connection(broker.bootstrap) as connection:
            for name, row in table:
                made, _ = own_settings(row)
                asking.create(connection, name, **{k.replace(".", "_"): v for k, v in made.items()})
            for number, (append, times, _) in enumerate(LOADS[load]):
                broker.clock.freeze(append)
                for name, row in table:
                    if number == len(LOADS[load]) // 2 and row.age != "new":
                        changes = [(key, 0, value) for key, value in own_settings(row)[1].items()]
                        assert asking.alter(connection, asking.TOPIC, name, *changes) == (0, None)
                    answer = asking.produce(connection, name, on_the_wire(times))
                    assert answer["error_code"] == 0
        rounds = [now for _, now in moments(table[0][1])]
        said = {}
        for name, row in table:
            policy = whatif.policy_of("now", own_settings(row)[1])
            assert policy.retention == retention_of(row.config)
            log = read(directory / f"{name}-0", row.config)
            said[name], _ = told(log, policy, rounds)
        gone = {name: [] for name, _ in table}
        for now in rounds:
            broker.clock.freeze(now)
            swept = broker.sweep()
            for name, found in gone.items():
                found.append([(e["base_offset"], e["policy"]) for e in swept if e["topic"] == name])
    wrong = [row.words() for name, row in table if said[name] != gone[name]]
    assert not wrong, f"{len(wrong)} of {len(table)}:\n" + "\n".join(wrong[:5])
    assert len(table) == 288
    assert sum(len(each) for found in gone.values() for each in found) > 100
