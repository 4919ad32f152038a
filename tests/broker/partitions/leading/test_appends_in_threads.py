"""An append in a thread, of which the leader learns by another way before the thread has said so."""

from __future__ import annotations

import asyncio

from tests.broker.partitions.inside import batch
from tidelog.broker.partitions.fetch.delayed_fetch import wait_for_bytes

_PATIENCE_S = 20


async def test_a_fetch_is_woken_though_the_high_watermark_has_risen_before(two):
    await two.create("t", ((1,),))
    broker = two[1]
    log, purgatory = broker.log("t"), broker.node.purgatory
    led = broker.replicas.led(log)
    fetch = asyncio.ensure_future(wait_for_bytes(purgatory, [log], 1, _PATIENCE_S))
    await asyncio.sleep(0)
    appended = log.append(batch(b"a"), now_ms=broker.node.clock.now_ms(), produce_version=9)
    await led.deleted_everywhere(0, 0)  # as any request that asks for the log's state
    assert log.high_watermark == 1
    led.note_append(appended)
    assert await fetch
