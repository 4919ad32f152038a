"""Rounds of faults against brokers under load: nothing acknowledged is lost, doubled, reordered or torn.

`make test` plays one round of each load; `make test-slow` the quick faults, each once, and the long profile
TIDELOG_ROUNDS (200) rounds of all, or TIDELOG_TRANSACTION_ROUNDS (500). TIDELOG_NEMESIS_SEED repeats a run.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal

import pytest

from tests.broker.metadata.etcd.server import running_etcd
from tests.nemesis.life import Life
from tests.nemesis.plain import Plain
from tests.nemesis.transactions.load import Transactions
from tidelog.control import ControlError

# The quick ones; each comes once.
KINDS = (
    "kill",
    "kill all",
    "restart",
    "pause",
    "cut",
    "cut from metadata",
    "full disk",
    "clock forward",
    "clock back",
    "two at once",
)
# Two of etcd itself, the way to it, and what etcd must take part in to heal.
KINDS_OF_ETCD = ("etcd leader paused", "kill", "etcd restarted", "cut off from etcd alone", "pause")
KINDS_OF_ONE = (
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
LONG_ROUNDS = int(os.environ.get("TIDELOG_ROUNDS", "200"))
LONG_TRANSACTION_ROUNDS = int(os.environ.get("TIDELOG_TRANSACTION_ROUNDS", "500"))


def traces(directory):
    """Returns what the brokers have logged of unexpected errors."""
    lines = [
        line
        for log in directory.rglob("*.log")
        if log.parent.name in {"brokers", directory.name}
        for line in log.read_text(errors="replace").splitlines()
    ]
    return "\n".join(line for line in lines if not line.startswith("ts=") or "level=error" in line)


def play(directory, rounds, kinds=(), load=Plain, brokers=3, over_etcd=False):
    seed = int(os.environ.get("TIDELOG_NEMESIS_SEED", "0")) or random.SystemRandom().randrange(
        1, 2**32
    )
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(3)) if over_etcd else None
        life = stack.enter_context(Life(directory, seed, load, brokers, etcd=etcd))
        try:
            found = life.play(rounds, kinds)
        except ControlError as error:
            raise AssertionError(f"seed {seed}: {error}\n{traces(directory)}") from error
    if found:
        life.history.write(directory / "history.jsonl")
    assert not found, "\n".join([f"seed {seed}, {directory}", *map(str, found)])
    assert life.load.count > (5 if load is Transactions else 20) * rounds


def test_nothing_is_lost_doubled_or_reordered_in_one_round(tmp_path):
    play(tmp_path, 1, ["kill"])


def test_no_anomaly_in_one_round(tmp_path):
    play(tmp_path, 1, ["kill at EndTxn"], Transactions, 1)


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_reordered_in_ten_rounds(tmp_path):
    play(tmp_path, len(KINDS), KINDS)


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_reordered_while_etcd_fails(tmp_path):
    play(tmp_path, len(KINDS_OF_ETCD), KINDS_OF_ETCD, over_etcd=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_anomaly_with_one_broker(tmp_path):
    play(tmp_path, len(KINDS_OF_ONE), KINDS_OF_ONE, Transactions, 1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_anomaly_with_three_brokers(tmp_path):
    play(tmp_path, len(KINDS_OF_SEVERAL), KINDS_OF_SEVERAL, Transactions, 3)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_nothing_is_lost_doubled_or_reordered_in_many_rounds(tmp_path):
    play(tmp_path, LONG_ROUNDS)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_nothing_is_lost_doubled_or_reordered_in_many_rounds_over_etcd(tmp_path):
    play(tmp_path, LONG_ROUNDS // 2, over_etcd=True)


@pytest.mark.long
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("brokers", [1, 3])
def test_no_anomaly_in_many_rounds(tmp_path, brokers):
    play(tmp_path, LONG_TRANSACTION_ROUNDS // 2, (), Transactions, brokers)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_client_that_hangs_is_killed_and_counted(tmp_path):
    said: list[str] = []
    with Life(tmp_path, 1, Transactions, 1, said.append, hung_after_s=1) as life:
        life.start()
        life.wait_until_well()
        (child,) = (each for each in life.load.workers if each.name == "child")
        before = child.hung
        child.processes[-1].send_signal(signal.SIGSTOP)
        # What it had said before it was stopped may be read after the first wait has begun.
        life.wait_until_well()
        life.wait_until_well()
        assert child.hung > before
        assert any(line.startswith("child hangs after the step") for line in said)
