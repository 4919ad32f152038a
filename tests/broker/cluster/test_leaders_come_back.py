"""A broker that comes back leads again what it led, as its settings say (Kafka's, with Kafka's defaults)."""

from __future__ import annotations

import time

import pytest

from tests.broker.subject import eventually

SOON = {"leader.imbalance.check.interval.seconds": 1, "broker.session.timeout.ms": 3_000}


def leader_of(image):
    return image.assignment("t", 0).leader


@pytest.mark.parametrize("moves", [True, False])
def test_leaders_move_back_only_if_they_may(brokers, moves):
    settings = SOON if moves else {**SOON, "auto.leader.rebalance.enable": "false"}
    brokers.start(1, 2, settings=settings)
    brokers.add_topic("t", (1, 2))
    assert brokers[1].stop() == 0
    brokers.eventually(lambda image: leader_of(image) == 2)
    brokers.start(1, settings=settings)
    brokers.eventually(lambda image: len(image.assignment("t", 0).isr) == 2)
    if moves:
        brokers.eventually(lambda image: leader_of(image) == 1)
    else:
        time.sleep(4)  # twice as long as it would take
        assert leader_of(brokers.image()) == 2


def test_the_transaction_log_has_the_min_insync_replicas_that_were_asked_for(brokers):
    brokers.start(1, 2, settings={"transaction.state.log.min.isr": 2})
    with brokers[1].connect() as connection:
        eventually(
            lambda: (
                not connection.ask("FindCoordinator", 4, key_type=1, coordinator_keys=["id"])[
                    "coordinators"
                ][0]["error_code"]
            )
        )
    topic = brokers.image().topics["__transaction_state"]
    assert topic.configs["min.insync.replicas"] == "2"
