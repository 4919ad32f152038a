"""Rounds of faults under transactional load, against one broker and against three: no anomaly.

The long profile plays TIDELOG_TRANSACTION_ROUNDS (500). TIDELOG_NEMESIS_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import signal

import pytest

from tests.nemesis.test_nemesis import traces
from tests.nemesis.transactions.life import TransactionalLife
from tidelog.control import ControlError

LONG_ROUNDS = int(os.environ.get("TIDELOG_TRANSACTION_ROUNDS", "500"))
# The quick ones; each comes once.
KINDS = (
    "kill",
    "kill at a step",
    "kill at EndTxn",
    "past the time-out",
    "pause",
    "full disk",
    "answers lost",
    "requests late",
    "clock forward",
    "clock back",
    "slow disk",
    "nothing",
)
KINDS_OF_SEVERAL = (
    "kill",
    "kill at EndTxn",
    "past the time-out",
    "pause",
    "cut",
    "cut from metadata",
    "elections",
    "answers lost",
)


def play(directory, rounds, brokers, kinds=()):
    seed = int(os.environ.get("TIDELOG_NEMESIS_SEED", "0")) or random.SystemRandom().randrange(
        1, 2**32
    )
    with TransactionalLife(directory, seed, brokers) as life:
        try:
            found = life.play(rounds, kinds)
        except ControlError as error:
            raise AssertionError(f"seed {seed}: {error}\n{traces(directory)}") from error
    if found:
        life.history.write(directory / "history.jsonl")
    assert not found, "\n".join([f"seed {seed}, {directory}", *map(str, found)])
    assert sum(worker.committed for worker in life.workers) > 5 * rounds


@pytest.mark.timeout(900)
def test_no_anomaly_with_one_broker(tmp_path):
    play(tmp_path, len(KINDS), 1, KINDS)


@pytest.mark.timeout(900)
def test_no_anomaly_with_three_brokers(tmp_path):
    play(tmp_path, len(KINDS_OF_SEVERAL), 3, KINDS_OF_SEVERAL)


@pytest.mark.timeout(300)
def test_a_client_that_hangs_is_killed_and_counted(tmp_path):
    said: list[str] = []
    with TransactionalLife(tmp_path, 1, 1, said.append, hung_after_s=1) as life:
        life.start_load()
        life.wait_until_well({})
        (child,) = (each for each in life.workers if each.name == "child")
        before = child.hung
        child._processes[-1].send_signal(signal.SIGSTOP)
        life.wait_until_well({})
        if (
            child.hung == before
        ):  # what it had said before it was stopped was read after the wait began
            life.wait_until_well({})
        assert child.hung > before
        assert any(line.startswith("child hangs after the step") for line in said)


@pytest.mark.long
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("brokers", [1, 3])
def test_no_anomaly_in_many_rounds(tmp_path, brokers):
    play(tmp_path, LONG_ROUNDS // 2, brokers)
