"""The contract of metadata stores under random schedules, which a model judges.

Each seed is one schedule: calls that overlap, lost answers, calls that arrive late, time that ends
leases, watches that lag behind compaction and, with processes, kill -9 in the middle of calls.
Members of etcd are killed and paused while clients call, compact, and lose answers.
`make test` runs a sample of the 5,000 seeds, another each time, and `make test-long` all of them.
That injected bugs are found is slow.
`python -m tests.broker.metadata.contract.run` prints figures.
"""

from __future__ import annotations

import pytest

from tests.broker.metadata.contract.injected import (
    ETCD,
    IN_PROCESSES,
    LAGGING_ETCD,
    MEMORY,
    SQLITE,
    TROUBLED_ETCD,
)
from tests.broker.metadata.contract.model import BrokenContract
from tests.broker.metadata.contract.run import run_all
from tests.broker.metadata.etcd.server import need_etcd
from tests.sampling import sampled

SEEDS = range(1, 5_001)
TOO_LATE_SEEDS = (25, 30)  # a watch begins too late, as in one schedule of twenty
TROUBLED_SEEDS = range(1, 201)  # members are killed and started: each takes seconds
WITHIN = {
    "memory": 200,
    "sqlite": 200,
    "processes": 1_000,
    "etcd": 200,
    "troubled-etcd": 200,
    "troubled-etcd-3": 200,
}
"""Seeds within which a mistake is found.

A kill -9 hits another moment each time, so processes have more, and so has etcd in trouble.
"""


@pytest.mark.parametrize(
    ("kind", "one_in"), [("memory", 50), ("sqlite", 100), ("processes", 200), ("etcd", 100)]
)
def test_every_answer_is_explained(kind, one_in):
    if kind == "etcd":
        need_etcd()
    counts = run_all(kind, [*sampled(SEEDS, one_in), *TOO_LATE_SEEDS])
    print(kind, dict(counts))
    assert counts["schedules"] >= len(SEEDS) // one_in
    # What happened nowhere was not tested.
    expected = {"overlapping", "lost: applied", "lost: never", "lost: late", "watched lists"}
    expected |= {"killed in a call", "paused"} if kind == "processes" else {"watches too late"}
    assert expected <= {name for name, count in counts.items() if count}


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMORY)
def test_a_mistake_in_memory_is_found(name):
    assert found_after("memory", name) <= WITHIN["memory"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SQLITE)
def test_a_mistake_in_sqlite_is_found(name):
    kind = "processes" if name in IN_PROCESSES else "sqlite"
    assert found_after(kind, name) <= WITHIN[kind]


@pytest.mark.slow
@pytest.mark.parametrize("name", ETCD)
def test_a_mistake_in_etcds_store_is_found(name):
    need_etcd()
    assert found_after("etcd", name) <= WITHIN["etcd"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["troubled-etcd", "troubled-etcd-3"])
def test_every_answer_is_explained_while_etcd_has_trouble(kind):
    need_etcd()
    counts = run_all(kind, sampled(TROUBLED_SEEDS, 25))
    print(kind, dict(counts))
    assert counts["schedules"] >= len(TROUBLED_SEEDS) // 25
    assert {"unknown", "kill", "answers lost", "pause", "compaction"} <= set(counts)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TROUBLED_ETCD)
def test_a_mistake_is_found_when_etcd_has_trouble(name):
    need_etcd()
    assert found_after("troubled-etcd", name) <= WITHIN["troubled-etcd"]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", LAGGING_ETCD)
def test_a_mistake_is_found_when_a_member_of_etcd_is_behind(name):
    need_etcd()
    assert found_after("troubled-etcd-3", name) <= WITHIN["troubled-etcd-3"]


def found_after(kind, name):
    """Returns the seed that finds a mistake; one that is too high if none does."""
    try:
        run_all(kind, range(1, WITHIN[kind] + 1), inject=name)
    except BrokenContract as error:
        print(str(error).splitlines()[0])
        return error.seed
    return WITHIN[kind] + 1
