"""What a run leaves out, another share in every run.

- Of long lists of cases `make test` tries a share, and `make test-long` all (TIDELOG_EVERY_CASE=1).
  TIDELOG_FUZZ_SEED repeats a run's choice.
- Of other lists it tries every so many-th, always the same, and the rest is slow.
- Of the slow and the heavy tests a run with TIDELOG_SHARE=2, as in CI, has every second. TIDELOG_SHARE_SEED
  repeats the choice.

pytest prints both seeds.
"""

from __future__ import annotations

import os
import random
import zlib
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _pytest.mark import ParameterSet

Case = TypeVar("Case")

EVERY_CASE = os.environ.get("TIDELOG_EVERY_CASE") == "1"
SHARE = int(os.environ.get("TIDELOG_SHARE", "1"))


def is_shared(name: str) -> bool:
    """Whether a run that has one of SHARE slow tests has those of this name."""
    seed = os.environ.get("TIDELOG_SHARE_SEED", "0")
    return zlib.crc32(f"{seed} {name}".encode()) % SHARE == 0


def sampled(cases: Sequence[Case], one_in: int) -> Sequence[Case]:
    """Every `one_in`-th case, from one that the seed of the run chooses on."""
    if EVERY_CASE:
        return cases
    first = random.Random(os.environ.get("TIDELOG_FUZZ_SEED", "0")).randrange(one_in)
    return cases[first::one_in]


def mostly_slow(cases: Iterable[Case], one_in: int) -> list[Case | ParameterSet]:
    """The cases as parameters of a test, of which all but every `one_in`-th are slow."""
    return [
        pytest.param(case, marks=pytest.mark.slow) if number % one_in else case
        for number, case in enumerate(cases)
    ]
