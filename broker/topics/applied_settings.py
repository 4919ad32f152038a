"""Settings of topics as the local logs have them, which follow those of the metadata.

Before settings that delete more are applied, what they will delete is logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.topics.forecast import announce_deletions

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.metadata.image import Image
    from broker.pools import Pool
    from broker.topics.settings import Settings
    from config import TopicConfig
    from storage.directory.store import LogStore


class AppliedSettings:
    """The settings that the store has, by topic."""

    def __init__(
        self, store: LogStore, settings: Settings, pool: Pool, deletion_ms: Callable[[], int]
    ) -> None:
        """`pool` reads logs for the forecast; `deletion_ms` is the time by which the broker deletes."""
        self._store = store
        self._settings = settings
        self._pool = pool
        self._deletion_ms = deletion_ms
        self._configs: dict[str, TopicConfig] = {}

    def of(self, topic: str) -> TopicConfig:
        """Returns the settings of a topic of the image that was applied last."""
        return self._configs[topic]

    async def apply(self, image: Image, before: Image | None) -> None:
        """Applies settings that differ, and first logs what they will delete.

        `before` is the image that was applied last, if there is one.
        """
        configs = self._served(image, before)
        changed = {
            name: (self._configs[name], config)
            for name, config in configs.items()
            if self._configs.get(name, config) != config
        }
        if changed:
            within_ms = self._settings.broker.log_retention_check_interval_ms
            await self._pool.run(
                announce_deletions, self._store, self._deletion_ms(), within_ms, changed
            )
        self._store.default_config = self._settings.broker.topic_defaults
        for name, config in configs.items():
            if self._configs.get(name) != config:
                self._store.set_config(name, config)
        self._configs = configs

    def _served(self, image: Image, before: Image | None) -> dict[str, TopicConfig]:
        """Returns the settings of every topic; those of unchanged topics are reused."""
        if before is None or before.broker_configs != image.broker_configs:
            return self._settings.served_topics(image)
        served: dict[str, TopicConfig] = {}
        for name, topic in image.topics.items():
            known = before.topics.get(name)
            is_same = name in self._configs and known is not None and known.configs == topic.configs
            served[name] = self._configs[name] if is_same else self._settings.served(topic)
        return served
