"""Settings of topics as the local logs have them, which follow those of the metadata.

Before settings that delete more are applied, what they will delete is logged.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tidelog.broker.logs.forecast import log_expected_deletions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.pools import Pool
    from tidelog.broker.settings import Settings
    from tidelog.config import TopicConfig
    from tidelog.storage.directory.store import LogStore


_AT_ONCE: Final = 100
"""The number of topics whose settings are computed before the event loop serves others."""


class AppliedSettings:
    """The settings that the store has, by topic."""

    def __init__(
        self, store: LogStore, settings: Settings, pool: Pool, deletion_ms: Callable[[], int]
    ) -> None:
        """`pool` reads logs for the forecast; `deletion_ms` returns the time by which retention deletes."""
        self._store = store
        self._settings = settings
        self._pool = pool
        self._deletion_ms = deletion_ms
        self._configs: dict[str, TopicConfig] = {}

    def of(self, topic: str) -> TopicConfig:
        """Returns the settings of a topic of the image that was applied last."""
        return self._configs[topic]

    async def apply(self, image: Image, before: Image | None, changed: Iterable[Topic]) -> None:
        """Applies settings that differ, and first logs what they will delete.

        `before` is the image that was applied last, if there is one; `changed` are the topics that have
        changed since.
        """
        configs = await self._served(image, before, changed)
        replaced = {
            name: (self._configs[name], config)
            for name, config in configs.items()
            if name in self._configs
        }
        if replaced:
            within_ms = self._settings.broker.log_retention_check_interval_ms
            await self._pool.run(
                log_expected_deletions, self._store, self._deletion_ms(), within_ms, replaced
            )
        self._store.default_config = self._settings.broker.topic_defaults
        for number, (name, config) in enumerate(configs.items(), 1):
            before_it, _ = replaced.get(name, (config, config))
            if config.event_time_ahead_max_ms != before_it.event_time_ahead_max_ms:
                await self._pool.run_to_end(self._store.set_config, name, config)  # it writes
            else:
                self._store.set_config(name, config)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        self._configs.update(configs)
        if len(self._configs) > len(image.topics):
            for name in self._configs.keys() - image.topics.keys():
                del self._configs[name]

    async def _served(
        self, image: Image, before: Image | None, changed: Iterable[Topic]
    ) -> dict[str, TopicConfig]:
        """Returns the settings of topics that differ from those that were applied.

        Computes those of every topic if the settings of the brokers have changed, some at a time.
        """
        is_same = before is not None and before.broker_configs == image.broker_configs
        served: dict[str, TopicConfig] = {}
        for number, topic in enumerate(changed if is_same else image.topics.values(), 1):
            known = None if before is None else before.topics.get(topic.name)
            applied = self._configs.get(topic.name)
            if is_same and applied and known and known.configs == topic.configs:
                continue
            config = self._settings.served(topic)
            if config != applied:
                served[topic.name] = config
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return served
