"""Clients work on through a rolling restart of three brokers, and while there is none; and the judge judged.

`make test-clients` runs the restart and prints what each client did. The judge's faults are injected
in answers, so that no broker is asked.
"""

from __future__ import annotations

import re

import pytest

from tests.clients import clients, matrix
from tests.clients.rolling import run
from tests.clients.rolling.load import PARTITIONS, Work, judge, value_of

TOPIC = "rolled"
MINUTES_MAX = 20


def perfect(*, idempotent=True):
    """Thirty records, all acknowledged and handed out; and the log that holds them."""
    log = {
        partition: [value_of(TOPIC, number) for number in range(partition, 30, PARTITIONS)]
        for partition in range(PARTITIONS)
    }
    acknowledged = [(number, number % PARTITIONS, number // PARTITIONS) for number in range(30)]
    handed = [(p, offset, value) for p in log for offset, value in enumerate(log[p])]
    return Work(TOPIC, idempotent, 30, acknowledged, [], handed, 10, 20), log


def test_what_is_whole_passes():
    verdict = judge(*perfect())
    assert verdict == ([], 0, 0, 0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda work, log: log[1].pop(), "1 acknowledged records are not where"),
        (lambda work, log: log[1].__setitem__(3, "rolled 1"), "not where they were stored: .10"),
        (lambda work, log: log[0].append(log[0][4]), "1 records are there twice"),
        (lambda work, log: log[2].reverse(), "partition 2 is out of order"),
        (lambda work, log: work.acknowledged.pop(), "30 were sent, 29 acknowledged"),
        (lambda work, log: work.errors.append("timed out"), "error: timed out"),
        (lambda work, log: work.handed.pop(7), "1 records were never handed out: .*0, 7"),
        (lambda work, log: work.handed.append((0, 3, "another")), "1 records were handed out that"),
    ],
)
def test_an_injected_fault_is_found(change, sentence):
    work, log = perfect()
    change(work, log)
    assert [each for each in judge(work, log).wrong if re.search(sentence, each)]


def test_a_driver_that_failed_is_told_beside_the_records_it_sent():
    work, log = perfect()
    assert judge(work._replace(failures=["reads: over"]), log).wrong == ["error: reads: over"]


def test_what_a_client_may_do_is_counted():
    """Without idempotence a record may be there twice; any group may be handed one twice."""
    work, log = perfect(idempotent=False)
    log[0].append(log[0][-1])
    work.handed.append((0, 10, log[0][-1]))
    work.handed.append(work.handed[5])
    assert judge(work, log) == ([], 1, 1, 0)


def test_order_is_demanded_of_whom_promises_it():
    work, log = perfect(idempotent=False)
    values = log[1]
    values[3], values[4] = values[4], values[3]
    moved = {10: 4, 13: 3}
    acknowledged = [(n, p, moved.get(n, offset)) for n, p, offset in work.acknowledged]
    handed = [(p, offset, log[p][offset]) for p, offset, _ in work.handed]
    work = work._replace(acknowledged=acknowledged, handed=handed)
    assert judge(work, log).wrong == ["partition 1 is out of order"]
    free = work._replace(keeps_order=False)
    assert judge(free, log) == ([], 0, 0, 1)
    assert judge(free._replace(idempotent=True), log).wrong == ["partition 1 is out of order"]


def work_through(cluster, chosen, restart, summarize):
    """Every client works on, and loses nothing; what it tells meanwhile is its own affair."""
    rolled, skipped = run.run(cluster, chosen, restart)
    title = f"clients through {restart.__name__} of {len(cluster)} broker(s)"
    summarize(title, run.table(rolled))
    wrong = {name: each.verdict.wrong for name, each in rolled.items() if each.verdict.wrong}
    assert wrong == {}
    assert matrix.unexpected_skips(skipped) == {}
    assert set(rolled) | set(skipped) == {client.name for client in chosen}


@pytest.mark.clients
@pytest.mark.timeout(60 * MINUTES_MAX)
def test_clients_work_through_a_rolling_restart(tidelog_cluster_factory, summarize):
    work_through(tidelog_cluster_factory(brokers=3), clients.ROLLING, run.roll, summarize)


@pytest.mark.clients
@pytest.mark.timeout(60 * MINUTES_MAX)
def test_clients_go_on_after_no_broker_was_there(tidelog_cluster_factory, summarize):
    work_through(tidelog_cluster_factory(brokers=1), clients.PATIENT, run.stop_all, summarize)
