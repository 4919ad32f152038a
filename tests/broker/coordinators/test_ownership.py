"""Which partitions a coordinator serves: by hand, and in any order of images, logs and late results."""

from __future__ import annotations

import random
import uuid

import pytest

from tidelog.broker.coordinators.ownership import Load, Ownership, Resign
from tidelog.protocol.group_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)

TOPIC, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


def loads(actions):
    """The partitions and epochs that are to be read."""
    return [(each.partition, each.epoch) for each in actions if isinstance(each, Load)]


@pytest.fixture
def owned():
    """The ownership of one broker of several, which has partition 3 in epoch 7 and has read it."""
    found = Ownership()
    assert found.on_image(TOPIC, {3: 7}) == []
    (load,) = found.on_led(TOPIC, 3, 7)
    assert load[:3] == (TOPIC, 3, 7)
    assert found.on_loaded(load)
    return found


def test_a_partition_is_served_when_its_log_leads_and_has_been_read():
    found = Ownership()
    with pytest.raises(NotCoordinator):
        found.check(3)
    found.on_image(TOPIC, {3: 7})
    with pytest.raises(CoordinatorLoadInProgress):
        found.check(3)
    (load,) = found.on_led(TOPIC, 3, 7)
    with pytest.raises(CoordinatorLoadInProgress):
        found.check(3)
    assert found.is_loading
    assert found.on_loaded(load)
    assert found.check(3) == 7
    assert not found.is_loading


def test_a_log_may_lead_before_the_image_says_so():
    found = Ownership()
    assert found.on_led(TOPIC, 3, 7) == []
    assert loads(found.on_image(TOPIC, {3: 7})) == [(3, 7)]


def test_a_partition_that_another_broker_leads_is_resigned(owned):
    assert owned.on_image(TOPIC, {}) == [Resign(3)]
    with pytest.raises(NotCoordinator):
        owned.check(3)


def test_an_image_that_changes_nothing_asks_for_nothing(owned):
    assert owned.on_image(TOPIC, {3: 7}) == []
    assert owned.check(3) == 7


def test_a_new_epoch_of_the_same_leader_is_loaded_anew(owned):
    assert owned.on_image(TOPIC, {3: 8}) == [Resign(3)]
    with pytest.raises(CoordinatorLoadInProgress):
        owned.check(3)
    assert loads(owned.on_led(TOPIC, 3, 8)) == [(3, 8)]


def test_what_was_read_for_an_older_epoch_is_thrown_away(owned):
    """The leader was this broker, another one, and this one again, while the log was read."""
    owned.on_image(TOPIC, {3: 8})
    (older,) = owned.on_led(TOPIC, 3, 8)
    owned.on_image(TOPIC, {})
    owned.on_image(TOPIC, {3: 10})
    (newer,) = owned.on_led(TOPIC, 3, 10)
    assert not owned.on_loaded(older)
    owned.on_failed(older, "its disk is gone")
    with pytest.raises(CoordinatorLoadInProgress):
        owned.check(3)
    assert owned.on_loaded(newer)
    assert owned.check(3) == 10


def test_a_log_that_leads_twice_in_one_epoch_is_read_twice():
    found = Ownership()
    found.on_image(TOPIC, {3: 7})
    (first,) = found.on_led(TOPIC, 3, 7)
    found.on_stopped(TOPIC, 3)
    (second,) = found.on_led(TOPIC, 3, 7)
    assert not found.on_loaded(first)
    assert found.on_loaded(second)


def test_a_log_that_leads_no_more_is_resigned_before_the_image_says_so(owned):
    assert owned.on_stopped(TOPIC, 3) == [Resign(3)]
    with pytest.raises(NotCoordinator):
        owned.check(3)
    assert owned.on_stopped(TOPIC, 3) == []
    assert loads(owned.on_led(TOPIC, 3, 7)) == [(3, 7)]


def test_a_topic_that_was_created_again_is_another_one(owned):
    assert owned.on_image(OTHER, {3: 7}) == [Resign(3)]
    assert owned.on_stopped(TOPIC, 3) == []
    assert loads(owned.on_led(OTHER, 3, 7)) == [(3, 7)]


def test_a_partition_that_cannot_be_read_is_not_available():
    found = Ownership()
    found.on_image(TOPIC, {3: 7})
    (load,) = found.on_led(TOPIC, 3, 7)
    found.on_failed(load, "its disk is gone")
    with pytest.raises(CoordinatorNotAvailable, match="its disk is gone"):
        found.check(3)
    assert not found.is_loading
    assert found.on_image(TOPIC, {}) == []


# --- in any order ---------------------------------------------------------------------------------


class _World:
    """One broker's shell over some partitions: what it has in memory, and loads that are under way."""

    def __init__(self, seed: int, ownership: Ownership) -> None:
        self.random = random.Random(seed)
        self.ownership = ownership
        self.epochs = dict.fromkeys(range(3), 0)  # of each partition, as stored
        self.mine: dict[int, int] = {}  # as the newest image says
        self.led: dict[int, int] = {}
        self.loads: list[Load] = []
        self.memory: dict[int, int] = {}  # the epoch whose groups are in memory

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice((self.image, self.lead, self.stop, self.finish))()
            self.judge()

    def carry_out(self, actions: list[Load | Resign]) -> None:
        for action in actions:
            if isinstance(action, Load):
                assert self.led[action.partition] == action.epoch, "read before the log leads"
                assert action not in self.loads, "read twice at once"
                self.loads.append(action)
            else:
                self.memory.pop(action.partition, None)

    def image(self) -> None:
        index = self.random.randrange(3)
        self.epochs[index] += 1
        self.mine.pop(index, None)
        if self.random.random() < 0.6:
            self.mine[index] = self.epochs[index]
        self.carry_out(self.ownership.on_image(TOPIC, dict(self.mine)))

    def lead(self) -> None:
        index = self.random.randrange(3)
        if index in self.mine and self.led.get(index) != self.mine[index]:
            self.led[index] = self.mine[index]
            self.carry_out(self.ownership.on_led(TOPIC, index, self.mine[index]))

    def stop(self) -> None:
        if self.led and self.random.random() < 0.3:
            index = self.random.choice(list(self.led))
            del self.led[index]
            self.carry_out(self.ownership.on_stopped(TOPIC, index))

    def finish(self) -> None:
        if self.loads:
            load = self.loads.pop(self.random.randrange(len(self.loads)))
            if self.random.random() < 0.1:
                self.ownership.on_failed(load, "its disk is gone")
            elif self.ownership.on_loaded(load):
                assert load.partition not in self.memory, "groups of two epochs in memory"
                self.memory[load.partition] = load.epoch

    def judge(self) -> None:
        for index in range(3):
            try:
                epoch = self.ownership.check(index)
            except (NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable):
                assert index not in self.memory, "groups are kept that are not served"
            else:
                assert epoch == self.mine[index] == self.led[index], "served without leading"
                assert self.memory[index] == epoch, "served without having been read"


@pytest.mark.parametrize("seed", range(200))
def test_only_what_is_led_and_read_in_this_epoch_is_served(seed):
    _World(seed, Ownership()).run(200)


class _AnyLoadCounts(Ownership):
    def is_wanted(self, load):
        return load.partition in self._partitions


class _StoppedLogsStay(Ownership):
    def on_stopped(self, topic_id, index):
        self._led.pop(index, None)
        return []


class _EpochsDoNotMatter(Ownership):
    def on_image(self, topic_id, led):
        known = {index: each.epoch for index, each in self._partitions.items()}
        return super().on_image(topic_id, {at: known.get(at, led[at]) for at in led})


class _NobodyResigns(Ownership):
    # Whatever makes a partition go ends there, so the mistake has no public name.
    def _drop(self, indexes):
        super()._drop(indexes)
        return []


def _run_seeds(injected):
    for seed in range(200):
        _World(seed, injected()).run(200)


@pytest.mark.parametrize(
    "injected", [_AnyLoadCounts, _StoppedLogsStay, _EpochsDoNotMatter, _NobodyResigns]
)
def test_an_injected_bug_is_noticed(injected):
    with pytest.raises((AssertionError, KeyError)):
        _run_seeds(injected)
