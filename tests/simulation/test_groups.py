"""Groups through random schedules in simulation; injected bugs are caught.

The promises are in groups.py. TIDELOG_SCHEDULES says how many; the long profile has 1,000.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.groups import BrokenPromiseError, run
from tidelog.broker.coordinators.groups.group import Group
from tidelog.broker.coordinators.groups.messages import State

QUICK = int(os.environ.get("TIDELOG_SCHEDULES", "60"))


class DoesNotWaitForMembers(Group):
    def _try_complete(self, now_ms):
        if self.state is not State.PREPARING or (self._is_initial and self.members):
            return []
        return self._complete_join(now_ms)


class KeepsTheGeneration(Group):
    def _complete_join(self, now_ms):
        before = self.generation
        self.generation -= 1
        actions = super()._complete_join(now_ms)
        self.generation = before  # also where static members are waited for
        return actions


class AnyoneAssigns(Group):
    def sync(self, member_id, *how):
        self.leader = member_id
        return super().sync(member_id, *how)


class AnyGenerationCommits(Group):
    def check_commit(self, member_id, instance_id, generation, *how, **more):
        generation = self.generation if generation >= 0 else generation
        return super().check_commit(member_id, instance_id, generation, *how, **more)


class DoesNotFence(Group):
    def _known(self, member_id, _instance_id):
        return super()._known(member_id, None)


class NeverExpires(Group):
    def _touch(self, member, now_ms):
        super()._touch(member, now_ms + 2**40)


BUGS = Group.__subclasses__()


def run_all(seeds, group_type=Group):
    return [run(seed, group_type) for seed in seeds]


def test_random_schedules():
    worlds = run_all(range(QUICK))
    # The schedules are worth something: groups moved on, commits went in, brokers started again.
    assert sum(world.generations for world in worlds) > 5 * QUICK
    assert sum(max(world.highest.values()) for world in worlds) > 50 * QUICK
    assert any(world.restarts for world in worlds)


@pytest.mark.long
def test_a_thousand_schedules():
    run_all(range(1_000, 2_000))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_an_injected_bug_is_caught(bug):
    with pytest.raises(BrokenPromiseError):
        run_all(range(100), bug)
