"""The judge of what came once, judged: each injected fault is named. It asks no broker."""

from __future__ import annotations

import pytest

from tests.tools.exactly_once.counting import ABORTED, parsed, problems

WRITTEN = [1, 3, 5, 7]


def test_all_of_it_once_passes_with_sums_and_without():
    assert problems(WRITTEN, parsed(["1", "3", "5", "7"])) == []
    assert problems(WRITTEN, parsed(["1 1", "3 4", "5 9", "7 16"])) == []


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["1", "3", "3", "5", "7"], "twice: [3], 1 in all"),
        (["1", "5", "7"], "missing: [3], 1 in all"),
        (["1", "3", "5", "7", "9"], "never written: [9]"),
        (["1", "5", "3", "7"], "not in order"),
        (["1 1", "3 4", "5 12", "7 19"], "at 5 the sum is 12, not 9"),
    ],
)
def test_what_is_not_exactly_once_is_named(texts, words):
    assert problems(WRITTEN, parsed(texts)) == [words]


def test_an_aborted_record_is_no_number():
    with pytest.raises(ValueError, match="not"):
        parsed(["1", ABORTED])
