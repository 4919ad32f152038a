"""What a change of settings will delete, said before it takes effect: one line in the log per topic.

What goes, goes with the next round of retention, within log.retention.check.interval.ms. Looking is all
that happens here; a partition that cannot be looked at hinders no change.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from protocol.errors import BrokerError
from storage.time.retention import retention_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.node import Node
    from config import TopicConfig
    from storage.log.retention.explanation import Going

log = logging.getLogger("tidelog.retention")


async def say_what_goes(node: Node, changed: Mapping[str, tuple[TopicConfig, TopicConfig]]) -> None:
    """Say of each topic how much its new settings delete at once; `changed` has (old, new)."""
    ruled = {
        name: new for name, (old, new) in changed.items() if retention_of(old) != retention_of(new)
    }
    if ruled:
        await node.pools.topics.run(_say, node, ruled)


def _say(node: Node, configs: Mapping[str, TopicConfig]) -> None:
    for name, config in configs.items():
        going = [g for g in (_of(node, name, i, config) for i in node.store.indexes(name)) if g]
        if not any(each.segments for each in going):
            continue
        log.warning(
            "changed settings delete segments",
            extra={
                "topic": name,
                "segments": sum(each.segments for each in going),
                "records": sum(each.records for each in going),
                "bytes": sum(each.bytes for each in going),
                "policies": sorted({policy for each in going for policy in each.policies}),
                "within_ms": node.config.log_retention_check_interval_ms,
            },
        )


def _of(node: Node, name: str, index: int, config: TopicConfig) -> Going | None:
    """What goes of one partition; None where nothing does, or nobody can tell."""
    now_ms = node.clock.now_ms()
    try:
        if node.store.keeps_everything(name, index, now_ms, config):
            return None  # and need not be opened
        partition = node.store.partition(name, index)
        return None if partition is None else partition.explain(now_ms, config).going
    except BrokerError as error:
        where = {"log": f"{name}-{index}"}
        log.warning("nobody can tell what changed settings delete: %s", error.message, extra=where)
        return None
