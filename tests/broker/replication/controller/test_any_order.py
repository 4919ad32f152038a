"""Whatever is written in any order, late and twice, keeps the rules; and planted mistakes break them."""

from __future__ import annotations

import pytest

from tests.broker.replication.controller.any_order import AnyOrder, first_violation
from tidelog.broker.membership import registration
from tidelog.broker.metadata.store import Compare
from tidelog.broker.replication import eligible_leaders, isr_change, transactions
from tidelog.broker.replication.controller import controller, election

SEEDS = 300

_TRUE = Compare("cluster", "mod", ">", 0)  # what compares nothing


def test_any_order():
    found = first_violation(range(SEEDS))
    assert found is None, f"seed {found[0]}: {found[1]}"


@pytest.mark.long
def test_any_order_for_long():
    found = first_violation(range(SEEDS, 10_000))
    assert found is None, f"seed {found[0]}: {found[1]}"


def test_the_runs_come_to_what_they_are_about():
    """A run in which nothing happens finds nothing."""
    seen = set()
    for seed in range(60):
        run = AnyOrder(seed)
        commit = run.cluster.commit

        def counted(transaction, commit=commit):
            applied = commit(transaction)
            seen.update({(why, applied) for why in transaction.why.split(", ")})
            return applied

        run.cluster.commit = counted
        run.play(150)
    for why in ("election", "in-sync replicas", "reassignment"):
        assert {(why, True), (why, False)} <= seen, why
    for why in (
        "unclean start",
        "clean start",
        "unfenced",
        "unclean election",
        "stopping",
        "offline",
    ):
        assert (why, True) in seen, why


def _by_setting_alone(record, min_insync):
    return len(record.isr) >= eligible_leaders.effective_min(record, min_insync)


def _whoever_leaves(record, isr, _min_insync):
    complete = {*record.isr, *record.elr}.difference(isr)
    return tuple(broker for broker in record.replicas if broker in complete)


def _but_elr(record, broker, min_insync, without=registration.without):
    return None if broker in record.elr else without(record, broker, min_insync)


def _as_if_able(image, able=controller.able):
    return able(image)._replace(brokers=frozenset(image.brokers))


def _in_the_same_epoch(record, leader, isr, elr, led_by=election.led_by):
    return led_by(record, leader, isr, elr)._replace(leader_epoch=record.leader_epoch)


PLANTED = {
    "the high watermark moves while replicas are eligible": [
        (eligible_leaders, "may_advance", _by_setting_alone),
    ],
    "whoever leaves an ISR is eligible, however many stay": [
        (eligible_leaders, "may_advance", _by_setting_alone),
        (eligible_leaders, "elr_after", _whoever_leaves),
        (election, "elr_after", _whoever_leaves),
    ],
    "an unclean broker stays in its ISRs": [(registration, "without", lambda *_: None)],
    "an unclean broker stays in the ELR": [(registration, "without", _but_elr)],
    "fenced and stopping brokers are elected": [(controller, "able", _as_if_able)],
    "an election does not compare the sessions": [(transactions, "as_seen", lambda *_: _TRUE)],
    "a change does not compare the partition": [
        (transactions, "unmodified", lambda *_: _TRUE),
        (isr_change, "unmodified", lambda *_: _TRUE),
    ],
    "a leader does not compare who joins its ISR": [
        (isr_change, "as_seen", lambda *_: _TRUE),
        (isr_change, "_can_join", lambda *_: True),
    ],
    "a leader does not compare its own session": [(isr_change, "in_session", lambda *_: _TRUE)],
    "a new leader has the old leader epoch": [(election, "led_by", _in_the_same_epoch)],
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_caught(mistake, monkeypatch):
    for module, name, planted in PLANTED[mistake]:
        monkeypatch.setattr(module, name, planted)
    assert first_violation(range(200)) is not None
