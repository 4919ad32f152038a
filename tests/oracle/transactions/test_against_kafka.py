"""The same transactions with Apache Kafka 3.9.1 and with tidelog: the same codes and offsets.

A script of requests is played to each broker on its own, and what it says is compared line by line.
Producer ids and epochs are the broker's own; only their differences within a script are compared. After
requests that Kafka completes later (it writes markers when EndTxn is answered) each is asked again
until it is ready, as clients do.
"""

from __future__ import annotations

import itertools
import time

import pytest

from tests.broker.transactions.requests import NONE, Given, Transactional, committed, offsets_of
from tests.broker.transactions.test_offsets import member_of
from tests.oracle import wire
from tests.oracle.brokers import make_topics

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

# Loading, not available, not coordinator, not enough replicas, concurrent transactions. With the last but
# one Kafka answers Produce while it asks the coordinator of a transaction that ends.
IN_PROGRESS = (14, 15, 16, 19, 51)
TOPICS = {"data": 3, "other": 1}
DEADLINE_S = 60


class Script:
    """Plays the calls, and notes what each answered."""

    def __init__(self, bootstrap: str) -> None:
        self.connection = wire.Connection(bootstrap, timeout_s=DEADLINE_S)
        self.said: list[tuple[str, object]] = []
        self._ids = itertools.count()

    def note(self, what, call, *arguments, **named):
        """Calls until the answer is none that asks to wait."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = call(*arguments, **named)
            codes = answer if isinstance(answer, list) else [answer]
            if not any(code in IN_PROGRESS for code in codes if isinstance(code, int)):
                break
            assert time.monotonic() < deadline, (what, answer)
            time.sleep(0.05)
        # Kafka answers for partitions in an order of its own.
        self.said.append((what, sorted(answer) if isinstance(answer, list) else answer))
        return answer

    def producer(self, name=None, **named):
        made = Transactional(self.connection, name or f"id-{next(self._ids)}")
        assert self.note(f"init {made.id}", made.init, **named) == NONE
        return made

    def offsets(self, group, *partitions, stable=True):
        """The committed offsets, once no transaction is in the way."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = offsets_of(self.connection, group, "data", *partitions, stable=stable)
            if found and not (stable and -88 in found.values()):
                break
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        self.said.append((f"offsets of {group}", found))


def plain_commit(connection, group, offset, partition=0, **who):
    """OffsetCommit without a transaction; its code."""
    named = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None} | who
    partitions = [
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
    ]
    topics = [{"name": "data", "partitions": partitions}]
    answer = connection.ask("OffsetCommit", 7, group_id=group, topics=topics, **named)
    return answer["topics"][0]["partitions"][0]["error_code"]


def records(script):
    """What is committed, aborted, fenced and refused of records."""
    for version in range(4):
        one = script.producer()
        script.note("add", one.add, "data", 0, version=version)
        script.note("send", one.send, "data", f"{version} committed")
        script.note("commit", one.end, commit=True, version=version)
        script.note("add", one.add, "data", 0, 1, version=version)
        script.note("send", one.send, "data", f"{version} aborted")
        script.note("abort", one.end, commit=False, version=version)
        script.note("abort again", one.end, commit=False, version=version)
        script.note("commit what was aborted", one.end, commit=True, version=version)
    one = script.producer()
    script.note("nothing to commit", one.end, commit=True)
    script.note("unknown partition", one.add, "data", 0, 9)
    script.note("not added", one.send, "data", "x")
    script.note("add", one.add, "data", 0)
    script.note("send", one.send, "data", "fenced")
    heir = Transactional(script.connection, one.id)
    script.note("the heir", heir.init)
    script.note("epochs", lambda: heir.given.epoch - one.given.epoch)
    for version in (1, 3):
        script.note("fenced add", one.add, "data", 0, version=version)
        script.note("fenced end", one.end, commit=True, version=version)
    script.note("fenced send", one.send, "data", "y")
    stranger = Transactional(script.connection, "nobody")
    stranger.given = heir.given
    script.note("no such id", stranger.add, "data", 0)
    stranger = Transactional(script.connection, heir.id)
    stranger.given = Given(heir.given.producer_id + 1000, 0)
    script.note("another producer", stranger.add, "data", 0)
    script.note("another producer ends", stranger.end, commit=True)
    script.note("verify", heir.verified, "data", 0)
    script.note("add", heir.add, "data", 0)
    script.note("verify", heir.verified, "data", 0, 1)
    script.note("send", heir.send, "data", "by the heir")
    script.note("commit", heir.end, commit=True)
    deadline = time.monotonic() + DEADLINE_S
    while (seen := committed(script.connection, "data"))[-1:] != ["by the heir"]:
        assert time.monotonic() < deadline, (seen, script.said)
        time.sleep(0.05)
    script.said.append(("records", committed(script.connection, "data")))
    for timeout_ms in (0, -1, 900_000, 900_001):
        made = Transactional(script.connection, f"timeout {timeout_ms}")
        script.note(f"timeout {timeout_ms}", made.init, timeout_ms=timeout_ms)


def offsets(script):
    """Offsets in transactions: pending, committed, dropped, refused."""
    connection = script.connection
    for version in range(5):
        for commit in (True, False):
            group, one = f"g-{version}-{commit}", script.producer()
            script.note("plain", plain_commit, connection, group, 3)
            script.note("add group", one.add_group, group, min(version, 3))
            sent = {0: 10, 1: 20}
            script.note("send", one.commit_offsets, group, "data", sent, version=version)
            for asked, stable in itertools.product((7, 8), (True, False)):
                wanted = {"stable": stable, "version": asked}
                told = offsets_of(connection, group, "data", 0, 1, 2, **wanted)
                script.said.append((f"pending {wanted}", told))
                told = offsets_of(connection, group, None, **wanted)
                script.said.append((f"all pending {wanted}", told))
            script.note("end", one.end, commit=commit)
            script.offsets(group, 0, 1, 2)
    group, one = "later", script.producer()
    script.note("add group", one.add_group, group)
    script.note("send", one.commit_offsets, group, "data", {0: 10, 1: 11})
    script.note("plain", plain_commit, connection, group, 100)
    script.note("send", one.commit_offsets, group, "data", {1: 12})
    script.note("commit", one.end, commit=True)
    script.offsets(group, 0, 1)
    refused(script)
    of_a_member(script)
    deleted(script)


def refused(script):
    """Who may not commit with a transaction, and what."""
    group, one = "refused", script.producer()
    script.note("add", one.add, "data", 0)
    for version in (0, 3, 4):
        send = one.commit_offsets
        script.note(f"not added {version}", send, group, "data", {0: 1}, version=version)
    script.note("add group", one.add_group, group)
    script.note("some are bad", one.commit_offsets, group, "data", {0: 1, 9: 1})
    script.note("no such topic", one.commit_offsets, group, "nowhere", {0: 1})
    long = "m" * 4_097
    script.note("long metadata", one.commit_offsets, group, "data", {1: 1}, metadata=long)
    script.note("no group", one.commit_offsets, "", "data", {0: 1})
    script.note("no group to add", one.add_group, "")
    script.note("unknown member", one.commit_offsets, group, "data", {0: 1}, member="m")
    stranger = Transactional(script.connection, "nobody at all")
    stranger.given = one.given
    script.note("no such id", stranger.commit_offsets, group, "data", {2: 1})
    script.note("no such id adds", stranger.add_group, group)
    script.note("commit", one.end, commit=True)
    script.offsets(group, 0, 1)
    heir = Transactional(script.connection, one.id)
    script.note("the heir", heir.init)
    script.note("fenced", one.commit_offsets, group, "data", {0: 2})
    script.note("fenced adds", one.add_group, group)
    script.note("fenced adds v1", one.add_group, group, 1)


def of_a_member(script):
    """Fenced by member and generation (KIP-447), and not if no member is named."""
    group, one, connection = "members", script.producer(), script.connection
    member, generation = member_of(connection, group, instance="i")
    script.note("add group", one.add_group, group)
    for who in (
        {"member": member, "generation": generation},
        {"member": member, "generation": generation, "instance": "i"},
        {},
        {"member": member, "generation": generation + 1},
        {"member": member, "generation": -1},
        {"member": "nobody", "generation": generation},
        {"member": "nobody", "generation": generation, "instance": "i"},
        {"member": member, "generation": generation, "instance": "j"},
        {"generation": generation},
    ):
        what = "a member: " + ", ".join(sorted(who)) + str(who.get("generation", 0) - generation)
        script.note(what, one.commit_offsets, group, "data", {0: 1}, **who)
    script.note("commit", one.end, commit=True)
    script.offsets(group, 0)


def deleted(script):
    """What is deleted while it is pending."""
    group, one = "deleted", script.producer()
    script.note("plain", plain_commit, script.connection, group, 5, 1)
    script.note("add group", one.add_group, group)
    script.note("send", one.commit_offsets, group, "data", {1: 6})
    partitions = [{"partition_index": 1}]
    topics = [{"name": "data", "partitions": partitions}]
    ask = script.connection.ask
    answer = ask("OffsetDelete", 0, group_id=group, topics=topics)
    script.said.append(("delete", answer["topics"][0]["partitions"][0]["error_code"]))
    script.note("send", one.commit_offsets, group, "data", {2: 7})
    script.note("commit", one.end, commit=True)
    script.offsets(group, 1, 2)


def prepare(bootstrap):
    with wire.Connection(bootstrap, timeout_s=DEADLINE_S) as connection:
        make_topics(connection, TOPICS)


@pytest.fixture(scope="module")
def both(kafka_3, ours):
    for each in (kafka_3, ours):
        prepare(each.bootstrap)
    return kafka_3.bootstrap, ours.bootstrap


def test_the_same_answers(both):
    said = []
    for bootstrap in both:
        script = Script(bootstrap)
        with script.connection:
            # A Kafka 3.9.1 that has just begun was seen to keep the first aborted transaction open, so
            # that nothing after it was read. It was not seen where the transactions of groups came first.
            offsets(script)
            records(script)
        said.append(script.said)
    different = [
        f"{number}: Kafka {theirs}, tidelog {ours}"
        for number, (theirs, ours) in enumerate(zip(*said, strict=True))
        if theirs != ours
    ]
    assert not different, "\n".join(different)
