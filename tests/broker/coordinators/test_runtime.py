"""The runtime under coordinators: what it loads, whom it refuses, and what goes with a partition."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace

import pytest

from tests.broker.network.test_scheduler import until
from tidelog.broker.clock import ManualClock
from tidelog.broker.coordinators import runtime as runtime_module
from tidelog.broker.coordinators.internal_topic import Declared
from tidelog.broker.coordinators.runtime import Runtime
from tidelog.protocol.group_errors import CoordinatorLoadInProgress, NotCoordinator
from tidelog.protocol.group_records import partition_of

DECLARED = Declared("__internal", 3, 1, 1 << 20, "uncompressed", 1_000)
TOPIC = uuid.UUID(int=1)
KEYS = [f"key-{number}" for number in range(30)]


class Broker:
    """Leads every partition in epoch 1; reads wait until the test opens the gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        topic = SimpleNamespace(partitions=DECLARED.partitions)
        self.metadata = SimpleNamespace(image=SimpleNamespace(topics={DECLARED.name: topic}))
        topic.topic_id = TOPIC
        self.replicas = SimpleNamespace(check_leads_in=lambda *_: None)
        self.partitions = self
        self.pools = SimpleNamespace(maintenance=self)
        self.ready = True

    def get(self, _topic, index):
        return SimpleNamespace(index=index, high_watermark=5, log_end_offset=7)

    async def run_to_end(self, call, load):
        await self.gate.wait()
        return call(load)


class Coordinator:
    """Finds its keys in each partition."""

    def __init__(self) -> None:
        self.reached, self.unloaded, self.ends = [], [], set()
        self.runtime = None

    def read(self, partition, end_offset, _is_wanted):
        self.ends.add(end_offset)
        return [key for key in KEYS if partition_of(key, DECLARED.partitions) == partition.index]

    def load(self, load, read):
        for key in read:
            self.runtime.entries[key] = SimpleNamespace(key=key, epoch=load.epoch)

    def unload(self, indexes, entries):
        self.unloaded.append((indexes, [each.key for each in entries]))

    def deadline_reached(self, entry):
        self.reached.append(entry.key)

    def image_changed(self, _image):
        pass


def made():
    """A broker that leads all partitions, none of which has been read yet."""
    broker, coordinator, clock = Broker(), Coordinator(), ManualClock(5_000)
    runtime = coordinator.runtime = Runtime(broker, DECLARED, clock, coordinator)
    runtime.carry_out(runtime.ownership.on_image(TOPIC, dict.fromkeys(range(3), 1)))
    for index in range(3):
        runtime.carry_out(runtime.ownership.on_led(TOPIC, index, 1))
    return broker, coordinator, runtime, clock


async def test_a_key_is_refused_until_its_partition_is_read_and_after_it_is_led_elsewhere(
    caplog, monkeypatch
):
    monkeypatch.setattr(runtime_module, "_WAIT_S", 3_600.0)
    caplog.set_level("INFO", "tidelog.coordinators")
    broker, coordinator, runtime, clock = made()
    waiting = asyncio.ensure_future(runtime.get_loaded(KEYS[0]))
    loading = asyncio.ensure_future(runtime.load_partitions())
    await asyncio.sleep(0)
    with pytest.raises(CoordinatorLoadInProgress):
        runtime.get(KEYS[0])
    with pytest.raises(CoordinatorLoadInProgress):
        runtime.all()
    broker.gate.set()
    entry = await asyncio.wait_for(waiting, 30)
    assert (entry.key, entry.epoch) == (KEYS[0], 1)
    await until(lambda: len(runtime.entries) == len(KEYS))
    assert coordinator.ends == {7}, "a leader reads to the log's end"
    assert [
        each.key for each in sorted(runtime.all(), key=lambda each: KEYS.index(each.key))
    ] == KEYS

    gone = [key for key in KEYS if runtime.topic.index_of(key) == 1]
    assert 0 < len(gone) < len(KEYS)
    for each in runtime.entries.values():
        runtime.schedule(each, clock.steady_ms())
    runtime.carry_out(runtime.ownership.on_image(TOPIC, {0: 1, 2: 1}))
    ((indexes, unloaded),) = coordinator.unloaded
    assert (indexes, sorted(unloaded)) == ({1}, sorted(gone))
    with pytest.raises(NotCoordinator):
        runtime.get(gone[0])
    loading.cancel()
    assert runtime._deadlines._next.keys() == set(KEYS) - set(gone)
    timer = asyncio.ensure_future(runtime._deadlines.run())
    await until(lambda: len(coordinator.reached) >= len(KEYS) - len(gone))
    timer.cancel()
    assert set(coordinator.reached) == set(KEYS) - set(gone)
    logged = {each.message: each.partitions for each in caplog.records}
    assert logged == {"coordinator loaded partitions": 3, "coordinator unloaded partitions": 1}


async def test_what_is_read_too_late_does_not_count():
    broker, _, runtime, _ = made()
    loading = asyncio.ensure_future(runtime.load_partitions())
    await asyncio.sleep(0)
    runtime.carry_out(runtime.ownership.on_image(TOPIC, {}))
    broker.gate.set()
    for _ in range(20):
        await asyncio.sleep(0)
    loading.cancel()
    assert not runtime.entries
    with pytest.raises(NotCoordinator):
        runtime.get(KEYS[0])


async def test_a_partition_that_is_loaded_again_before_all_are_is_logged_once(caplog):
    caplog.set_level("INFO", "tidelog.coordinators")
    broker, _, runtime, _ = made()
    runtime.carry_out(runtime.ownership.on_stopped(TOPIC, 2))
    runtime.carry_out(runtime.ownership.on_image(TOPIC, {0: 1, 1: 1, 2: 2}))  # awaits its log
    broker.gate.set()
    loading = asyncio.ensure_future(runtime.load_partitions())
    keys = {key for key in KEYS if runtime.topic.index_of(key) == 0}
    for _ in range(3):
        await until(lambda: keys <= runtime.entries.keys())
        runtime.carry_out(runtime.ownership.on_stopped(TOPIC, 0))
        runtime.carry_out(runtime.ownership.on_led(TOPIC, 0, 1))
    runtime.carry_out(runtime.ownership.on_led(TOPIC, 2, 2))
    await until(lambda: not runtime.ownership.is_loading)
    loading.cancel()
    (line,) = [each for each in caplog.records if each.message == "coordinator loaded partitions"]
    assert line.partitions == 3
