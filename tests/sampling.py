"""Long lists of cases, of which `make test` tries a share, another in every run; `make test-long` tries all.

TIDELOG_EVERY_CASE=1 tries all of them. TIDELOG_FUZZ_SEED repeats a run's choice; pytest prints it.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

Case = TypeVar("Case")

EVERY_CASE = os.environ.get("TIDELOG_EVERY_CASE") == "1"


def sampled(cases: Sequence[Case], one_in: int) -> Sequence[Case]:
    """Every `one_in`-th case, from one that the seed of the run chooses on."""
    if EVERY_CASE:
        return cases
    first = random.Random(os.environ.get("TIDELOG_FUZZ_SEED", "0")).randrange(one_in)
    return cases[first::one_in]
