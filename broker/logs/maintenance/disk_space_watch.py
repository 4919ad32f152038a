"""Checks full disks for free space: appends start again soon after something was deleted.

The membership decides when a log takes appends again: of several brokers `broker/logs/disks.py` does,
because others lead meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.logs.maintenance.services import Services

log = logging.getLogger("tidelog.room")

_INTERVAL_S = 1.0


async def watch_disk_space(services: Services) -> None:
    """Checks the full log directories every second, until cancelled."""
    while True:
        await asyncio.sleep(_INTERVAL_S)
        try:
            if await services.pools.topics.run(services.store.full_directories):
                await services.pools.topics.run(services.cluster.restore_reserves)
        except Exception:  # the next check may succeed; this loop must not end
            log.exception("free disk space not checked")
