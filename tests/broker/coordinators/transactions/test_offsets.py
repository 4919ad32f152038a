"""Offsets that are committed with a transaction, over the wire: pending, committed, dropped, fenced."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from tests.broker.asking import create, new_name, new_topic
from tests.broker.coordinators.transactions.requests import (
    NONE,
    Given,
    Transactional,
    mark,
    offsets_of,
)
from tests.broker.inside import Inside
from tests.broker.members import commit, join_once, sync_alone
from tests.broker.subject import eventually
from tidelog.broker.coordinators.groups.messages import Join
from tidelog.broker.coordinators.internal_topic import InternalTopic
from tidelog.protocol.group_errors import InconsistentGroupProtocol

UNKNOWN_TOPIC, TOO_LARGE, GENERATION, INVALID_GROUP, UNKNOWN_MEMBER = 3, 12, 22, 24, 25
INVALID_EPOCH, INVALID_STATE, MAPPING, FENCED_INSTANCE, UNSTABLE = 47, 48, 49, 82, -88
CONCURRENT, ABORTABLE = 51, 120
REFUSED = Join("", "m", None, "client", "/here", 10_000, 10_000, "consumer", ())  # no protocol


@pytest.fixture
def topic(connection):
    return new_topic(connection, partitions=3)


@pytest.fixture
def producer(connection):
    made = Transactional(connection, new_name("id"))
    assert made.init() == NONE
    return made


@pytest.fixture
def group(producer):
    """A group that is in the producer's transaction."""
    name = new_name("group")
    assert producer.add_group(name) == NONE
    return name


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_offsets_count_when_the_transaction_is_committed(
    connection, producer, topic, version, is_commit
):
    group = new_name("group")
    assert commit(connection, group, topic, 3, partition=0) == NONE
    if version < 5:
        assert producer.add_group(group, min(version, 4)) == NONE
    assert producer.commit_offsets(group, topic, {0: 10, 1: 20}, version=version) == [NONE, NONE]
    assert offsets_of(connection, group, topic, 0, 1, 2) == {0: 3, 1: -1, 2: -1}
    for asked in (7, 8, 9):
        got = offsets_of(connection, group, topic, 0, 1, 2, stable=True, version=asked)
        assert got == {0: UNSTABLE, 1: UNSTABLE, 2: -1}
        # Only a pending offset: there is nothing of the partition to tell.
        assert offsets_of(connection, group, None, stable=True, version=asked) == {0: UNSTABLE}
    assert producer.end(commit=is_commit) == NONE
    wanted = {0: 10, 1: 20, 2: -1} if is_commit else {0: 3, 1: -1, 2: -1}
    assert offsets_of(connection, group, topic, 0, 1, 2, stable=True) == wanted


def test_the_last_offset_of_a_transaction_counts(connection, producer, topic, group):
    for offset in (5, 9, 7):
        assert producer.commit_offsets(group, topic, {0: offset}) == [NONE]
    assert producer.end(commit=True) == NONE
    assert offsets_of(connection, group, topic, 0) == {0: 7}


@pytest.mark.parametrize("comes_first", [True, False])
def test_the_later_record_wins_not_the_later_commit(
    connection, producer, topic, group, comes_first
):
    if comes_first:
        assert commit(connection, group, topic, 100, partition=0) == NONE
    assert producer.commit_offsets(group, topic, {0: 10}) == [NONE]
    if not comes_first:
        assert commit(connection, group, topic, 100, partition=0) == NONE
        assert offsets_of(connection, group, topic, 0) == {0: 100}
    assert producer.end(commit=True) == NONE
    assert offsets_of(connection, group, topic, 0) == {0: 10 if comes_first else 100}


def test_two_transactions_may_hold_offsets_of_one_partition(connection, producer, topic, group):
    other = Transactional(connection, new_name("id"))
    assert (other.init(), other.add_group(group)) == (NONE, NONE)
    assert producer.commit_offsets(group, topic, {0: 1}) == [NONE]
    assert other.commit_offsets(group, topic, {0: 2}) == [NONE]
    assert other.end(commit=True) == NONE
    assert offsets_of(connection, group, topic, 0, stable=True) == {0: UNSTABLE}
    assert offsets_of(connection, group, topic, 0) == {0: 2}
    assert producer.end(commit=True) == NONE
    assert offsets_of(connection, group, topic, 0, stable=True) == {0: 2}


@pytest.mark.parametrize(
    ("version", "code"), [(0, INVALID_STATE), (3, INVALID_STATE), (4, ABORTABLE)]
)
def test_a_group_that_is_not_in_the_transaction_is_refused(
    connection, producer, topic, version, code
):
    group = new_name("group")
    assert producer.add(topic, 0) == [NONE]
    assert producer.commit_offsets(group, topic, {0: 1}, version=version) == [code]
    assert offsets_of(connection, group, topic, 0, stable=True) == {0: -1}


def test_an_epoch_that_is_over_and_an_unknown_id_are_refused(connection, producer, topic, group):
    heir = Transactional(connection, producer.id)
    eventually(lambda: heir.init() == NONE)  # what was open is aborted first
    assert producer.commit_offsets(group, topic, {0: 1}) == [INVALID_EPOCH]
    stranger = Transactional(connection, new_name("id"))
    stranger.given = heir.given
    assert stranger.commit_offsets(group, topic, {0: 1}) == [MAPPING]
    assert offsets_of(connection, group, topic, 0, stable=True) == {0: -1}


@pytest.mark.parametrize("version", [0, 4, 5])
def test_offsets_wait_for_a_transaction_that_cannot_end(connection, producer, topic, version):
    """Its marker cannot be written: a later epoch of the producer is in the partition."""
    assert producer.add(topic, 0) == [NONE]
    later = Given(producer.given.producer_id, producer.given.epoch + 5)
    assert mark(connection, topic, later, 0, commit=False) == [NONE]
    assert producer.end(commit=True) == NONE
    assert producer.state == "PrepareCommit"
    sent = producer.commit_offsets(new_name("group"), topic, {0: 1}, version=version)
    assert sent == [CONCURRENT]


def test_bad_offsets_have_their_own_error_and_the_others_are_stored(
    connection, producer, topic, group
):
    assert producer.commit_offsets(group, topic, {0: 1, 9: 1}) == [NONE, UNKNOWN_TOPIC]
    assert producer.commit_offsets(group, "nowhere", {0: 1}) == [UNKNOWN_TOPIC]
    assert producer.commit_offsets(group, topic, {1: 1}, metadata="m" * 4_097) == [TOO_LARGE]
    assert producer.commit_offsets("", topic, {0: 1}) == [INVALID_GROUP]
    assert producer.end(commit=True) == NONE
    assert offsets_of(connection, group, topic, 0, 1) == {0: 1, 1: -1}


def test_a_group_with_members_is_fenced_by_member_and_generation(connection, producer, topic):
    """A client that names no member is not fenced, as before KIP-447."""
    group = new_name("group")
    member, generation = member_of(connection, group, instance="i")
    assert producer.add_group(group) == NONE

    def sent(**who):
        (code,) = producer.commit_offsets(group, topic, {0: 1}, **who)
        return code

    assert sent(member=member, generation=generation) == NONE
    assert sent(member=member, generation=generation, instance="i") == NONE
    assert sent() == NONE
    assert sent(member=member, generation=generation + 1) == GENERATION
    assert sent(member="nobody", generation=generation) == UNKNOWN_MEMBER
    assert sent(member="nobody", generation=generation, instance="i") == FENCED_INSTANCE
    empty = new_name("group")
    assert producer.add_group(empty) == NONE
    assert producer.commit_offsets(empty, topic, {0: 1}, member="m", generation=4) == [GENERATION]


def member_of(connection, group, instance=None):
    """Lets a member join, and gives it its assignment: its id and generation."""
    joined = join_once(
        connection, group, version=3 if instance is None else 5, group_instance_id=instance
    )
    assert joined["error_code"] == NONE
    who = (joined["member_id"], joined["generation_id"])
    assert sync_alone(connection, group, *who, group_instance_id=instance) == NONE
    return who


def test_what_is_deleted_is_not_committed_later(connection, producer, topic, group):
    assert commit(connection, group, topic, 5, partition=1) == NONE
    assert producer.commit_offsets(group, topic, {0: 1, 1: 6}) == [NONE, NONE]
    deleted = [{"name": topic, "partitions": [{"partition_index": each} for each in (0, 1)]}]
    answer = connection.ask("OffsetDelete", 0, group_id=group, topics=deleted)
    assert answer["error_code"] == NONE
    assert producer.commit_offsets(group, topic, {2: 7}) == [NONE]
    assert producer.end(commit=True) == NONE
    assert offsets_of(connection, group, topic, 0, 1, 2, stable=True) == {0: -1, 1: -1, 2: 7}


def test_a_deleted_group_comes_back_without_what_was_pending(connection, producer, topic, group):
    assert producer.commit_offsets(group, topic, {0: 1}) == [NONE]
    (result,) = connection.ask("DeleteGroups", 2, groups_names=[group])["results"]
    assert result["error_code"] == NONE
    assert producer.end(commit=True) == NONE
    assert offsets_of(connection, group, topic, 0, stable=True) == {0: -1}


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_restart_forgets_no_pending_offset_and_commits_none(start, is_killed):
    broker = start()
    with broker.connect() as connection:
        create(connection, "t", partitions=3)
        done, dropped, opened = (Transactional(connection, name) for name in "abc")
        for each, partition in ((done, 0), (dropped, 1), (opened, 2)):
            assert (each.init(), each.add_group("g")) == (NONE, NONE)
            sent = {partition: 10} | {0: 20 + partition}
            assert each.commit_offsets("g", "t", sent) == [NONE] * len(sent)
        assert (done.end(commit=True), dropped.end(commit=False)) == (NONE, NONE)
    broker.kill() if is_killed else broker.stop()
    broker.restart()
    with broker.connect() as connection:
        opened.connection = connection
        eventually(lambda: offsets_of(connection, "g", "t", 0) == {0: 20})
        told = offsets_of(connection, "g", "t", 0, 1, 2, stable=True)
        assert told == {0: UNSTABLE, 1: -1, 2: UNSTABLE}
        eventually(lambda: not opened.described()["error_code"])
        assert opened.end(commit=True) == NONE
        told = offsets_of(connection, "g", "t", 0, 1, 2, stable=True)
        assert told == {0: 22, 1: -1, 2: 10}


@pytest.mark.slow
def test_commits_of_many_at_once_are_whole(connection, topic, start):
    """Each transaction commits one number for three partitions: a reader never sees two."""
    broker = start()
    with broker.connect() as first:
        create(first, "t", partitions=3)
    torn, ends = [], threading.Event()

    def transact(name):
        with broker.connect() as own:
            producer = Transactional(own, name)
            assert producer.init() == NONE
            for number in range(20):
                assert producer.add_group("g") == NONE
                sent = dict.fromkeys(range(3), number)
                assert producer.commit_offsets("g", "t", sent) == [NONE] * 3
                assert producer.end(commit=number % 3 != 2) == NONE

    def watch():
        with broker.connect() as own:
            while not ends.is_set():
                seen = offsets_of(own, "g", "t", 0, 1, 2)
                if len(set(seen.values())) > 1 or 2 in {each % 3 for each in seen.values()} - {
                    -1 % 3
                }:
                    torn.append(seen)

    watcher = threading.Thread(target=watch)
    watcher.start()
    workers = [threading.Thread(target=transact, args=("one",))]
    for each in workers:
        each.start()
    for each in workers:
        each.join(120)
    ends.set()
    watcher.join(60)
    assert not torn
    with broker.connect() as last:
        assert offsets_of(last, "g", "t", 0, 1, 2, stable=True) == dict.fromkeys(range(3), 19)


def test_refused_offsets_leave_nothing_behind(tmp_path, caplog):
    """No group, nothing of the producer; groups that go together are one line of the log."""
    caplog.set_level(logging.INFO, "tidelog.groups")
    with Inside(tmp_path) as broker, broker.connect() as connection:
        groups = broker.node.coordinator
        broker.call(groups.start)
        create(connection, "t", partitions=1)
        known = Transactional(connection, "known")
        assert known.init() == NONE
        assert known.add_group("kept") == NONE
        assert known.commit_offsets("kept", "t", {0: 1}) == [NONE]
        stranger = Transactional(connection, "stranger")
        for number in range(10):
            stranger.given = Given(10_000 + number, 0)
            for group in ("kept", "same", f"g{number}"):
                assert stranger.commit_offsets(group, "t", {0: 1}, version=0) == [MAPPING]
        assert known.commit_offsets("none", "t", {0: 1}, generation=3) == [GENERATION]
        assert broker.call(lambda: [each.group.group_id for each in groups.runtime.all()]) == [
            "kept"
        ]
        assert known.end(commit=True) == NONE
        assert offsets_of(connection, "kept", "t", 0) == {0: 1}

        names = [f"deleted-{number}" for number in range(8)]
        for name in names:
            assert commit(connection, name, "t", 1, partition=0) == NONE
        connection.ask("DeleteGroups", 2, groups_names=names)
        broker.call(lambda: asyncio.ensure_future(groups.stop()))
        (line,) = eventually(lambda: [each for each in caplog.records if "deleted" in each.message])
        assert (line.groups, line.named) == (8, " ".join(names[:5]) + " (3 more)")


def test_a_commit_outlives_a_refused_one_of_the_same_new_group(tmp_path, monkeypatch):
    """The group is dropped while the other commit is being written to the log."""
    with Inside(tmp_path) as broker, broker.connect() as connection:
        groups = broker.node.coordinator
        broker.call(groups.start)
        create(connection, "t", partitions=1)
        assert commit(connection, "first", "t", 1, partition=0) == NONE
        append = InternalTopic.append

        async def slow(*how):
            # A join that is refused drops the group, which nobody uses yet.
            with pytest.raises(InconsistentGroupProtocol):
                await groups.join("g", REFUSED)
            return await append(*how)

        monkeypatch.setattr(InternalTopic, "append_now", lambda *_: None)
        monkeypatch.setattr(InternalTopic, "append", slow)
        assert commit(connection, "g", "t", 7, partition=0) == NONE
        assert offsets_of(connection, "g", "t", 0) == {0: 7}
