"""Broker processes over one metadata file: they register, notice each other's end, and elect.

A test says how long something may take where a lease, which takes longer, must have no part in it.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidelog.storage.directory.registration_file import read_state

pytestmark = pytest.mark.slow

LONG_MS = 60_000  # a lease that no test outlives
SOON_S = 20


def unfenced(image):
    return {each for each, live in image.brokers.items() if not live.record.is_fenced}


def test_three_brokers_register_and_one_is_the_controller(brokers):
    brokers.start(1, 2, 3, settings={"broker.rack": "r1"})
    image = brokers.image()
    assert unfenced(image) == {1, 2, 3}
    assert image.controller.broker in (1, 2, 3)
    for broker, live in image.brokers.items():
        told = [f"{each.host}:{each.port}" for each in live.record.endpoints]
        assert told == [brokers[broker].bootstrap, brokers[broker].http]
        assert live.record.rack == "r1"
        assert image.registrations[broker].epoch == live.epoch
        assert image.registrations[broker].record.is_clean
    assert {brokers[each].cluster_id for each in (1, 2, 3)} == {image.cluster_id}
    secrets = {live.record.secret for live in image.brokers.values()}
    assert len(secrets) == 3
    for each in (1, 2, 3):
        shown = brokers[each].page("/v1/cluster")
        assert all("epoch" not in broker for broker in json.loads(shown)["brokers"])
        texts = shown + brokers[each].page("/metrics") + brokers[each].log()
        assert "broker_epoch" not in texts
        assert not [secret for secret in secrets if secret in texts]


@pytest.mark.parametrize("victim", ["controller", "other"])
def test_what_a_killed_broker_led_is_led_by_another_before_its_lease_ends(brokers, victim):
    brokers.start(1, 2, settings={"broker.session.timeout.ms": LONG_MS})
    controller = brokers.image().controller.broker
    killed = controller if victim == "controller" else 3 - controller
    other = 3 - killed
    brokers.add_topic("t", [killed, other])

    brokers[killed].kill()
    image = brokers.eventually(
        lambda image: image if image.topics["t"].assignments[0].leader == other else None, SOON_S
    )
    assert set(image.brokers) == {other}
    assert image.controller.broker == other
    record = image.topics["t"].assignments[0]
    assert (record.isr, record.leader_epoch) == ((other,), 1)


def test_a_killed_broker_starts_again_fenced_and_leads_in_a_new_epoch(brokers):
    brokers.start(1, settings={"broker.session.timeout.ms": LONG_MS})
    brokers.add_topic("t", [1])
    epoch = brokers.image().brokers[1].epoch
    brokers[1].kill()
    brokers[1].restart()
    image = brokers.eventually(
        lambda image: image if image.topics["t"].assignments[0].leader == 1 else None, SOON_S
    )
    assert image.brokers[1].epoch > epoch
    assert image.registrations[1].record.is_clean
    assert image.topics["t"].assignments[0].leader_epoch >= 2


def test_sigterm_ends_a_session_at_once_and_marks_the_directories(brokers):
    brokers.start(1, 2, settings={"broker.session.timeout.ms": LONG_MS})
    state = read_state(brokers[1].log_dir)
    assert not state.is_stopped
    assert brokers[1].stop() == 0
    image = brokers.image()
    assert set(image.brokers) == {2}
    assert read_state(brokers[1].log_dir) == state._replace(is_stopped=True)
    assert brokers.eventually(lambda image: image.controller, SOON_S).broker == 2

    brokers[1].restart()
    assert unfenced(brokers.image()) == {1, 2}
    assert brokers.image().registrations[1].record.is_clean


def test_others_lead_before_a_broker_stops(brokers):
    brokers.start(1, 2, 3, settings={"broker.session.timeout.ms": LONG_MS})
    brokers.add_topic("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    before = brokers.image().topics["t"].assignments
    assert brokers[1].stop(within_s=SOON_S) == 0
    assert brokers[1].lines("controlled shutdown succeeded")
    image = brokers.image()
    assert set(image.brokers) == {2, 3}
    after = image.topics["t"].assignments
    assert after[0].leader in (2, 3)
    assert [record.leader for record in after[1:]] == [2, 3]
    # The leader that went and came to nothing has not been noticed as a dead one.
    assert after[0].leader_epoch == before[0].leader_epoch + 1
    assert all(1 not in record.isr for record in after)


def test_brokers_that_stop_at_the_same_time_do_not_wait_for_each_other(brokers):
    brokers.start(1, 2, 3, settings={"broker.session.timeout.ms": LONG_MS})
    brokers.add_topic("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    with ThreadPoolExecutor(3) as threads:
        stopped = threads.map(lambda broker: brokers[broker].stop(within_s=SOON_S), (1, 2, 3))
        assert list(stopped) == [0, 0, 0]
    image = brokers.image()
    assert not image.brokers
    assert image.controller is None
    assert not image.members.seen
    for broker in (1, 2, 3):
        brokers[broker].restart()
    led = brokers.eventually(
        lambda image: all(record.leader > 0 for record in image.topics["t"].assignments), SOON_S
    )
    assert led
