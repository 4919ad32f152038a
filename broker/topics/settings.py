"""Settings in force: the broker's own, and each topic's over them.

The broker's are what the start gave, under what was changed since in the metadata. Nothing here
writes: what a change brings along (a retention basis) is returned for the controller to write.
"""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import TYPE_CHECKING

from config import ConfigError, reconfigured, topic_config
from protocol.errors import InvalidConfig
from storage.time.retention import APPEND_BASIS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.metadata.image import Image, Topic
    from config import BrokerConfig, TopicConfig

log = logging.getLogger("tidelog.topics")

# Settings of a topic whose logs somebody brought here: nothing of it is deleted.
KEEP: Mapping[str, str] = MappingProxyType(
    {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "retention.max.eventtime.ms": "-1",
    }
)
# The broker's own topics: of a group the last commit counts, whatever a clock showed then.
_INTERNAL: Mapping[str, str] = MappingProxyType(
    {"message.format.version": "3.0", "compaction.strategy": "offset"}
)
# What event-time retention brings along where no basis is given: on a topic, and on the broker.
_BASIS: Mapping[str, str] = MappingProxyType({"retention.time.basis": APPEND_BASIS})
_BROKER_BASIS: Mapping[str, str] = MappingProxyType({"log.retention.time.basis": APPEND_BASIS})
_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def is_internal(topic: str) -> bool:
    """Tell whether a topic is the broker's own."""
    return topic in _INTERNAL_TOPICS


class Settings:
    """The settings that this broker serves by."""

    def __init__(self, config: BrokerConfig) -> None:
        """`config` is what the start gave."""
        self._start = config
        self.broker = config  # with what was changed since

    def use(self, image: Image) -> None:
        """Serve by the broker settings of an image. Raises InvalidConfig if they do not fit together."""
        self.broker = self._reconfigured(image.broker_configs)

    def of_topic(
        self, name: str, overrides: Mapping[str, str], broker: BrokerConfig | None = None
    ) -> TopicConfig:
        """Return a topic's settings over the broker's; raises InvalidConfig with the sentence.

        The broker's own topics are in the newest format, and of each key the last record counts,
        whatever anybody sets.
        """
        if is_internal(name):
            overrides = {**overrides, **_INTERNAL}
        try:
            return topic_config(self.broker if broker is None else broker, overrides)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None

    def settled(
        self, name: str, overrides: Mapping[str, str]
    ) -> tuple[TopicConfig, Mapping[str, str]]:
        """Return what a topic's own settings come to, and those that they bring along.

        Event-time retention without a basis brings retention.time.basis=append. That stays when event
        time is switched off again, or old data just written would go all at once. Raises InvalidConfig.
        """
        config = self.of_topic(name, overrides)
        if not config.lacks_basis:
            return config, {}
        return self.of_topic(name, {**overrides, **_BASIS}), _BASIS

    def settled_broker(
        self, current: Mapping[str, str], changes: Mapping[str, str | None]
    ) -> dict[str, str | None]:
        """Return the changes of the broker's settings, with those that they bring along.

        Raises InvalidConfig.
        """
        config = self._reconfigured(merged(current, changes))
        if not config.topic_defaults.lacks_basis:
            return dict(changes)
        brought = {**changes, **_BROKER_BASIS}
        self._reconfigured(merged(current, brought))
        return brought

    def served(self, topic: Topic) -> TopicConfig:
        """Return the settings a topic is served by; the broker's alone where its own no longer fit.

        Nothing is deleted then: the topic may have asked to keep more than the broker does.
        """
        try:
            return self.of_topic(topic.name, topic.configs)
        except InvalidConfig as error:
            log.error(  # noqa: TRY400 - the sentence says it
                "topic goes by the broker's settings, and nothing of it is deleted: %s",
                error.message,
                extra={"topic": topic.name},
            )
            return self.of_topic(topic.name, KEEP)

    def served_topics(self, image: Image) -> dict[str, TopicConfig]:
        """Return the settings that every topic of an image is served by."""
        return {topic.name: self.served(topic) for topic in image.topics.values()}

    def _reconfigured(self, changes: Mapping[str, str]) -> BrokerConfig:
        try:
            return reconfigured(self._start, changes)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None


def merged(settings: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return settings after changes; None removes one."""
    return {k: v for k, v in {**settings, **changes}.items() if v is not None}


def differing(
    settings: Mapping[str, str], changes: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return the changes that change anything."""
    return {name: value for name, value in changes.items() if settings.get(name) != value}
