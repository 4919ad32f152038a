"""A log that leads, follows, is truncated, deleted, damaged and crashes, against a model (see README.md).

TIDELOG_LOG_MODEL_RUNS=n says how many runs are tried (else: every sixth of 600, tests/sampling.py),
TIDELOG_LOG_MODEL_SEED=n replays from one on.
"""

from __future__ import annotations

import os
import shutil

import pytest

from tests.sampling import sampled
from tests.storage.conftest import kill
from tests.storage.log_model import injected, injected_syncs, injected_times
from tests.storage.log_model.life import Life
from tidelog.storage import files
from tidelog.storage.log.producers import recovered_producers
from tidelog.storage.segment import log_times

RUNS = int(os.environ.get("TIDELOG_LOG_MODEL_RUNS", "600"))
FIRST = int(os.environ.get("TIDELOG_LOG_MODEL_SEED", "0"))
ONE_IN = 1 if os.environ.keys() & {"TIDELOG_LOG_MODEL_RUNS", "TIDELOG_LOG_MODEL_SEED"} else 6
PARTS = 10
MOST_LIVES_FOR_A_BUG = 300
BUGS = injected.BUGS | injected_times.BUGS | injected_syncs.BUGS
IN_EVERY_RUN = {"append times are not cut", "segments behind the cut stay", "append times go back"}
# Runs that catch what most do not, tried first; a change of storage or of a run may move them.
CAUGHT_BY = {
    "the offset index is not cut": 62,
    "the checkpoint's recovery point is believed": 62,
    "recovery allows gaps anywhere": 124,
    "only one of two indexes is made anew": 94,
    "only whole segments have a largest event time": 105,
    "headers are believed": 74,
    "a power loss is not noticed": 62,
    "-1 is a stamp": 96,
    "what has no event time holds others back": 88,
    "counted entries of an index are believed": 65,
    "what came during a sync is acknowledged": 120,
    "the recovery point is ahead of the sync": 44,
}


def live(path, seed):
    """Live one run; say with which seed it went wrong."""
    before, life = files.use(files.System()), None
    try:
        with pytest.MonkeyPatch.context() as patch:
            if seed % 2:  # what a log remembers of its end is less than it holds
                patch.setattr(log_times, "_REMEMBER_BYTES", 500)
                patch.setattr(recovered_producers, "_CUT_BYTES", (200, 1000, 100_000))
            life = Life(path, seed)
            life.live()
    except Exception as error:
        said = [] if life is None else life.said[-4:]
        raise AssertionError(f"TIDELOG_LOG_MODEL_SEED={seed} {said}: {error!r}") from error
    finally:
        if life is not None and life.store is not None:
            kill(life.store)
        files.use(before)
        shutil.rmtree(path, ignore_errors=True)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_log_is_what_its_model_says(tmp_path, part):
    for seed in sampled(range(FIRST, FIRST + RUNS), ONE_IN)[part::PARTS]:
        live(tmp_path / "life", seed)


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=() if bug in IN_EVERY_RUN else pytest.mark.slow) for bug in BUGS],
)
def test_an_injected_bug_is_caught(tmp_path, monkeypatch, bug):
    monkeypatch.setattr(*BUGS[bug])
    for seed in (CAUGHT_BY.get(bug, 0), *range(MOST_LIVES_FOR_A_BUG)):
        try:
            live(tmp_path / "life", seed)
        except AssertionError as error:
            if "positional argument" in str(error):
                raise  # the inject does not fit what it replaces
            return
    pytest.fail("nobody noticed", pytrace=False)
