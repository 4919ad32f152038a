"""What a controller waits for: brokers that have just come back, and many that went together."""

from __future__ import annotations

import pytest

from tests.broker.lifecycle.test_registration import register, unfence
from tests.broker.partitions.replication.cluster import Cluster
from tidelog.broker.controller.sessions import Sessions

LEASE, SETTLE = 6_000, 60_000


@pytest.fixture
def cluster():
    found = Cluster()
    found.live(1, 2, 3)
    return found


@pytest.fixture
def sessions(cluster):
    found = Sessions(lease_ms=LEASE, settle_ms=SETTLE)
    found.observe(cluster.image, 0)
    return found


def test_a_broker_settles_by_staying_unfenced(cluster, sessions):
    assert sessions.settled(SETTLE - 1) == set()
    assert sessions.settled(SETTLE) == {1, 2, 3}
    cluster.live(1, is_fenced=True)
    sessions.observe(cluster.image, SETTLE)
    assert sessions.settled(SETTLE) == {2, 3}
    cluster.live(1)
    sessions.observe(cluster.image, SETTLE + 5)
    assert sessions.settled(2 * SETTLE + 4) == {2, 3}
    assert sessions.settled(2 * SETTLE + 5) == {1, 2, 3}


def test_no_broker_settles_where_leaders_stay_where_they_are(cluster):
    sessions = Sessions(lease_ms=LEASE, settle_ms=None)
    sessions.observe(cluster.image, 0)
    assert sessions.settled(10 * SETTLE) == set()


def test_a_broker_that_is_new_settles_at_once(cluster, sessions):
    register(cluster, cluster.start(4, "a"))
    sessions.observe(cluster.image, 10)
    assert sessions.settled(10) == set(), "it is fenced"
    unfence(cluster, 4)
    sessions.observe(cluster.image, 20)
    assert sessions.settled(20) == {4}
    cluster.die(4)
    register(cluster, cluster.start(4, "b"))
    unfence(cluster, 4)
    sessions.observe(cluster.image, 30)
    assert sessions.settled(30) == set()


def test_a_broker_that_was_gone_between_two_images_settles_again(cluster, sessions):
    cluster.die(2)
    cluster.live(2)
    sessions.observe(cluster.image, 10)
    assert sessions.settled(SETTLE) == {1, 3}


def test_one_that_goes_is_not_awaited(cluster, sessions):
    cluster.die(1)
    sessions.observe(cluster.image, 10)
    assert sessions.awaited(10) == set()


def test_many_that_go_together_are_awaited_for_a_lease(cluster, sessions):
    cluster.die(1, 2)
    sessions.observe(cluster.image, 10)
    assert sessions.awaited(10 + LEASE - 1) == {1, 2}
    cluster.live(1)
    sessions.observe(cluster.image, 20)
    assert sessions.awaited(20) == {2}
    assert sessions.awaited(10 + LEASE) == set()


def test_two_of_many_are_not_most(cluster, sessions):
    cluster.live(4, 5)
    sessions.observe(cluster.image, 5)
    cluster.die(1, 2)
    sessions.observe(cluster.image, 10)
    assert sessions.awaited(10) == set()


def test_nobody_is_awaited_where_an_ended_session_proves_an_end(cluster):
    sessions = Sessions(lease_ms=0, settle_ms=SETTLE)
    sessions.observe(cluster.image, 0)
    cluster.die(1, 2)
    sessions.observe(cluster.image, 10)
    assert sessions.awaited(10) == set()
