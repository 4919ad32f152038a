"""A message format is refused, by whichever broker is asked, if any registered one may not store it."""

from __future__ import annotations

import pytest

from tests.broker import asking
from tests.broker.asking import try_to_create

pytestmark = pytest.mark.slow

OLD = {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.10.2"}
TOPIC, BROKER = 2, 4
INVALID_CONFIG = 40
REFUSED = (
    "broker 2: {name}=0.11.0 is message format 2, and inter.broker.protocol.version=0.10.2 allows none "
    "newer than 1: set inter.broker.protocol.version to 0.11.0 or later on every broker first, or an "
    "older {name}"
)


def alter(brokers, kind, resource, name, value="0.11.0"):
    """Sets one setting by broker 1, which may store every format; returns the error."""
    with brokers[1].connect() as connection:
        return asking.alter(connection, kind, resource, (name, 0, value))


def create(brokers, name, configs):
    with brokers[1].connect() as connection:
        found = try_to_create(connection, name, factor=2, **configs)
    return found["error_code"], found["error_message"]


def test_a_format_that_one_broker_may_not_store_is_refused_until_it_has_the_protocol(brokers):
    brokers.start(1)
    brokers.start(2, settings=OLD)
    own = "message.format.version"
    default = "log.message.format.version"
    assert create(brokers, "t", {}) == (0, None)
    assert alter(brokers, TOPIC, "t", own) == (INVALID_CONFIG, REFUSED.format(name=own))
    assert create(brokers, "u", {own: "0.11.0"}) == (INVALID_CONFIG, REFUSED.format(name=own))
    assert alter(brokers, BROKER, "", default) == (INVALID_CONFIG, REFUSED.format(name=default))
    assert alter(brokers, TOPIC, "t", own, "0.10.0") == (0, None)
    assert alter(brokers, TOPIC, "t", "retention.ms", "7") == (0, None)

    brokers[2].kill()  # it will have the same protocol when it is back, as far as is known
    assert alter(brokers, TOPIC, "t", own)[0] == INVALID_CONFIG
    brokers.start(2)
    assert alter(brokers, TOPIC, "t", own) == (0, None)
    assert alter(brokers, BROKER, "", default) == (0, None)
    assert create(brokers, "u", {own: "0.11.0"}) == (0, None)
