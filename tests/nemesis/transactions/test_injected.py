"""The checker sees each mistake that is injected in a real broker, in a few rounds.

`make test-slow` injects a third of them, others in every run; `make test-long` injects all.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.injecting import injecting
from tests.nemesis.checker import Kind
from tests.nemesis.life import Life
from tests.nemesis.transactions.injected import BUGS
from tests.nemesis.transactions.load import Transactions
from tests.nemesis.transactions.raw import How, Interruption
from tests.sampling import sampled

_ATTEMPTS = 6
_INJECTED = "tests.nemesis.transactions.injected"
_WELL_WITHIN_S = 60
_DECIDE = Interruption("decide", How.STOPPED)


class Caught(NamedTuple):
    """What finds a mistake: a fault in each round, who is interrupted, and what is seen then."""

    kinds: set[Kind]  # one of these
    fault: str = "nothing"
    interruptions: dict[str, Interruption] | None = None


CAUGHT = {
    "the marker is written before the record": Caught({Kind.TORN}, "kill at EndTxn"),
    "the last stable offset is past an open transaction": Caught({Kind.PRECOMMITTED}),
    "the list of aborted transactions is one short": Caught({Kind.ABORTED_READ}),
    "the list of aborted transactions is one long": Caught({Kind.POLL_SKIP}),
    "pending offsets are shown": Caught(
        {Kind.PENDING_OFFSET}, interruptions={"team-1": _DECIDE, "team-2": _DECIDE}
    ),
    "the epoch is not bumped with a time-out": Caught({Kind.TORN, Kind.LOST}, "past the time-out"),
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sampled(list(BUGS), 3))
def test_what_is_injected_is_found(tmp_path, monkeypatch, name):
    wanted = CAUGHT[name]
    monkeypatch.setattr(Transactions, "planned", wanted.interruptions or {})
    seen: set[str] = set()
    for attempt in range(1, _ATTEMPTS + 1):  # a mistake has to meet the moment in which it matters
        directory = tmp_path / str(attempt)
        with (
            injecting(_INJECTED, name),
            Life(directory, attempt, Transactions, 1, well_within_s=_WELL_WITHIN_S) as life,
        ):
            found = life.play(2, [wanted.fault])
        seen |= {problem.kind for problem in found}
        if seen & wanted.kinds:
            return
    raise AssertionError(f"only {seen}")


def test_each_mistake_is_expected_to_be_seen():
    assert CAUGHT.keys() == BUGS.keys()
