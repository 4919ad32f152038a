"""Replicas of a partition with clocks that differ, against a model (see README.md).

TIDELOG_REPLICA_RUNS=n says how many lives are tried (else: every tenth of 300, tests/sampling.py),
TIDELOG_REPLICA_SEED=n replays from one on.
"""

from __future__ import annotations

import os
import shutil

import pytest

from tests.sampling import sampled
from tests.storage.replicas.cluster import Cluster
from tests.storage.replicas.planted import PLANTED
from tidelog.storage import files

RUNS = int(os.environ.get("TIDELOG_REPLICA_RUNS", "300"))
FIRST = int(os.environ.get("TIDELOG_REPLICA_SEED", "0"))
ONE_IN = 1 if os.environ.keys() & {"TIDELOG_REPLICA_RUNS", "TIDELOG_REPLICA_SEED"} else 10
PARTS = 4
MOST_LIVES_FOR_A_MISTAKE = 200
IN_EVERY_RUN = {"epochs do not travel", "a new leader stamps by its clock alone"}
# Lives that catch what most do not, tried first; a change of storage or of a life may move them.
CAUGHT_BY = {
    "a follower is sent what is not flushed": 11,
    "a newer mark lowers nothing": 16,
    "batches without append times are kept": 15,
    "corrections do not travel": 16,
    "followers retain by their own clocks": 10,
    "the last append time may always go down": 20,
    "the mark does not travel": 16,
}


def live(path, seed):
    """Live one life; say with which seed it went wrong."""
    before, cluster = files.use(files.System()), None
    try:
        cluster = Cluster(path, seed)
        cluster.live()
    except Exception as error:
        said = [] if cluster is None else cluster.said[-6:]
        raise AssertionError(f"TIDELOG_REPLICA_SEED={seed} {said}: {error!r}") from error
    finally:
        if cluster is not None:
            cluster.close()
        files.use(before)
        shutil.rmtree(path, ignore_errors=True)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_replicas_are_what_their_models_say_and_agree(tmp_path, part):
    for seed in sampled(range(FIRST, FIRST + RUNS), ONE_IN)[part::PARTS]:
        live(tmp_path / "life", seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [206, 618, 1_116, 1_827, 1_913, 2_131, 4_144, 5_723, 8_101, 9_771])
def test_lives_that_once_went_wrong(tmp_path, seed):
    live(tmp_path / "life", seed)


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(name, marks=() if name in IN_EVERY_RUN else pytest.mark.slow)
        for name in PLANTED
    ],
)
def test_a_planted_mistake_is_caught(tmp_path, monkeypatch, mistake):
    monkeypatch.setattr(*PLANTED[mistake])
    for seed in (CAUGHT_BY.get(mistake, 1), *range(MOST_LIVES_FOR_A_MISTAKE)):
        try:
            live(tmp_path / "life", seed)
        except AssertionError:
            return
    pytest.fail("nobody noticed", pytrace=False)
