"""Connections that are kept for other brokers, whatever clients open."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from tests.broker.cluster.brokers import Brokers
from tests.broker.raw import Pipe
from tests.broker.subject import eventually
from tidelog.broker.network.accepting.admission import MOST_WAIT_S
from tidelog.broker.network.accepting.connections import Connections
from tidelog.broker.network.accepting.over_limit import FOR_EACH_BROKER
from tidelog.broker.settings import Settings
from tidelog.config import load

ME, EPOCH = 1, 70
MOST = 6


class Client:
    """A connection without a socket."""

    def __init__(self, now_s, host="10.0.0.1"):
        self.session = SimpleNamespace(host=host)
        self.peer = f"{host}:1"
        self.last_active_s = now_s
        self.is_over_limit = self.is_aborted = self.is_expired = False
        self.is_busy, self.is_muted, self.descriptor = True, False, 10
        self.proven = None

    def delay(self, _wait_s):
        pass

    def abort(self):
        self.is_aborted = True

    def expire(self):
        self.is_expired = True


class Cluster:
    """The connections of a broker that is not alone, and a clock."""

    def __init__(self, others=1, **settings):
        given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        config = load(None, {}, {**given, "node.id": str(ME)})
        self.now_s = 100.0
        self.metrics = SimpleNamespace(
            connections_refused=0, connections_made=0, connections_delayed=0, bad_requests=0
        )
        self.metrics.connections_silent = 0
        brokers = {number: SimpleNamespace(epoch=EPOCH) for number in range(ME, ME + 1 + others)}
        self.image = SimpleNamespace(quotas={}, brokers=brokers, registrations=brokers)
        clock = SimpleNamespace(monotonic_s=lambda: self.now_s)
        metadata = SimpleNamespace(image=self.image)
        self.connections = Connections(Settings(config), self.metrics, None, clock, metadata)

    def come(self, **how):
        """A new connection; None if it is refused."""
        self.now_s += 0.001
        client = Client(self.now_s, **how)
        return client if self.connections.admit(client) else None

    def show(self, client, broker=ME + 1, epoch=EPOCH):
        """Lets a connection prove its broker, as a fetch does."""
        client.proven = broker, epoch


@pytest.mark.parametrize("others", [1, 2])
def test_so_many_more_as_other_brokers_need(others):
    cluster = Cluster(others, max_connections=MOST)
    clients = [cluster.come() for _ in range(MOST)]
    assert not any(client.is_over_limit for client in clients)
    beyond = [cluster.come() for _ in range(FOR_EACH_BROKER * others)]
    assert all(each.is_over_limit for each in beyond)
    late = cluster.come()
    assert [each.is_aborted for each in beyond] == [True, *[False] * (len(beyond) - 1)]
    assert len(cluster.connections) == MOST + FOR_EACH_BROKER * others
    assert (late.is_over_limit, cluster.metrics.connections_refused) == (True, 1)
    cluster.connections.discard(clients[0])
    assert not cluster.come().is_over_limit  # those take no place of a client


def test_a_broker_that_is_alone_keeps_no_connections():
    cluster = Cluster(others=0, max_connections=MOST)
    assert [cluster.come() is None for _ in range(MOST + 1)] == [*[False] * MOST, True]


def test_one_that_has_shown_its_session_stays_as_long_as_that_lasts():
    cluster = Cluster(max_connections=0)
    broker, pretender = cluster.come(), cluster.come()
    cluster.show(broker)
    cluster.show(pretender, epoch=EPOCH - 1)
    for _ in range(20):
        assert cluster.come() is not None
    assert (broker.is_aborted, pretender.is_aborted) == (False, True)
    cluster.image.brokers[ME + 1] = SimpleNamespace(epoch=EPOCH + 1)
    assert cluster.come() is not None
    assert broker.is_aborted


def test_brokers_alone_fill_what_is_kept():
    cluster = Cluster(max_connections=0)
    beyond = [cluster.come() for _ in range(FOR_EACH_BROKER)]
    for each in beyond:
        cluster.show(each)
    assert cluster.come() is None
    assert not any(each.is_aborted for each in beyond)


def test_those_of_one_address_are_limited_all_the_same():
    cluster = Cluster(max_connections=0, max_connections_per_ip=2)
    assert [cluster.come() is None for _ in range(3)] == [False, False, True]
    assert cluster.come(host="10.0.0.2") is not None
    assert not [each for each in cluster.connections if each.is_aborted]


def test_a_rate_that_is_exceeded_for_long_keeps_no_broker_out():
    cluster = Cluster(max_connection_creation_rate=1)
    clients = [cluster.come() for _ in range(int(MOST_WAIT_S) + 1)]
    assert not any(client.is_over_limit for client in clients)
    assert cluster.come().is_over_limit


def test_a_muted_connection_is_not_idle():
    """Of two that have long been silent the one that waits for its quota stays."""
    cluster = Cluster(0)
    muted, idle = cluster.come(), cluster.come()
    muted.is_muted, muted.is_busy, idle.is_busy = True, False, False
    cluster.now_s = 1e6
    assert cluster.connections.close_idle() == 1
    assert (muted.is_expired, idle.is_expired) == (False, True)


@pytest.mark.slow
def test_a_follower_connects_although_clients_hold_every_connection(tmp_path):
    brokers = Brokers(tmp_path)
    brokers.start(1, 2, settings={"max.connections": MOST})
    brokers.add_topic("t", [1, 2])
    assert brokers[2].stop() == 0
    brokers.eventually(lambda image: image.topics["t"].assignments[0].isr == (1,), 60)
    with ExitStack() as stack:
        pipes = [stack.enter_context(Pipe(brokers[1])) for _ in range(MOST + 2 * FOR_EACH_BROKER)]
        for pipe in pipes:
            pipe.push("ApiVersions", 0)
        told = [pipe.pull() is not None for pipe in pipes]
        assert sum(told[:MOST]) == MOST
        brokers[2].restart()
        brokers.eventually(lambda image: 2 in image.topics["t"].assignments[0].isr, 60)
        for pipe in pipes[:MOST]:
            pipe.push("Metadata", 1, topics=None)
            assert pipe.pull() is not None
        with Pipe(brokers[1]) as late:  # a client of which the limit is told at its second request
            late.push("ApiVersions", 0)
            assert late.pull() is not None
            late.push("Metadata", 1, topics=None)
            assert late.pull() is None
        assert brokers[1].lines("connection refused", "max.connections reached", "level=warning")
        assert eventually(
            lambda: brokers[1].metric("tidelog_connections_refused_total") >= FOR_EACH_BROKER
        )
    brokers.stop()
