"""Predicts and logs what a change of settings will delete: one log line per topic.

The deletion happens with the next round of retention, within log.retention.check.interval.ms. This
module only reads; a partition that cannot be read does not prevent the change.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.protocol.errors import BrokerError
from tidelog.storage.time.retention import retention_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.config import TopicConfig
    from tidelog.storage.directory.store import LogStore
    from tidelog.storage.log.retention.explanation import Going

log = logging.getLogger("tidelog.retention")


def log_expected_deletions(
    store: LogStore,
    now_ms: int,
    within_ms: int,
    changed: Mapping[str, tuple[TopicConfig, TopicConfig]],
) -> None:
    """Logs for each topic how much its new settings will delete; `changed` has (old, new).

    Runs in a thread. `within_ms` is the time until the deletion.
    """
    for name, (old, config) in changed.items():
        if retention_of(old) == retention_of(config):
            continue
        forecasts = (_deletions_of(store, name, i, config, now_ms) for i in store.indexes(name))
        going = [each for each in forecasts if each]
        if not any(each.segments for each in going):
            continue
        log.warning(
            "changed settings will delete segments",
            extra={
                "topic": name,
                "segments": sum(each.segments for each in going),
                "records": sum(each.records for each in going),
                "bytes": sum(each.bytes for each in going),
                "policies": sorted({policy for each in going for policy in each.policies}),
                "within_ms": within_ms,
            },
        )


def _deletions_of(
    store: LogStore, name: str, index: int, config: TopicConfig, now_ms: int
) -> Going | None:
    """Returns what will be deleted of one partition; None if nothing will, or it is unknown."""
    try:
        if store.keeps_everything(name, index, now_ms, config):
            return None  # so it need not be opened
        partition = store.partition(name, index)
        return None if partition is None else partition.retainer.explain(now_ms, config).going
    except BrokerError as error:
        fields = {"log": f"{name}-{index}", "reason": error.message}
        log.warning("deletions by changed settings not predicted", extra=fields)
        return None
