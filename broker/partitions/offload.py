"""Where a request is answered: on the event loop, or in a thread where that would hold others up.

Handlers write one function that takes a `Permit` and answers. It is called on the loop first. Where
it raises WouldBlock, closed partitions are opened, each by one thread however many requests want
it, and it is called on the loop again. Where it raises WouldBlock once more, it is called in the
pool for its kind of work. So the function must change nothing before it raises WouldBlock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from broker.pools import ON_LOOP
from storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from broker.node import Node
    from broker.pools import Permit
    from protocol.topic_partition import TopicPartition

_Answer = TypeVar("_Answer")


class WouldConvert(WouldBlock):
    """So much has to be converted that other connections would feel it."""


def answer(
    node: Node, names: Iterable[TopicPartition], attempt: Callable[[Permit], _Answer]
) -> _Answer | Coroutine[Any, Any, _Answer]:
    """Returns what `attempt` answers on the loop, or a coroutine that answers as `offload` does."""
    try:
        return attempt(ON_LOOP)
    except WouldBlock:
        return offload(node, names, attempt)


async def offload(
    node: Node, names: Iterable[TopicPartition], attempt: Callable[[Permit], _Answer]
) -> _Answer:
    """Opens the partitions of `names`, then answers on the loop or in the right pool.

    A partition that cannot be opened is left to `attempt`, which finds out why in its thread.
    """
    await node.openings.open(names)
    try:
        return attempt(ON_LOOP)
    except WouldConvert:
        pool = node.pools.conversions
    except WouldBlock:
        pool = node.pools.reads
    return await pool.run_for_request(attempt)
