"""Groups of real clients under fault: members killed and paused, the broker killed, again and again.

No acknowledged commit is lost, no partition is owned twice in a generation, and whoever is left reads all.
TIDELOG_FAULT_ROUNDS says how often.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.asking import create, produce, values
from tests.broker.members import all_fetched
from tests.broker.subject import eventually
from tests.oracle import recordset

PARTITIONS, RECORDS = 6, 60
ROUNDS = int(os.environ.get("TIDELOG_FAULT_ROUNDS", "2"))
MEMBER = Path(__file__).with_name("group_member.py")
SETTINGS = {"group.min.session.timeout.ms": "500"}


class Process:
    """One member's process and what it has said."""

    def __init__(self, broker, directory, number):
        self.output = directory / f"member-{number}.txt"
        with self.output.open("w") as out, self.output.with_suffix(".log").open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(MEMBER), broker.bootstrap, "g", "t"], stdout=out, stderr=err
            )

    def said(self):
        lines = self.output.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def works(self):
        return any("committed" in each for each in self.said())

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        self.process.kill()
        self.process.wait()


def acknowledged(members):
    """The largest acknowledged commit of each partition."""
    found = {}
    for member in members:
        for each in member.said():
            for partition, offset in each.get("committed", {}).items():
                found[int(partition)] = max(found.get(int(partition), 0), offset)
    return found


def check_owners(members):
    """No partition of two members in one generation."""
    owners = {}
    for number, member in enumerate(members):
        for each in member.said():
            for partition in each.get("partitions", ()):
                owner = owners.setdefault((each["generation"], partition), number)
                assert owner == number, f"{partition} is {owner}'s and {number}'s: {each}"
    return owners


class Doctored(list):
    """What members are said to have said."""

    def said(self):
        return self


def test_two_owners_are_noticed():
    one, two = ({"generation": 3, "partitions": parts} for parts in ([0, 1], [1, 2]))
    later = {"generation": 4, "partitions": [0, 1, 2]}
    assert len(check_owners([Doctored([one]), Doctored([later])])) == 5
    with pytest.raises(AssertionError, match=r"1 is 0's and 1's"):
        check_owners([Doctored([one]), Doctored([two])])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_members_and_broker_die(start, tmp_path):
    broker = start(SETTINGS)
    members = []
    with broker.connect() as connection:
        create(connection, "t", partitions=PARTITIONS)

    def feed():
        with broker.connect() as connection:
            for partition in range(PARTITIONS):
                batch = recordset.batch(values(*(["v"] * RECORDS)))
                produce(connection, "t", batch, partition=partition)

    def done(count):
        with broker.connect() as connection:
            found = all_fetched(connection, "g")
        return found == {("t", partition): count for partition in range(PARTITIONS)}

    def add():
        members.append(Process(broker, tmp_path, len(members)))
        return members[-1]

    try:
        feed()
        living = [add(), add()]
        for number in range(1, ROUNDS + 1):
            eventually(lambda: any(member.works for member in living), 100, "somebody commits")
            if number % 2:
                living.pop(0).end()
                living.append(add())
                living[0].signal(signal.SIGSTOP)  # beyond its session: the others take over
                feed()
                eventually(lambda n=number: done((n + 1) * RECORDS), 100, "all is read without it")
                living[0].signal(signal.SIGCONT)
            else:
                feed()
                before = acknowledged(members)
                assert before
                broker.kill()
                broker.restart()
                with broker.connect() as connection:
                    left = all_fetched(connection, "g")
                for partition, offset in before.items():
                    assert left[("t", partition)] >= offset, "an acknowledged commit is gone"
                eventually(lambda n=number: done((n + 1) * RECORDS), 100, "all is read after it")
        owners = check_owners(members)
        assert len({generation for generation, _ in owners}) > 1
        assert acknowledged(members)
    finally:
        for member in members:
            member.end()
