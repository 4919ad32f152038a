"""Logs with open and aborted transactions move from Apache Kafka 3.9.1 to tidelog, and the other way.

One history is played to both. Kafka is stopped; tidelog opens copies of its directory, as it is and after
`tidelog adopt`, where a producer goes on with its open transaction, and others are fenced. Kafka gets the
partitions of tidelog in the place of its own, once as they are and once without indexes and snapshots,
which it has to make again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from typing import NamedTuple

import pytest

from tests.broker.coordinators.transactions.requests import NONE, Transactional
from tests.oracle import wire
from tests.oracle.brokers import Tidelog, wait_for_coordinators, wait_for_leaders
from tests.oracle.logs.directories import copy
from tests.oracle.transactions import forging
from tests.oracle.transactions.histories import COMMITTED, UNCOMMITTED, History
from tests.oracle.transactions.test_histories import judge

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

WHOLE, BARE = 61, 62  # seeds
SETTINGS = {"segment.bytes": "4000", "index.interval.bytes": "500"}
MADE_AGAIN = (".index", ".timeindex", ".txnindex", ".snapshot")
WITHIN_S = 120
CONCURRENT, FENCED = 51, 90


class Moved(NamedTuple):
    """The histories of both by their seed, what was served of each, and a copy of Kafka's directory."""

    theirs: dict[int, History]
    mine: dict[int, History]
    served: dict[History, dict]
    taken: object


def everything(history):
    """Every third Fetch of a history, whole and by small pieces, with either isolation."""
    wanted = [
        (offset, 12, isolation, size)
        for offset in range(0, history.ends[-1][0] + 1, 3)
        for isolation in (UNCOMMITTED, COMMITTED)
        for size in (500, 1 << 20)
    ]
    return {each: history.served(*each) for each in wanted}


def continued(history, connection):
    """The history with another broker, once that answers."""
    history.connection = connection
    for each in history.producers:
        each.connection = connection
    wait_for_leaders(connection, {history.topic: 1})
    return history


def wrong(theirs, mine):
    """The fetches that are not as Kafka's are."""
    return [each for each in theirs if judge(each[0], theirs[each], mine[each]) is None]


@pytest.fixture(scope="module")
def moved(kafka_3, ours, tmp_path_factory):
    now_ms, found, served = time.time_ns() // 1_000_000, [], {}
    for broker in (kafka_3, ours):
        with wire.Connection(broker.bootstrap) as connection:
            histories = {
                seed: History(connection, seed, 0, now_ms, SETTINGS) for seed in (WHOLE, BARE)
            }
            for each in histories.values():
                each.play()
                served[each] = everything(each)
            found.append(histories)
    kafka_3.stop()
    taken = tmp_path_factory.mktemp("taken")
    copy(kafka_3.log_dir, taken / "data")
    for seed, history in found[1].items():
        name = f"{history.topic}-0"
        there = kafka_3.log_dir / name
        identity = (there / "partition.metadata").read_bytes()
        shutil.rmtree(there)
        copy(ours.log_dir / name, there)
        (there / "partition.metadata").write_bytes(identity)
        if seed == BARE:
            for path in there.iterdir():
                if path.suffix in MADE_AGAIN:
                    path.unlink()
    kafka_3.start()
    # Other tests go on with this broker.
    wait_for_coordinators(kafka_3.bootstrap)
    forging.initialise(kafka_3.bootstrap, "one that is new")
    return Moved(*found, served, taken)


def test_kafka_serves_logs_of_tidelog(moved, kafka_3, ours):
    for seed, history in moved.mine.items():
        with wire.Connection(kafka_3.bootstrap) as connection:
            found = everything(continued(history, connection))
            assert wrong(found, moved.served[history]) == []
            if seed == BARE:
                assert history.aborted_in(kafka_3.log_dir) == history.aborted_in(ours.log_dir)
            for one in history.producers:
                end_with_marker(connection, history, one)
            assert history.read_ends()[0] == history.read_ends()[1]


def end_with_marker(connection, history, one):
    """Aborts what a producer has open in the partition, as an operator does."""
    marker = {
        "producer_id": one.given.producer_id,
        "producer_epoch": one.given.epoch,
        "transaction_result": False,
        "topics": [{"name": history.topic, "partition_indexes": [0]}],
        "coordinator_epoch": 100,
    }
    answer = connection.ask("WriteTxnMarkers", 1, markers=[marker])
    assert answer["markers"][0]["topics"][0]["partitions"][0]["error_code"] == NONE


def adopt(*arguments):
    """Runs `tidelog adopt`."""
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", "adopt", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, done.stderr


def as_it_is(directory):
    """Tidelog opens what lies there."""
    return Tidelog(directory)


def adopted(directory):
    """Tidelog begins a cluster with the directory, of one broker."""
    store = f"sqlite:{directory / 'tidelog.sqlite'}"
    inspected = directory / "broker-1.json"
    adopt("inspect", "--log-dirs", directory / "data", "--out", inspected)
    adopt("apply", "--set", f"metadata.store={store}", inspected)
    return Tidelog(directory, {"metadata.store": store})


@pytest.mark.parametrize("opened", [as_it_is, adopted])
def test_tidelog_serves_logs_of_kafka_and_goes_on_with_its_transactions(moved, opened, tmp_path):
    copy(moved.taken / "data", tmp_path / "data")
    with opened(tmp_path) as tidelog, wire.Connection(tidelog.bootstrap) as connection:
        for history in moved.theirs.values():
            mine = everything(continued(history, connection))
            assert wrong(moved.served[history], mine) == []
            high, stable = history.read_ends()
            assert stable < high
            going_on(history)


def going_on(history):
    """The first producer of the open transactions sends more and commits; the others get an heir."""
    deadline = time.monotonic() + WITHIN_S

    def wait_until(is_so):
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.02)  # a foreign process can only be polled

    for one in history.producers:
        wait_until(lambda one=one: not one.described()["error_code"])
    first, *others = [one for one in history.producers if one.state == "Ongoing"]
    assert others
    same = Transactional(first.connection, first.id)
    same.given, same.sequences = first.given, dict(first.sequences)
    assert same.send(history.topic, "more") == NONE
    assert same.end(commit=True) == NONE
    for one in others:
        heir = Transactional(one.connection, one.id)
        assert heir.init() == CONCURRENT
        wait_until(lambda heir=heir: heir.init() == NONE)
        assert one.end(commit=True) == FENCED
    wait_until(lambda: len(set(history.read_ends())) == 1)
