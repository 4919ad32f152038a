"""Transactions over the wire: request by request, at every version, and through restarts and kills."""

from __future__ import annotations

import pytest

from tests.broker.asking import BROKER, alter, create, new_name, new_topic
from tests.broker.coordinators.transactions.requests import (
    NONE,
    Given,
    Transactional,
    committed,
    mark,
)
from tests.broker.subject import eventually

UNKNOWN_PARTITION, NOT_ENOUGH_REPLICAS = 3, 19
INVALID_REQUEST = 42
OUT_OF_ORDER, INVALID_EPOCH, INVALID_STATE, MAPPING = 45, 47, 48, 49
TIMEOUT_50, CONCURRENT, NO_TXN_ID, NOT_ATTEMPTED = 50, 51, 53, 55
FENCED, NOT_FOUND, ABORTABLE = 90, 105, 120


@pytest.fixture
def topic(connection):
    return new_topic(connection, partitions=2)


@pytest.fixture
def producer(connection):
    return started(connection)


def started(connection):
    made = Transactional(connection, new_name("id"))
    assert made.init() == NONE
    return made


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_init_gives_an_epoch_and_fences_the_one_before(connection, version, topic):
    first = Transactional(connection, new_name("id"))
    assert first.init(version) == NONE
    assert first.given.epoch == 0
    second = Transactional(connection, first.id)
    assert second.init(version) == NONE
    assert second.given == Given(first.given.producer_id, 1)
    assert first.add(topic, 0, version=1) == [INVALID_EPOCH]
    assert first.add(topic, 0, version=2) == [FENCED]
    assert first.end(commit=True, version=1) == INVALID_EPOCH
    assert first.end(commit=True) == FENCED
    if version >= 3:
        code = INVALID_EPOCH if version == 3 else FENCED
        assert first.init(version, known=Given(first.given.producer_id + 1, 0)) == code
        assert second.init(version, known=second.given) == NONE
        assert second.given.epoch == 2
        assert second.init(version, known=Given(7, -1)) == INVALID_REQUEST


def test_init_refuses_timeouts_that_are_too_long_and_no_id(connection):
    producer = Transactional(connection, new_name("id"))
    for timeout_ms in (0, -1, 900_001):
        assert producer.init(timeout_ms=timeout_ms) == TIMEOUT_50
    assert producer.init(timeout_ms=900_000) == NONE
    assert Transactional(connection, "").init() == INVALID_REQUEST


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_all_or_none(connection, version, producer, topic):
    assert producer.add(topic, 0, 9, 1, version=version) == [
        NOT_ATTEMPTED,
        UNKNOWN_PARTITION,
        NOT_ATTEMPTED,
    ]
    assert producer.state == "Empty"
    assert producer.add(topic, 0, 1, version=version) == [NONE, NONE]
    assert producer.state == "Ongoing"
    assert producer.described()["topics"] == [{"topic": topic, "partitions": [0, 1]}]
    stranger = Transactional(connection, new_name("id"))
    stranger.given = producer.given
    assert stranger.add(topic, 0, version=version) == [MAPPING]
    assert stranger.described()["error_code"] == NOT_FOUND


def test_brokers_ask_whether_a_transaction_has_a_partition(producer, topic):
    assert producer.verified(topic, 0) == [ABORTABLE]
    assert producer.add(topic, 0) == [NONE]
    assert producer.verified(topic, 0, 1) == [NONE, ABORTABLE]
    assert producer.verified(topic, 1, only=False) == [NONE]
    assert producer.verified(topic, 0, 1) == [NONE, NONE]
    for only in (True, False):  # nothing is judged if one does not exist
        assert producer.verified(topic, 0, 9, only=only) == [NOT_ATTEMPTED, UNKNOWN_PARTITION]
    producer.given = Given(producer.given.producer_id, 7)
    assert producer.verified(topic, 0) == [FENCED]


@pytest.mark.parametrize("version", range(6))
def test_what_is_committed_is_read_and_what_is_aborted_is_not(connection, version, producer, topic):
    for number, commit in enumerate((True, False, True)):
        assert producer.add(topic, 0, 1) == [NONE, NONE]
        for partition in (0, 1):
            assert producer.send(topic, f"{number}", partition=partition) == NONE
        before = [f"{each}" for each in range(number) if each != 1]
        assert committed(connection, topic) == before
        assert producer.end(commit=commit, version=version) == NONE
        assert producer.state == ("CompleteCommit" if commit else "CompleteAbort")
    assert committed(connection, topic, 0) == committed(connection, topic, 1) == ["0", "2"]


def test_records_of_a_partition_that_is_not_in_the_transaction_are_refused(producer, topic):
    assert producer.send(topic, "never") == INVALID_STATE
    assert producer.send(topic, "never", version=11) == ABORTABLE
    assert producer.add(topic, 1) == [NONE]
    assert producer.send(topic, "never") == INVALID_STATE
    assert producer.send(topic, "stored", partition=1) == NONE


def test_without_verification_they_are_stored_as_they_were_before(start):
    name = "transaction.partition.verification.enable"
    with start({name: "false"}).connect() as connection:
        topic, group = new_topic(connection, partitions=3), new_name("group")
        producer = started(connection)
        assert producer.send(topic, "stored") == NONE
        assert producer.send(topic, "next") == NONE
        eventually(lambda: producer.commit_offsets(group, topic, {0: 1}) == [NONE])
        assert producer.state == "Empty", "the coordinator knows nothing of it"
        assert committed(connection, topic) == []
        assert producer.send(topic, "added", partition=1, version=12) == NONE
        assert producer.state == "Ongoing"
        assert alter(connection, BROKER, "", (name, 0, "true")) == (0, None)
        eventually(lambda: started(connection).send(topic, "a", partition=2) == INVALID_STATE)


def test_a_late_record_does_not_open_a_transaction_that_nobody_ends(connection, producer, topic):
    assert producer.add(topic, 0) == [NONE]
    assert producer.send(topic, "a") == NONE
    assert producer.end(commit=False) == NONE
    assert producer.send(topic, "late") == INVALID_STATE
    assert committed(connection, topic) == []


def test_an_epoch_that_is_over_cannot_produce(connection, producer, topic):
    assert producer.add(topic, 0) == [NONE]
    assert producer.send(topic, "a") == NONE
    other = Transactional(connection, producer.id)
    assert other.init() == CONCURRENT
    eventually(lambda: other.init() == NONE)
    assert other.given.epoch == producer.given.epoch + 2
    assert producer.send(topic, "late") == INVALID_EPOCH
    assert committed(connection, topic) == []


def test_transactional_records_need_an_id_and_one_producer(connection, producer, topic):
    assert producer.add(topic, 0) == [NONE]
    with_id, producer.id = producer.id, None
    assert producer.send(topic, "a") == NO_TXN_ID
    producer.id = with_id
    assert producer.send(topic, "a", producer_id=producer.given.producer_id + 1) == MAPPING
    assert producer.send(topic, "a") == NONE
    assert producer.send(topic, "plain", attributes=0) == INVALID_STATE


def test_with_version_5_of_end_each_transaction_has_an_epoch_of_its_own(
    connection, producer, topic
):
    first = producer.given
    assert producer.send(topic, "a", version=12) == NONE  # adds the partition by itself
    assert producer.state == "Ongoing"
    assert producer.end(commit=True, version=5) == NONE
    assert producer.given == Given(first.producer_id, first.epoch + 1)
    again = Transactional(connection, producer.id)
    again.given = first
    assert again.end(commit=True, version=5) == NONE  # a retry
    assert again.given == producer.given
    assert producer.send(topic, "b", version=12) == NONE
    late = Transactional(connection, producer.id)
    late.given = first
    assert late.end(commit=False, version=5) == FENCED
    assert late.send(topic, "late", version=12) == INVALID_EPOCH
    assert producer.end(commit=False, version=5) == NONE
    assert producer.end(commit=False, version=5) == NONE  # aborts nothing
    assert producer.given.epoch == first.epoch + 3
    assert committed(connection, topic) == ["a"]


def test_transactions_are_listed_by_state_producer_and_pattern(connection, producer, topic):
    producer.add(topic, 0)

    def listed(**filters):
        fields = {
            "state_filters": [],
            "producer_id_filters": [],
            "duration_filter": -1,
            "transactional_id_pattern": None,
            **filters,
        }
        answer = connection.ask("ListTransactions", 2, **fields)
        found = [each["transactional_id"] for each in answer["transaction_states"]]
        return producer.id in found, answer["unknown_state_filters"]

    assert listed() == (True, [])
    assert listed(state_filters=["Ongoing", "Odd"]) == (True, ["Odd"])
    assert listed(state_filters=["Odd"]) == (False, ["Odd"])
    assert listed(state_filters=["CompleteAbort"]) == (False, [])
    assert listed(producer_id_filters=[producer.given.producer_id]) == (True, [])
    assert listed(producer_id_filters=[producer.given.producer_id + 1]) == (False, [])
    assert listed(transactional_id_pattern=producer.id) == (True, [])
    assert listed(transactional_id_pattern=producer.id[:-1]) == (False, [])
    assert listed(duration_filter=3_600_000) == (False, [])


def test_an_operator_ends_a_transaction_with_a_marker(connection, producer, topic):
    producer.add(topic, 0)
    producer.send(topic, "a")

    def marked(epoch, coordinator_epoch, *partitions, producer_id=producer.given.producer_id):
        given = Given(producer_id, epoch)
        more = {"commit": False, "coordinator_epoch": coordinator_epoch}
        return mark(connection, topic, given, *partitions, **more)

    epoch = producer.given.epoch
    assert marked(epoch, 0, 0, 9) == [NONE, UNKNOWN_PARTITION]
    assert committed(connection, topic) == []
    assert producer.send(topic, "b") == NONE  # the coordinator has the partition still
    assert marked(epoch, 0, 0) == [NONE]
    assert marked(epoch + 1, 0, 0) == [NONE]
    assert marked(epoch, 0, 0) == [INVALID_EPOCH]
    assert marked(epoch + 1, -1, 0) == [52]
    assert marked(epoch + 1, 1, 0) == [52]  # no coordinator has had this epoch yet
    assert marked(-1, 0, 0, producer_id=12_345) == [INVALID_EPOCH]
    assert marked(0, 0, 0, producer_id=-1) == [MAPPING]


def test_who_sends_an_epoch_that_is_over_hears_that_and_not_what_the_coordinator_thinks(
    connection, producer, topic
):
    assert producer.add(topic, 0) == [NONE]
    assert producer.send(topic, "a") == NONE
    other = Transactional(connection, producer.id)
    assert other.init() == CONCURRENT
    eventually(lambda: other.init() == NONE)
    producer.id = "unknown to the coordinator"
    assert producer.send(topic, "late") == INVALID_EPOCH
    assert producer.send(topic, "late", version=12) == INVALID_EPOCH
    assert committed(connection, topic) == []


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_open_goes_on_after_a_restart(start, is_killed):
    broker = start()
    with broker.connect() as connection:
        create(connection, "t", partitions=2)
        ended, opened = (Transactional(connection, name) for name in ("ended", "opened"))
        for each, commit in ((ended, True), (ended, False), (opened, None)):
            if commit in (True, None):
                assert each.init() == NONE
            assert each.add("t", 0, 1) == [NONE, NONE]
            assert each.send("t", f"{each.id} {commit}") == NONE
            if commit is not None:
                assert each.end(commit=commit) == NONE
    broker.kill() if is_killed else broker.stop()
    broker.restart()
    with broker.connect() as connection:
        ended.connection = opened.connection = connection
        for each in (ended, opened):
            eventually(lambda each=each: not each.described()["error_code"])
        assert (ended.state, opened.state) == ("CompleteAbort", "Ongoing")
        assert committed(connection, "t") == ["ended True"]
        assert opened.send("t", "more", partition=1) == NONE
        assert opened.end(commit=True) == NONE
        assert committed(connection, "t") == ["ended True", "opened None"]
        assert committed(connection, "t", 1) == ["more"]
        assert ended.add("t", 0) == [NONE]
        assert ended.send("t", "again") == NONE
        assert ended.end(commit=True) == NONE
        assert committed(connection, "t")[-1] == "again"
