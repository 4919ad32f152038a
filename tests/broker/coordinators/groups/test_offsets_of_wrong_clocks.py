"""Committed offsets that a wrong clock dated, after the broker has been restarted."""

import pytest

from tests.broker import asking
from tests.broker.members import commit, fetched
from tests.broker.subject import eventually

pytestmark = pytest.mark.slow

NEW_YEAR_MS = 1_767_225_600_000
MINUTE_MS = 60_000
DAY_MS = 86_400_000


def test_an_offset_of_a_clock_in_1970_does_not_expire_after_a_restart(start):
    broker = start({"clock": "manual", "clock.start.ms": 10 * MINUTE_MS, "clock.scope": "all"})
    with broker.connect() as connection:
        topic = asking.new_topic(connection)
        commit(connection, "g", topic, 5)
    broker.clock.leap(NEW_YEAR_MS)  # the machine gets the time
    broker.restart({"clock.start.ms": NEW_YEAR_MS + DAY_MS})
    with broker.connect() as connection:
        broker.clock.step("11m")  # a round of expiry is due
        broker.clock.step("11m")
        eventually(lambda: fetched(connection, "g", topic)[0] == 5, what="the groups to be read")
        broker.clock.step("5d")
        _assert_kept_then_expired(broker, connection, topic)


def test_an_offset_of_a_clock_that_was_ahead_expires_after_a_restart(start):
    broker = start({"clock": "manual", "clock.start.ms": NEW_YEAR_MS, "clock.scope": "all"})
    with broker.connect() as connection:
        topic = asking.new_topic(connection)
        broker.clock.leap("3650d")
        commit(connection, "g", topic, 5)
        broker.clock.leap("-3650d")
    broker.restart()
    with broker.connect() as connection:
        eventually(lambda: fetched(connection, "g", topic)[0] == 5, what="the groups to be read")
        broker.clock.step("6d")
        _assert_kept_then_expired(broker, connection, topic)


def test_a_commit_time_that_a_client_gave_is_kept_over_a_restart(start):
    broker = start({"clock": "manual", "clock.start.ms": NEW_YEAR_MS, "clock.scope": "all"})
    with broker.connect() as connection:
        topic = asking.new_topic(connection)
        commit(connection, "g", topic, 5, version=1, timestamp=NEW_YEAR_MS + 30 * DAY_MS)
    broker.restart()
    with broker.connect() as connection:
        eventually(lambda: fetched(connection, "g", topic)[0] == 5, what="the groups to be read")
        broker.clock.step("30d")
        broker.clock.step("6d")
        _assert_kept_then_expired(broker, connection, topic)


def _assert_kept_then_expired(broker, connection, topic):
    """The offset is still there, and has expired two days later."""
    assert fetched(connection, "g", topic)[0] == 5
    broker.clock.step("2d")
    eventually(lambda: fetched(connection, "g", topic)[0] == -1, what="the offset to expire")
