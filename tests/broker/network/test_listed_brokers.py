"""Whom a broker of a cluster names to clients: those that are not fenced, and never nobody."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidelog.broker.metadata.brokers.members import LiveBroker
from tidelog.broker.metadata.brokers.records import Endpoint, LiveBrokerRecord
from tidelog.broker.metadata.brokers.visible import VisibleBroker
from tidelog.broker.network.accepting.listener import Listener
from tidelog.broker.network.listed_brokers import listed_brokers

ME = 1


def listed(**fenced):
    """Lists the brokers of a cluster by whether they are fenced."""
    brokers = {
        int(name[1:]): SimpleNamespace(
            record=SimpleNamespace(
                endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", 9090 + int(name[1:])),),
                rack=None,
                is_fenced=is_fenced,
            )
        )
        for name, is_fenced in fenced.items()
    }
    image = SimpleNamespace(brokers=brokers, registrations=brokers, controller=None)
    return listed_from(image)


def listed_from(image, departed=(), rack=None, **wanted):
    """Lists the brokers of an image of the metadata, and those whose sessions have ended."""
    cluster = SimpleNamespace(node_id=ME, broker_rack=rack, broker_session_timeout_ms=9000)
    metadata = SimpleNamespace(image=image, departed=lambda _: departed)
    config = SimpleNamespace(cluster=cluster)
    node = SimpleNamespace(cluster=object(), config=config, metadata=metadata)
    listener = Listener("PLAINTEXT", "", 9091, ("127.0.0.1", 9091))
    context = SimpleNamespace(connection=SimpleNamespace(listener=listener))
    return listed_brokers(node, context, **wanted)


def live(broker, rack):
    """Returns a broker that had a session."""
    endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9090 + broker),)
    return LiveBroker(broker, 5, LiveBrokerRecord("id", endpoints, rack, False, False), 6)


def test_fenced_brokers_are_not_listed():
    brokers, controller = listed(_1=True, _2=False, _3=False)
    assert [each.broker for each in brokers] == [2, 3]
    assert controller == -1


def test_a_broker_lists_itself_where_all_are_fenced():
    brokers, controller = listed(_1=True, _2=True)
    assert brokers == [VisibleBroker(ME, "127.0.0.1", 9091)]
    assert controller == -1


def test_a_broker_lists_itself_where_nobody_has_a_session():
    assert listed().brokers == [VisibleBroker(ME, "127.0.0.1", 9091)]


@pytest.mark.parametrize("rack", [None, "a"])
def test_each_is_listed_once_where_all_sessions_end_together(rack):
    image = SimpleNamespace(brokers={}, controller=None, registrations={1: 0, 2: 0, 3: 0})
    gone = [live(broker, rack) for broker in (3, 1, 2)]
    assert listed_from(image, gone, rack, with_departed=True).brokers == [
        VisibleBroker(broker, "127.0.0.1", 9090 + broker, rack) for broker in (1, 2, 3)
    ]
    assert listed_from(image, gone, rack, with_fenced=True).brokers == [
        VisibleBroker(ME, "127.0.0.1", 9091, rack, is_fenced=True),
        VisibleBroker(2, "", -1, None, is_fenced=True),
        VisibleBroker(3, "", -1, None, is_fenced=True),
    ]
