"""One directory is that of an only broker, of one of three, and of an only one again.

Each step ends with a kill, or without the metadata, or goes on with copies of the logs.
"""

from __future__ import annotations

import shutil

import pytest

from tests.broker import asking
from tests.broker.subject import Subject, eventually
from tidelog.broker.metadata.records import PartitionRecord
from tidelog.process import BrokerFailed
from tidelog.storage.directory.registration_file import OWN_STORE, read_state

pytestmark = pytest.mark.slow

INVALID_FACTOR, INVALID_REPLICAS = 38, 39


@pytest.fixture
def directory(brokers):
    """The directory of broker 1, with the metadata beside its logs."""
    directory = brokers.directory / "broker-1"
    brokers.path = directory / "tidelog.sqlite"
    return directory


def add(broker, value):
    """Appends a record; returns its offset."""
    with broker.connect() as connection:
        found = eventually(
            lambda: (
                (told := asking.produce(connection, "t", asking.batch_of(value)))["error_code"] == 0
                and told
            )
        )
        return found["base_offset"]


def end_of(broker):
    with broker.connect() as connection:
        return asking.list_offset(connection, "t", -1)["offset"]


def as_one(directory):
    """Has one record more, as the only broker, and ends in a kill; returns the record's offset."""
    alone = Subject(directory)
    offset = add(alone, "alone")
    alone.kill()
    return offset


def as_three(brokers):
    """Has one record more, as three brokers, and ends in a kill of all; returns the record's offset."""
    brokers.start(1, 2, 3)
    offset = add(brokers[1], "three")
    for broker in (3, 2, 1):  # the leader last, so that nobody can note that it has gone
        brokers[broker].kill()
    return offset


def lose_metadata(directory):
    """The next metadata are those of another cluster, in which brokers 2 and 3 have new directories."""
    for path in directory.glob("tidelog.sqlite*"):
        path.unlink()
    for other in directory.parent.glob("broker-[23]"):
        shutil.rmtree(other)


def with_topic(directory):
    with Subject(directory) as alone, alone.connect() as connection:
        asking.create(connection, "t", partitions=1)
        assert alone.stop() == 0


def test_a_kill_in_each_step_loses_nothing_and_is_a_clean_start(brokers, directory):
    with_topic(directory)
    (before,) = brokers.image().topics["t"].assignments
    assert as_one(directory) == 0
    image = brokers.image()
    assert image.topics["t"].assignments == (before,)
    assert image.registrations[1].record.directories == (), "no file of an only broker names one"
    assert read_state(directory) is None
    assert as_three(brokers) == 1
    image = brokers.image()
    assert image.registrations[1].record.is_clean
    assert image.registrations[1].record.directories == (read_state(directory).directory,)
    assert not image.topics["t"].assignments[0].is_recovering
    registered, led = image.registrations[1], image.topics["t"]
    assert as_one(directory) == 2
    image = brokers.image()
    assert (image.registrations[1], image.topics["t"]) == (registered, led)
    assert read_state(directory).store == OWN_STORE
    assert as_three(brokers) == 3
    assert brokers.image().registrations[1].record.is_clean
    with Subject(directory) as alone:
        assert end_of(alone) == 4
        assert alone.stop() == 0


def test_it_is_refused_while_the_others_have_replicas(brokers, directory):
    with_topic(directory)
    as_one(directory)
    brokers.start(1, 2, 3)
    brokers.add("u", PartitionRecord((2, 3), (2, 3), 2, 0))
    for broker in (1, 2, 3):
        brokers[broker].kill()
    state = read_state(directory)
    with pytest.raises(BrokerFailed, match="brokers 2 and 3 have replicas of 1 partition"):
        Subject(directory)
    assert read_state(directory) == state


def test_none_of_them_is_given_a_replica_where_nobody_shares_the_metadata(brokers, directory):
    with_topic(directory)
    as_three(brokers)
    before = brokers.image().topics
    with Subject(directory) as alone, alone.connect() as connection:
        assert asking.try_to_create(connection, "u", factor=2)["error_code"] == INVALID_FACTOR
        assert (
            asking.try_to_create(connection, "u", placed=(1, 2))["error_code"] == INVALID_REPLICAS
        )
        answer = connection.ask(
            "AlterPartitionReassignments",
            0,
            timeout_ms=10_000,
            topics=[{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}],
        )
        (moved,) = answer["responses"][0]["partitions"]
        assert moved["error_code"] == INVALID_REPLICAS
        assert alone.stop() == 0
    assert brokers.image().topics == before
    with Subject(directory) as alone:
        assert end_of(alone) == 1


def test_the_metadata_of_an_only_broker_are_lost(brokers, directory):
    with_topic(directory)
    as_one(directory)
    lose_metadata(directory)
    assert as_one(directory) == 1
    as_three(brokers)
    assert as_one(directory) == 3
    lose_metadata(directory)
    assert as_one(directory) == 4, "it was the only one again, so nobody else has its metadata"
    assert read_state(directory) is None, "it was that of another cluster"
    assert as_three(brokers) == 5
    assert brokers.image().registrations[1].record.is_clean


def test_the_metadata_of_three_are_lost(brokers, directory):
    with_topic(directory)
    as_three(brokers)
    lose_metadata(directory)
    with pytest.raises(BrokerFailed, match=r"belongs to broker 1 of cluster .*: start that broker"):
        Subject(directory)
    assert not brokers.path.exists()


@pytest.mark.parametrize("is_one_of_three", [False, True])
def test_copies_of_partitions_are_opened_by_an_only_broker(
    brokers, directory, tmp_path, is_one_of_three
):
    with_topic(directory)
    as_one(directory)
    if is_one_of_three:
        as_three(brokers)
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(directory / "t-0", copy / "t-0")
    assert as_one(copy) == 1 + is_one_of_three
    assert as_one(copy) == 2 + is_one_of_three


def test_an_only_broker_with_another_id_has_all_partitions(brokers, directory):
    with_topic(directory)
    as_one(directory)
    with Subject(directory, {"node.id": 2}) as alone:
        assert add(alone, "b") == 1
        image = brokers.image()
        assert image.registrations.keys() == image.brokers.keys() == {2}
        (record,) = image.topics["t"].assignments
        assert (record.leader, record.replicas) == (2, (2,))
        assert alone.stop() == 0
    brokers.start(2, settings={"log.dirs": directory})
    assert add(brokers[2], "c") == 2
