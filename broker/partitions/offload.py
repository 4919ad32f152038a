"""Where a request is answered: on the event loop, or in a thread where that would hold others up.

Handlers write one coroutine function that takes a `Permit` and answers. The function runs on the loop first.
Where it raises WouldBlock, closed partitions are opened, each by one thread however many requests want it,
and the function runs on the loop again. Where it raises WouldBlock once more, it runs in the pool for its
kind of work. So it must change nothing before it raises WouldBlock, and awaits nothing but `checkpoint()`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.broker.network.memory.unpacking import COPIES, reserved, steps
from tidelog.broker.network.scheduler import at_once
from tidelog.broker.pools import ON_LOOP
from tidelog.protocol.errors import MessageTooLarge
from tidelog.storage.would_block import NeedsMemory, WouldBlock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.broker.network.memory.unpacking import Step
    from tidelog.broker.partitions.services import Services
    from tidelog.broker.pools import Permit
    from tidelog.protocol.topic_partition import TopicPartition

_Answer = TypeVar("_Answer")
Attempt = Callable[["Permit"], Coroutine[Any, Any, _Answer]]

_LOOP_UNPACK_BYTES = 512 << 10  # what a lookup may unpack a batch to on the event loop
_UNRESERVED_BYTES = 1 << 20  # the same in a thread, where no memory is reserved


class WouldConvert(WouldBlock):
    """So much has to be converted that other connections would feel it."""


async def answer(
    services: Services, names: Iterable[TopicPartition], attempt: Attempt[_Answer]
) -> _Answer:
    """Returns what `attempt` answers on the loop, or what `offload` does."""
    try:
        return await attempt(ON_LOOP)
    except WouldBlock:
        return await offload(services, names, attempt)


async def offload(
    services: Services, names: Iterable[TopicPartition], attempt: Attempt[_Answer]
) -> _Answer:
    """Opens the partitions of `names`, then answers on the loop or in the right pool.

    A partition that cannot be opened is left to `attempt`, which finds out why in its thread.
    """
    await services.partitions.opener.open(names)
    try:
        return await attempt(ON_LOOP)
    except (WouldConvert, NeedsMemory):
        return await _converting(services, attempt)
    except WouldBlock:
        pass
    try:
        return await services.pools.reads.run_for_request(_in_thread(attempt))
    except NeedsMemory:  # what was read has to be converted
        return await _converting(services, attempt)


def _in_thread(attempt: Attempt[_Answer]) -> Callable[[Permit], _Answer]:
    """Returns the function that a thread runs."""

    def run(permit: Permit) -> _Answer:
        return at_once(attempt(permit))

    return run


def unpacking(
    permit: Permit, look_up: Callable[..., _Answer], *asked: Any, **named: Any
) -> _Answer:
    """Runs a lookup that may decompress a batch, to at most COPIES times `permit.unpacked_bytes`.

    A lookup makes no copies, so one batch may have the memory that is reserved for all of them.
    Raises WouldBlock, NeedsMemory and, where no more is permitted, MessageTooLarge.
    """
    unreserved_bytes = _UNRESERVED_BYTES if permit.may_block else _LOOP_UNPACK_BYTES
    limit = permit.unpacked_bytes * COPIES or unreserved_bytes
    try:
        return look_up(*asked, may_block=permit.may_block, unpack_limit=limit, **named)
    except NeedsMemory as error:
        if not permit.may_block:
            raise WouldBlock(str(error)) from None
        if permit.may_need_more or not permit.unpacked_bytes:
            raise
        raise MessageTooLarge(f"{error}: see memory.limit.bytes") from None


async def _converting(services: Services, attempt: Attempt[_Answer]) -> _Answer:
    """Answers in the pool for conversions, once there is memory for the records and the answer."""
    _, first, last = steps(services.memory.records)
    try:
        return await _convert_in(services, attempt, first, may_need_more=True)
    except NeedsMemory:
        return await _convert_in(services, attempt, last, may_need_more=False)


async def _convert_in(
    services: Services, attempt: Attempt[_Answer], step: Step, *, may_need_more: bool
) -> _Answer:
    memory, pool = services.memory, services.pools.conversions
    async with (
        reserved(memory.answers, step.unpacked_bytes),
        reserved(memory.records, step.reserved_bytes),
    ):
        return await pool.run_for_request(
            _in_thread(attempt), step.unpacked_bytes, may_need_more=may_need_more
        )
