"""Handshakes use their part of the loop's time, and addresses have their turns one after the other."""

from __future__ import annotations

import asyncio

from tidelog.broker.network.tls.handshakes import SHARE, Handshakes


class WorkClock:
    """A monotonic clock that moves as steps run."""

    def __init__(self):
        self.now_s = 100.0

    def monotonic_s(self):
        return self.now_s


def begin():
    clock, done = WorkClock(), []
    handshakes = Handshakes(clock)

    def step(name, took_s=0.004):
        def run():
            clock.now_s += took_s
            done.append(name)

        handshakes.run(name[0], run)

    return clock, handshakes, step, done


async def test_a_step_runs_at_once_while_the_share_is_not_used_up():
    _, _, step, done = begin()
    step("a1")
    assert done == ["a1"]


async def test_steps_beyond_the_share_wait_until_time_has_passed():
    clock, handshakes, step, done = begin()
    step("a1")
    step("a2")
    third = asyncio.Event()
    handshakes.run("a", lambda: (done.append("a3"), third.set()))
    assert done == ["a1", "a2"]  # the credit after a pause is that of two
    await asyncio.sleep(0.05)  # no time has passed on its clock
    assert done == ["a1", "a2"]
    clock.now_s += 0.004 / SHARE
    async with asyncio.timeout(60):
        await third.wait()
    assert done == ["a1", "a2", "a3"]


async def test_addresses_have_turns_however_many_steps_each_has():
    clock, _, step, done = begin()
    step("a0", took_s=0.1)
    for name in ("a1", "a2", "a3", "b1", "c1"):
        step(name)
    while len(done) < 6:
        clock.now_s += 0.01
        await asyncio.sleep(0.001)
    assert done == ["a0", "a1", "b1", "c1", "a2", "a3"]


async def test_all_together_use_their_part_of_the_time():
    clock, _, step, done = begin()
    began_s = clock.now_s
    for number in range(100):
        step(f"{number}")
    while len(done) < 100:
        clock.now_s += 0.01
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
    worked_s = 100 * 0.004
    assert worked_s / (clock.now_s - began_s) < SHARE * 1.2
