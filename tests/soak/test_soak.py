"""A broker under a mixed load loses nothing, and what it uses is level; what is not level is seen.

`make test` soaks for seconds, which shows that the soak works; the long profile soaks for
TIDELOG_SOAK_MINUTES (10).
"""

from __future__ import annotations

import os
import random

import pytest

from tests.broker.subject import eventually
from tests.injecting import injecting
from tests.soak.leaking import LEAKS
from tests.soak.level import ALLOWANCE, Usage, growths, usage_of
from tests.soak.soak import Soak
from tidelog.process import BrokerProcess

_SMOKE_S = 6
LONG_MINUTES = float(os.environ.get("TIDELOG_SOAK_MINUTES", "10"))
LEVEL = Usage(60.0, 40, 12)


def grown(names):
    return {each.partition(" ")[0] for each in names}


def test_what_is_level_with_noise_is_level():
    chance = random.Random(0)
    samples = [
        Usage(60 + chance.uniform(-4, 4), 40 + chance.randint(-8, 8), 6 + chance.randint(0, 1))
        for _ in range(60)
    ]
    assert grown(growths(samples)) == set()


def test_what_grows_only_in_the_first_third_is_level():
    samples = [Usage(30 + min(number, 20) * 2, 20 + min(number, 20), 6) for number in range(60)]
    assert grown(growths(samples)) == set()


def test_one_sample_far_off_is_no_growth():
    samples = [LEVEL] * 60
    samples[-1] = Usage(600, 400, 60)
    assert grown(growths(samples)) == set()


@pytest.mark.parametrize("name", ALLOWANCE)
def test_what_grows_slowly_all_the_time_is_seen(name):
    """It doubles from the first sample to the last."""
    samples = [
        LEVEL._replace(**{name: getattr(LEVEL, name) * (1 + number / 60)}) for number in range(60)
    ]
    assert grown(growths(samples)) == {name}


def test_too_few_samples_are_no_judgement():
    with pytest.raises(AssertionError, match="too few"):
        list(growths([LEVEL] * 3))


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAKS)
def test_a_broker_that_leaks_is_seen(tmp_path, name):
    with injecting("tests.soak.leaking", name), BrokerProcess(tmp_path / "data") as broker:
        samples = [usage_of(broker.pid)]

        def is_seen():
            samples.append(usage_of(broker.pid))
            return len(samples) > 9 and name in grown(growths(samples))

        eventually(is_seen)


@pytest.mark.slow
def test_a_mixed_load_for_a_moment(tmp_path):
    """What it uses is not judged: caches and pools still fill."""
    soak = Soak(tmp_path)
    found = soak.play(_SMOKE_S)
    assert [each for each in found if each.partition(" ")[0] not in ALLOWANCE] == []
    assert sum(soak.history.acknowledged.values()) > 100


@pytest.mark.long
@pytest.mark.timeout(10_000)
def test_a_mixed_load_for_minutes(tmp_path):
    assert Soak(tmp_path).play(LONG_MINUTES * 60) == []
