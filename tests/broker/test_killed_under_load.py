"""kill -9 under load: what was acknowledged is there, once, in order.

Idempotent librdkafka producers and a kafka-python one write with acks=all; the broker is killed after a
random number of acknowledgements, and started again on the same directory and port, over and over.
TIDELOG_KILLS says how often (3 by default, 20 in the long profile), and a third as often again for a
topic in flush mode. Two planted faults show that the account of promises can fail.
"""

from __future__ import annotations

import gc
import os
import random
import socket

import pytest

from tests.broker import kills
from tests.broker.asking import create

KILLS = int(os.environ.get("TIDELOG_KILLS", "3"))
LONG_KILLS = int(os.environ.get("TIDELOG_KILLS", "20"))

# kafka-python leaves sockets of lost connections to the garbage collector, which may run at any time.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")


@pytest.fixture(autouse=True)
def _sweep():
    """Close what kafka-python leaves open: the sockets of connections that were lost."""
    yield
    for each in gc.get_objects():
        if type(each) is socket.socket and each.fileno() >= 0:
            try:
                each.getpeername()
            except OSError:
                each.close()


def play(broker, count, seed, *, plant=None, end="kill", most=1_500, **settings):
    """Kill `count` times; the problems found. `plant` works on the directory before the last restart."""
    settings = {"segment_bytes": "1000000", **settings}
    chance = random.Random(seed)
    with broker.connect() as connection:
        create(connection, "t", partitions=kills.PARTITIONS, **settings)
    accounts = [
        kills.Librdkafka("plain", broker, "t"),
        kills.Librdkafka("packed", broker, "t", **{"compression.type": "lz4"}),
        kills.KafkaPython("python", broker, "t"),
    ]
    for account in accounts:
        account.start()
    for number in range(count):
        kills.wait_for_promises(accounts, chance.randrange(50, most))
        getattr(broker, end)()
        if plant is not None and number == count - 1:
            plant(broker.log_dir)
        broker.restart()
    if plant is None:
        kills.wait_for_promises(accounts, 50)
    for account in accounts:
        account.finish()
    found = kills.read_back(broker, "t")
    promised = sum(len(account.promised) for account in accounts)
    print(f"{count} times {end}: {promised} promised, {sum(map(len, found.values()))} there")
    return kills.problems(accounts, found)


def test_what_was_acknowledged_survives_kills(start):
    assert play(start(), KILLS, seed=1, most=200) == []


@pytest.mark.slow
def test_what_was_acknowledged_survives_kills_in_flush_mode(start):
    assert play(start(), KILLS // 3, seed=6, most=200, flush_messages="1") == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_what_was_acknowledged_survives_many_kills(start):
    assert play(start(), LONG_KILLS, seed=2) == []


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_what_was_acknowledged_survives_many_kills_in_flush_mode(start):
    assert play(start(), LONG_KILLS // 3, seed=5, flush_messages="1") == []


@pytest.mark.slow
def test_a_proper_stop_under_load_loses_and_doubles_nothing_either(start):
    assert play(start(), 2, seed=3, end="stop", most=200) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "told"), [(kills.cut, "acknowledged and lost"), (kills.double, "twice")]
)
def test_the_account_finds_planted_faults(start, plant, told):
    said = play(start(), 1, seed=4, plant=plant, most=200)
    assert any(told in sentence for sentence in said), said
