"""Fetch sessions, pure: what an answer carries, whose turn it is, and which session goes for another."""

from __future__ import annotations

import uuid
from itertools import count

import pytest

from tidelog.broker.partitions.fetch.session import FetchSession, as_topics
from tidelog.broker.partitions.fetch.session_epochs import next_epoch
from tidelog.broker.partitions.fetch.sessions import EVICTION_S, FetchSessions
from tidelog.protocol.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tidelog.protocol.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
)

LAST_EPOCH = 2**31 - 1
OLD_S = EVICTION_S + 1


def asked(*indexes, topic="t", offset=0, forget=(), **more):
    """A fetch that names some partitions of a topic, and forgets others."""
    partitions = [FetchPartition(partition=i, fetch_offset=offset) for i in indexes]
    topics = [FetchTopic(topic=topic, partitions=partitions)] if indexes else []
    gone = [ForgottenTopic(topic=topic, partitions=list(forget))] if forget else []
    return FetchRequest(topics=topics, forgotten_topics_data=gone, **more)


def read(high_watermark=0, log_start=0, records=(), **more):
    return PartitionData(
        high_watermark=high_watermark,
        log_start_offset=log_start,
        records=list(records),
        **more,
    )


def session_of(*indexes):
    """A session whose partitions are all quiet."""
    session = FetchSession(7, 0.0, by_id=False)
    session.take(asked(*indexes))
    for each in session:
        session.sent(each, read())
    session.changed.clear()
    return session


def indexes_of(partitions):
    return [each.wanted.partition for each in partitions]


class TestSession:
    def test_only_what_has_changed_is_read(self):
        session = session_of(0, 1, 2)
        assert session.to_read() == []
        session.take(asked(1, offset=5))
        (one,) = session.to_read()
        assert (one.wanted.partition, one.wanted.fetch_offset) == (1, 5)

    @pytest.mark.parametrize(
        ("data", "is_told"),
        [
            (read(), False),
            (read(high_watermark=1), True),
            (read(high_watermark=-1), True),  # of another leader, or deleted and created again
            (read(log_start=1), True),
            (read(records=[b"x"]), True),
            (read(error_code=3), True),
            (read(preferred_read_replica=2), True),
        ],
    )
    def test_what_an_answer_carries(self, data, is_told):
        session = session_of(0)
        (one,) = session
        assert session.sent(one, data) is is_told
        assert session.sent(one, read(data.high_watermark, data.log_start_offset)) is False

    def test_a_partition_is_told_again_after_its_error(self):
        session = session_of(0)
        (one,) = session
        error = {"high_watermark": -1, "log_start": -1, "error_code": 6}
        assert session.sent(one, read(**error)) is session.sent(one, read(**error)) is True
        assert session.sent(one, read()) is True

    def test_who_was_sent_records_goes_behind_the_others(self):
        session = session_of(0, 1, 2)
        first, second, third = session
        for each in (third, first, second):
            session.changed[each] = None
        session.sent(first, read(1, records=[b"x"]))
        session.sent(second, read(1))
        assert indexes_of(session.to_read()) == [1, 2, 0]

    def test_partitions_are_added_and_forgotten(self):
        session = session_of(0, 1)
        gone = session.take(asked(2, forget=(0, 9)))
        assert (indexes_of(gone), indexes_of(session), session.size) == ([0], [1, 2], 2)
        session.take(asked(forget=(1, 2)))
        assert (session.size, session.topics, session.changed) == (0, {}, {})

    def test_a_partition_that_is_named_and_forgotten_is_gone(self):
        session = session_of(0, 1)
        session.take(asked(0, forget=(0,)))
        assert (indexes_of(session), session.to_read()) == ([1], [])

    def test_another_isolation_level_has_another_end(self):
        session = session_of(0, 1)
        session.take(asked(isolation_level=1))
        assert indexes_of(session.to_read()) == [0, 1]
        session.changed.clear()
        session.take(asked(isolation_level=1))
        assert session.to_read() == []

    def test_epochs_begin_again_with_one(self):
        assert [next_epoch(each) for each in (1, LAST_EPOCH - 1, LAST_EPOCH)] == [2, LAST_EPOCH, 1]
        session = session_of(0)
        session.epoch = LAST_EPOCH
        session.take(asked())
        assert session.epoch == 1

    def test_new_metadata_concern_their_topic_alone(self):
        session = session_of(0)
        session.take(asked(0, topic="u"))
        session.learn("image", {"t": "as before", "u": "as before"})
        session.changed.clear()
        session.learn("image", {"t": "as before", "u": "another"})
        assert [each.topic.name for each in session.to_read()] == ["u"]

    def test_partitions_of_a_topic_that_follow_each_other_are_together(self):
        session = session_of(0, 1)
        session.take(asked(0, topic="u"))
        first, second, other = session
        topics = as_topics([first, other, second])
        assert [each.topic for each in topics] == ["t", "u", "t"]
        assert len(as_topics([first, second, other])) == 2


def sessions_of(slots=3, most_partitions=1000):
    ids = count(1)
    return FetchSessions(slots, most_partitions, lambda: next(ids))


def begun(sessions, size, now_s, *, by_id=False):
    """The session, which has its partitions, and the ids of those that went."""
    session, evicted = sessions.begin(size, now_s, by_id=by_id)
    if session is not None:
        topic = session.topic("t", uuid.UUID(int=5), None)
        for index in range(size):
            session.add(topic, FetchPartition(partition=index))
        sessions.count(session)
    return session, [each.id for each in evicted]


class TestSessions:
    def test_a_session_is_found_by_id_and_epoch(self):
        sessions = sessions_of()
        session, _ = begun(sessions, 2, 0)
        with pytest.raises(FetchSessionIdNotFound):
            sessions.take(asked(session_id=session.id + 1, session_epoch=1), 0, False)
        for epoch in (2, LAST_EPOCH, -2):
            with pytest.raises(InvalidFetchSessionEpoch):
                sessions.take(asked(session_id=session.id, session_epoch=epoch), 0, False)
        with pytest.raises(FetchSessionTopicIdError):
            sessions.take(asked(session_id=session.id, session_epoch=1), 0, True)
        taken, _ = sessions.take(asked(session_id=session.id, session_epoch=1), 0, False)
        assert (taken, session.epoch) == (session, 2)

    def test_a_session_without_partitions_is_closed(self):
        sessions = sessions_of()
        session, _ = begun(sessions, 2, 0)
        request = asked(forget=(0, 1), session_id=session.id, session_epoch=1)
        taken, gone = sessions.take(request, 0, False)
        assert (taken, indexes_of(gone)) == (None, [0, 1])
        assert (sessions.sessions, sessions.partitions, session.is_closed) == (0, 0, True)

    def test_the_one_that_was_not_used_for_longest_goes(self):
        sessions = sessions_of()
        for now_s in (0, 1, 2):
            begun(sessions, 5, now_s)
        sessions.take(asked(session_id=1, session_epoch=1), 3, False)
        assert begun(sessions, 1, 1 + EVICTION_S)[0] is None  # not long enough ago
        session, evicted = begun(sessions, 1, 1 + OLD_S)
        assert (session.size, evicted, sessions.evicted) == (1, [2], 1)

    @pytest.mark.parametrize(("size", "goes"), [(1, []), (2, []), (3, [2])])
    def test_a_smaller_one_goes_for_a_larger_one_if_it_is_old(self, size, goes):
        sessions = sessions_of()
        for number in (4, 2, 3):
            begun(sessions, number, 0)
        for number in (1, 2, 3):
            sessions.take(asked(session_id=number, session_epoch=1), OLD_S - 1, False)
        assert begun(sessions, 9, EVICTION_S) == (None, [])  # none is old enough
        session, evicted = begun(sessions, size, OLD_S + 1)
        assert (evicted, session is not None) == (goes, bool(goes))

    def test_a_search_in_vain_is_not_repeated_at_once(self):
        sessions = sessions_of()
        for _ in range(3):
            begun(sessions, 1, 0)
        sessions.take(asked(session_id=1, session_epoch=1), EVICTION_S, False)
        sessions.take(asked(session_id=2, session_epoch=1), EVICTION_S, False)
        sessions.take(asked(session_id=3, session_epoch=1), EVICTION_S, False)
        assert begun(sessions, 2, EVICTION_S)[0] is None
        assert begun(sessions, 2, EVICTION_S + 0.9)[0] is None  # two minutes old now
        assert begun(sessions, 2, EVICTION_S + 1)[1] == [1]

    def test_a_closed_one_leaves_its_room_at_once(self):
        sessions = sessions_of()
        for _ in range(3):
            begun(sessions, 1, 0)
        assert begun(sessions, 1, 0)[0] is None
        assert sessions.close(2).id == 2
        assert begun(sessions, 1, 0)[0] is not None
        assert sessions.close(2) is None

    def test_no_slots_mean_no_sessions(self):
        assert begun(sessions_of(slots=0), 1, 0) == (None, [])

    def test_partitions_are_bounded_in_total(self):
        sessions = sessions_of(slots=9, most_partitions=10)
        assert begun(sessions, 11, 0) == (None, [])
        begun(sessions, 4, 0)
        begun(sessions, 5, 1)
        assert begun(sessions, 2, 2) == (None, [])
        assert begun(sessions, 1, 3)[1] == []
        assert sessions.partitions == 10
        assert begun(sessions, 6, OLD_S + 1)[1] == [1, 2]
        assert sessions.partitions == 7

    def test_one_that_grows_beyond_that_goes_unless_another_one_does(self):
        sessions = sessions_of(slots=9, most_partitions=10)
        begun(sessions, 4, 0)
        grows, _ = begun(sessions, 4, 0)
        request = asked(*range(7), session_id=grows.id, session_epoch=1)
        sessions.take(request, OLD_S, False)
        assert sessions.are_too_large
        assert [each.id for each in sessions.outgrown(grows, OLD_S)] == [1]
        assert (sessions.partitions, grows.is_closed) == (7, False)
        request = asked(*range(11), session_id=grows.id, session_epoch=2)
        sessions.take(request, OLD_S, False)
        assert [each.id for each in sessions.outgrown(grows, OLD_S)] == [grows.id]
        assert (sessions.partitions, sessions.sessions) == (0, 0)
