"""The contract of metadata stores under random schedules, which a model judges.

Each seed is one schedule: calls that overlap, lost answers, calls that arrive late, time that ends
leases, watches that lag behind compaction and, with processes, kill -9 in the middle of calls.
`make test` runs a sample of the 5,000 seeds, another each time, and `make test-long` all of them.
`python -m tests.broker.metadata.contract.run` prints figures.
"""

from __future__ import annotations

import pytest

from tests.broker.metadata.contract.model import BrokenContract
from tests.broker.metadata.contract.planted import IN_PROCESSES, MEMORY, SQLITE
from tests.broker.metadata.contract.run import run_all
from tests.sampling import sampled

SEEDS = range(1, 5_001)
WITHIN = {"memory": 200, "sqlite": 200, "processes": 1_000}
"""Seeds within which a mistake is found. A kill -9 hits another moment each time, so processes have more."""


@pytest.mark.parametrize(("kind", "one_in"), [("memory", 25), ("sqlite", 100), ("processes", 200)])
def test_every_answer_is_explained(kind, one_in):
    counts = run_all(kind, sampled(SEEDS, one_in))
    print(kind, dict(counts))
    assert counts["schedules"] >= len(SEEDS) // one_in
    # What happened nowhere was not tested.
    expected = {"overlapping", "lost: applied", "lost: never", "lost: late", "watched lists"}
    expected |= {"killed in a call", "paused"} if kind == "processes" else {"watches too late"}
    assert expected <= {name for name, count in counts.items() if count}


@pytest.mark.parametrize("name", MEMORY)
def test_a_mistake_in_memory_is_found(name):
    assert found_after("memory", name) <= WITHIN["memory"]


@pytest.mark.parametrize("name", SQLITE)
def test_a_mistake_in_sqlite_is_found(name):
    kind = "processes" if name in IN_PROCESSES else "sqlite"
    assert found_after(kind, name) <= WITHIN[kind]


def found_after(kind, name):
    """How many seeds it takes to find a mistake."""
    try:
        run_all(kind, range(1, WITHIN[kind] + 1), plant=name)
    except BrokenContract as error:
        print(str(error).splitlines()[0])
        return error.seed
    return WITHIN[kind] + 1
