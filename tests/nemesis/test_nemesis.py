"""Rounds of faults against three brokers under load: nothing acknowledged is lost, doubled or reordered.

The long profile plays TIDELOG_ROUNDS (200) rounds of all faults. TIDELOG_NEMESIS_SEED repeats a run.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.broker.metadata.etcd.server import running_etcd
from tests.nemesis.life import Life
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
LONG_ROUNDS = int(os.environ.get("TIDELOG_ROUNDS", "200"))


def traces(directory):
    """Returns what the brokers have logged of unexpected errors."""
    lines = [
        line
        for log in directory.rglob("*.log")
        if log.parent.name in {"brokers", directory.name}
        for line in log.read_text(errors="replace").splitlines()
    ]
    return "\n".join(line for line in lines if not line.startswith("ts=") or "level=error" in line)


# Two of etcd itself, the way to it, and what etcd must take part in to heal.
KINDS_OF_ETCD = ("etcd leader paused", "kill", "etcd restarted", "cut off from etcd alone", "pause")


def play(directory, rounds, kinds=(), etcd=None):
    seed = int(os.environ.get("TIDELOG_NEMESIS_SEED", "0")) or random.SystemRandom().randrange(
        1, 2**32
    )
    with Life(directory, seed, etcd=etcd) as life:
        try:
            found = life.play(rounds, kinds)
        except ControlError as error:
            raise AssertionError(f"seed {seed}: {error}\n{traces(directory)}") from error
    if found:
        life.history.write(directory / "history.jsonl")
    assert not found, "\n".join([f"seed {seed}, {directory}", *map(str, found)])
    assert sum(life.history.acknowledged.values()) > 20 * rounds


def test_nothing_is_lost_doubled_or_reordered_in_ten_rounds(tmp_path):
    play(tmp_path, len(KINDS), KINDS)


def test_nothing_is_lost_doubled_or_reordered_while_etcd_fails(tmp_path):
    with running_etcd(3) as etcd:
        play(tmp_path, len(KINDS_OF_ETCD), KINDS_OF_ETCD, etcd)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_nothing_is_lost_doubled_or_reordered_in_many_rounds(tmp_path):
    play(tmp_path, LONG_ROUNDS)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_nothing_is_lost_doubled_or_reordered_in_many_rounds_over_etcd(tmp_path):
    with running_etcd(3) as etcd:
        play(tmp_path, LONG_ROUNDS // 2, etcd=etcd)
