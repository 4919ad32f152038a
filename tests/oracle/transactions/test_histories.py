"""The same history of transactions with Apache Kafka and tidelog: served bytes, aborted lists and files.

With 3.9.1 it has the requests of transaction.version 0 and small segments, with 4.1.1 those of version 2.
After each step the high watermark and the last stable offset are compared; then every Fetch that
matters; then `.txnindex` and `.snapshot` of every segment.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from typing import NamedTuple

import pytest

from tests.oracle import wire
from tests.oracle.transactions.histories import COMMITTED, UNCOMMITTED, History, Served

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

EVERY_CASE = os.environ.get("TIDELOG_EVERY_CASE") == "1"
SAMPLED = 250
VERSIONS = (4, 5, 7, 8, 11, 12, 13, 15, 17)
SIZES = (1, 500, 5_000, 1 << 20)
EQUAL, SEVERAL, ESTIMATED = "equal", "more than a segment", "an estimate of what is aborted"
SEEDS = {"3.9.1": (51, 52), "4.1.1": (53,)}
SETTINGS = {
    # Small segments, which 4.x refuses.
    "3.9.1": {"segment.bytes": "4000", "index.interval.bytes": "500"},
    "4.1.1": {"segment.bytes": str(1 << 20)},
}


class Pair(NamedTuple):
    """A history as Kafka and as tidelog have it, and their log directories."""

    theirs: History
    mine: History
    directories: tuple


@pytest.fixture(scope="module", params=SEEDS)
def pairs(request, kafka_3, kafka_4, ours):
    kafka = kafka_4 if request.param == "4.1.1" else kafka_3
    level = 2 if request.param == "4.1.1" else 0
    now_ms = time.time_ns() // 1_000_000
    with wire.Connection(kafka.bootstrap) as one, wire.Connection(ours.bootstrap) as other:
        found = []
        for seed in SEEDS[request.param]:
            both = [
                History(connection, seed, level, now_ms, SETTINGS[request.param])
                for connection in (one, other)
            ]
            for each in both:
                each.play()
            found.append(Pair(*both, (kafka.log_dir, ours.log_dir)))
        yield found


def judge(offset: int, theirs: Served, mine: Served) -> str | None:
    """Why an answer is right, None if it is not.

    Kafka serves one segment at a time, and tells what was aborted up to the next entry of an index.
    """
    if theirs == mine:
        return EQUAL
    theirs_end, mine_end = (end_of(offset, each.batches) for each in (theirs, mine))
    alike = (theirs[:2], of_these(theirs, theirs_end)) == (mine[:2], of_these(mine, theirs_end))
    same = mine.batches[: len(theirs.batches)] == theirs.batches and theirs_end <= mine_end
    exact = of_these(mine, mine_end) == mine.aborted
    if not (alike and same and exact) or bool(theirs.batches) != bool(mine.batches):
        return None
    return SEVERAL if len(mine.batches) > len(theirs.batches) else ESTIMATED


def end_of(offset, batches):
    """The offset behind the last batch that is served."""
    return batches[-1]["offset"] + batches[-1]["last_offset_delta"] + 1 if batches else offset


def of_these(served, end):
    """What is told of transactions that begin before an offset."""
    if served.aborted is None:
        return None
    return [one for one in served.aborted if one[1] < end]


def asked(pair):
    """The requests: every offset, version, isolation and size; a part of them that the seed picks."""
    offsets = range(pair.mine.ends[-1][0] + 1)
    every = list(itertools.product(offsets, VERSIONS, (UNCOMMITTED, COMMITTED), SIZES))
    if EVERY_CASE:
        return every
    return random.Random(os.environ["TIDELOG_FUZZ_SEED"]).sample(every, SAMPLED)


def test_the_ends_after_each_step(pairs):
    for pair in pairs:
        assert pair.mine.ends == pair.theirs.ends
        assert len({high - stable for high, stable in pair.mine.ends}) > 5


def test_what_is_served(pairs, summarize):
    verdicts, wrong, told = Counter(), [], 0
    for pair in pairs:
        for offset, *wanted in asked(pair):
            theirs, mine = (each.served(offset, *wanted) for each in pair[:2])
            verdict = judge(offset, theirs, mine)
            verdicts[verdict] += 1
            told += bool(mine.aborted)
            if verdict is None:
                wrong.append((pair.mine.topic, offset, wanted, theirs[:3], mine[:3]))
    summarize("histories of transactions, what Fetch serves", str(dict(verdicts)))
    assert not wrong, "\n".join(map(str, wrong[:20]))
    assert verdicts[EQUAL] > SAMPLED / 10
    assert told > SAMPLED / 20


def test_the_files(pairs):
    for pair in pairs:
        theirs, mine = (
            each.aborted_in(directory)
            for each, directory in zip(pair[:2], pair.directories, strict=True)
        )
        assert mine == theirs
        assert sum(map(len, mine.values())) > 3
        theirs, mine = (
            each.producers_in(directory)
            for each, directory in zip(pair[:2], pair.directories, strict=True)
        )
        assert mine == theirs
        assert mine


def test_an_injected_difference_is_caught(pairs):
    for pair in pairs:
        high, stable = pair.mine.ends[-1]
        right = pair.mine.served(0, 12, COMMITTED, 1 << 30)
        aborted = right.aborted
        assert judge(0, right, right) == EQUAL
        assert len(aborted) > 3
        for wrong in (
            right._replace(aborted=aborted[1:]),
            right._replace(aborted=aborted[:-1]),
            right._replace(aborted=[*aborted, (0, stable)]),
            right._replace(aborted=None),
            right._replace(last_stable_offset=stable + 1),
            right._replace(high_watermark=high + 1),
            right._replace(batches=right.batches[1:]),
            right._replace(batches=[]),
        ):
            assert judge(0, right, wrong) is None
