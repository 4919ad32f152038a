"""A broker whose wall clock is bent under it, while the time since the machine's start runs as ever.

`bent_clock.c` is preloaded into the broker's process. Nothing that a right clock keeps is deleted, and
afterwards every policy works again.
"""

import json
import shutil
import struct
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker import asking
from tests.broker.cluster.brokers import Brokers
from tests.broker.conftest import healthy
from tests.broker.coordinators.transactions.requests import Transactional, committed
from tests.broker.members import commit, fetched
from tests.broker.subject import eventually
from tests.oracle import recordset
from tests.oracle.recordset import Rec

SECOND_NS = 1_000_000_000
DAY_NS = 86_400 * SECOND_NS
EARLIEST = -2
POLICIES = {
    "record": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "append": {"retention.time.basis": "append"},
}


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The compiled shim."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("bent") / "bent_clock.so"
    source = Path(__file__).with_name("bent_clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", path, source], check=True)
    return path


class Bend:
    """What the broker's wall clock shows instead of the time."""

    def __init__(self, path):
        self._file = path.open("w+b", buffering=0)
        self.right()

    def _set(self, ahead_ns, frozen_ns):
        self._file.seek(0)
        self._file.write(struct.pack("=qq", ahead_ns, frozen_ns))

    def right(self):
        self._set(0, 0)

    def by(self, ahead_ns):
        self._set(ahead_ns, 0)

    def freeze(self):
        self._set(0, time.time_ns())


@pytest.fixture
def bend(library, tmp_path, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("BENT_CLOCK", str(tmp_path / "bend"))
    bent = Bend(tmp_path / "bend")
    yield bent
    bent._file.close()


@pytest.fixture
def broker(bend, tmp_path):
    settings = {"control.listener": "127.0.0.1:0", "offsets.retention.check.interval.ms": 200}
    with healthy(tmp_path, settings) as subject:
        yield subject


@pytest.fixture
def connection(broker):
    with broker.connect() as connection:
        yield connection


def new_topics(connection, **more):
    topics = []
    for policy in POLICIES.values():
        topics.append(asking.new_name())
        asking.create(connection, topics[-1], **{"segment.bytes": "300", **policy, **more})
    return topics


def produce(connection, topics):
    for topic in topics:
        records = recordset.batch([Rec(time.time_ns() // 1_000_000, b"v" * 100)])
        assert asking.produce(connection, topic, records)["error_code"] == 0


def test_a_restart_during_a_leap_ends_no_transaction_and_forgets_no_id(broker, bend):
    with broker.connect() as connection:
        asking.create(connection, "t")
        idle, open_one = Transactional(connection, "idle"), Transactional(connection, "open")
        idle.first_init()
        open_one.first_init()
        assert open_one.add("t", 0) == [0]
        assert open_one.send("t", "one") == 0
    broker.stop()
    bend.by(400 * DAY_NS)
    broker.restart()
    with broker.connect() as connection:
        idle.connection = open_one.connection = connection
        eventually(lambda: idle.state == "Empty")
        eventually(lambda: open_one.state == "Ongoing")
        bend.right()
        assert open_one.end(commit=True) == 0
        eventually(lambda: committed(connection, "t") == ["one"])


def test_an_open_transaction_that_a_clock_in_the_past_began_has_its_time(broker, bend):
    with broker.connect() as connection:
        asking.create(connection, "t")
        producer = Transactional(connection, "id")
        producer.first_init()
        bend.by(-8 * DAY_NS)
        assert producer.add("t", 0) == [0]
        bend.right()
        assert producer.send("t", "one") == 0
    broker.kill()
    broker.restart()
    with broker.connect() as connection:
        producer.connection = connection
        eventually(lambda: producer.state == "Ongoing")
        assert producer.end(commit=True) == 0
        eventually(lambda: committed(connection, "t") == ["one"])


@pytest.fixture
def brokers(tmp_path):
    found = Brokers(tmp_path)
    yield found
    found.stop()


def start_two(brokers, monkeypatch):
    """A leader whose clock is bent, and a follower whose clock is right."""
    settings = {
        "control.listener": "127.0.0.1:0",
        "log.retention.check.interval.ms": DAY_NS // 1_000_000,
        "broker.session.timeout.ms": 3_000,
    }
    brokers.start(1, settings=settings)
    monkeypatch.delenv("LD_PRELOAD")
    brokers.start(2, settings=settings)
    for topic, policy in POLICIES.items():
        brokers.add_topic(topic, (1, 2), configs={"segment.bytes": "300", **policy})


@pytest.mark.parametrize("behind_ns", [time.time_ns(), 8 * DAY_NS], ids=["1970", "8 days"])
def test_the_next_leader_keeps_what_one_in_the_past_has_written(
    brokers, bend, monkeypatch, behind_ns
):
    bend.by(-behind_ns)  # from the broker's start on: it cannot know
    start_two(brokers, monkeypatch)
    with leading(brokers, 1) as connection:
        for _ in range(3):
            produce(connection, POLICIES)
    brokers[1].kill()
    with leading(brokers, 2) as connection:
        produce(connection, POLICIES)
        assert brokers[2].sweep() == []
        assert starts(connection, POLICIES) == [0] * 3


def test_topics_whose_append_times_wait_for_the_clock_are_named(brokers, bend, monkeypatch):
    start_two(brokers, monkeypatch)
    with leading(brokers, 1) as connection:
        produce(connection, POLICIES)
        bend.by(30 * DAY_NS)
        produce(connection, POLICIES)
        bend.right()
        produce(connection, POLICIES)
    assert json.loads(brokers[1].page("/v1/clock"))["topics_ahead"] == sorted(POLICIES)
    assert json.loads(brokers[2].page("/v1/clock"))["topics_ahead"] == []


@contextmanager
def leading(brokers, number):
    """A connection to a broker that leads the topics of all policies."""
    with brokers[number].connect() as connection:
        for topic in POLICIES:
            eventually(lambda name=topic: not starts(connection, [name], "error_code")[0])
        yield connection


def starts(connection, topics, field="offset"):
    return [asking.list_offset(connection, topic, EARLIEST)[field] for topic in topics]


@pytest.mark.parametrize(
    ("ahead_ns", "for_s"),
    [
        pytest.param(-205 * DAY_NS, 1.0, id="back"),
        pytest.param(-8 * DAY_NS, 0.0, id="a blink"),
        pytest.param(400 * DAY_NS, 1.0, id="forward"),
        pytest.param(-int(time.time_ns()), 0.5, id="1970"),
    ],
)
def test_a_clock_that_blinks_deletes_nothing(broker, connection, bend, ahead_ns, for_s):
    topics = new_topics(connection)
    commit(connection, "before", topics[0], 1)
    for _ in range(4):
        produce(connection, topics)
    idle = new_topics(connection)
    bend.by(ahead_ns)
    produce(connection, [*topics, *idle])
    commit(connection, "meanwhile", topics[0], 2)
    time.sleep(for_s)
    produce(connection, topics)
    bend.right()
    assert broker.sweep() == []
    produce(connection, [*topics, *idle])
    assert broker.sweep() == []
    assert starts(connection, [*topics, *idle]) == [0] * 6
    for group, offset in (("before", 1), ("meanwhile", 2)):
        assert fetched(connection, group, topics[0])[0] == offset


@pytest.mark.slow
def test_a_clock_that_stood_still_deletes_nothing_early_once_it_is_right(broker, connection, bend):
    topics = new_topics(connection, **{"retention.ms": 15_000})
    produce(connection, topics)
    bend.freeze()
    time.sleep(20)  # the clock stands still, for longer than the retention
    for _ in range(3):
        produce(connection, topics)
    bend.right()
    broker.sweep()
    assert all(start <= 1 for start in starts(connection, topics))
    time.sleep(16)
    broker.sweep()
    assert starts(connection, topics) == [4] * 3
