"""Answers that are kept for another follower: once, within a limit, and only for the same question."""

from __future__ import annotations

import pytest

from tidelog.broker.partitions.leading.shared_reads import MOST_BYTES, SharedReads
from tidelog.broker.partitions.replication_state import ReadForFollower

ASKED, FACTS = (5, 100), ("ends", 1)


def _answer(size, *, converted=0):
    return ReadForFollower(object(), size, converted)


def test_the_next_follower_gets_the_same_answer_once():
    reads, answer = SharedReads(), _answer(10)
    reads.keep("a", ASKED, FACTS, answer)
    assert reads.take("b", ASKED, FACTS) is None
    assert reads.take("a", ASKED, FACTS) is answer
    assert reads.take("a", ASKED, FACTS) is None
    assert reads.size == 0


@pytest.mark.parametrize(("asked", "facts"), [((6, 100), FACTS), (ASKED, ("ends", 2))])
def test_another_question_or_another_state_gets_nothing(asked, facts):
    reads = SharedReads()
    reads.keep("a", ASKED, FACTS, _answer(10))
    assert reads.take("a", asked, facts) is None
    assert reads.size == 0


@pytest.mark.parametrize("answer", [_answer(0), _answer(MOST_BYTES + 1), _answer(9, converted=1)])
def test_what_is_not_worth_it_is_not_kept(answer):
    reads = SharedReads()
    reads.keep("a", ASKED, FACTS, answer)
    assert reads.take("a", ASKED, FACTS) is None


def test_the_oldest_answers_give_way():
    reads, half = SharedReads(), MOST_BYTES // 2
    for led in "abc":
        reads.keep(led, ASKED, FACTS, _answer(half))
        assert reads.size <= MOST_BYTES
    assert reads.take("a", ASKED, FACTS) is None
    assert reads.take("b", ASKED, FACTS) is not None
    reads.keep("c", ASKED, FACTS, last := _answer(1))
    assert reads.size == 1
    assert reads.take("c", ASKED, FACTS) is last


def test_a_partition_that_is_not_led_any_more_keeps_nothing():
    reads = SharedReads()
    reads.keep("a", ASKED, FACTS, _answer(10))
    reads.forget("a")
    reads.forget("a")
    assert reads.size == 0
