"""Settings in force: the broker's own, and each topic's over them.

The broker's settings are those given at start, overridden by later changes in the metadata. This
module writes nothing: a setting that a change implies (a retention basis) is returned, and the
controller writes it.
"""

from __future__ import annotations

import contextlib
import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from config import (
    BROKER_ALIASES,
    TOPIC_ALIASES,
    ConfigError,
    reconfigured,
    topic_config,
    without_aliases,
)
from protocol.errors import InvalidConfig
from storage.time.retention import APPEND_BASIS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.metadata.image import Image, Topic
    from config import BrokerConfig, TopicConfig

Text = TypeVar("Text", str, str | None)

log = logging.getLogger("tidelog.topics")

# Settings of a topic whose logs an operator copied here: no data is deleted.
KEEP: Mapping[str, str] = MappingProxyType(
    {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "retention.max.eventtime.ms": "-1",
    }
)
# Internal topics: the last commit of a group is kept, whatever its time.
_INTERNAL: Mapping[str, str] = MappingProxyType(
    {"message.format.version": "3.0", "compaction.strategy": "offset"}
)
# The basis of retention, as somebody gives it, and as event-time retention implies it without one:
# of a topic, and of the broker.
BASIS, BROKER_BASIS = "retention.time.basis", "log.retention.time.basis"
IMPLIED_BASIS, IMPLIED_BROKER_BASIS = f"{BASIS}.implied", f"{BROKER_BASIS}.implied"
_BASIS: Mapping[str, str] = MappingProxyType({IMPLIED_BASIS: APPEND_BASIS})
_BROKER_BASIS: Mapping[str, str] = MappingProxyType({IMPLIED_BROKER_BASIS: APPEND_BASIS})
_CORDONED = "cordoned.brokers"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def is_internal(topic: str) -> bool:
    """Returns whether a topic is internal to the broker."""
    return topic in INTERNAL_TOPICS


class Settings:
    """The current settings of this broker and its topics."""

    def __init__(self, config: BrokerConfig) -> None:
        """`config` is the configuration given at start."""
        self._start = config
        self.broker = config  # with the changes since the start

    def use(self, image: Image) -> None:
        """Uses the broker settings of an image. Raises InvalidConfig if they are inconsistent."""
        self.broker = self._reconfigured(image.broker_configs)

    def cordoned(self, image: Image) -> frozenset[int]:
        """Returns the brokers that get no new replicas, by an image that may not be used yet."""
        if _CORDONED not in image.broker_configs:
            return frozenset(self._start.cordoned_brokers)
        config = self.broker
        with contextlib.suppress(InvalidConfig):
            config = self._reconfigured(image.broker_configs)
        return frozenset(config.cordoned_brokers)

    def of_topic(
        self, name: str, overrides: Mapping[str, str], broker: BrokerConfig | None = None
    ) -> TopicConfig:
        """Returns a topic's settings over the broker's. Raises InvalidConfig with the sentence.

        Internal topics always have the newest format, and keep the last record of each key. They
        have no window of record times: what the broker writes there must never be refused.
        """
        internal = is_internal(name)
        if internal:
            overrides = {**overrides, **_INTERNAL}
        try:
            config = topic_config(self.broker if broker is None else broker, overrides)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None
        return config.without_window() if internal else config

    def settled(
        self, name: str, overrides: Mapping[str, str]
    ) -> tuple[TopicConfig, Mapping[str, str]]:
        """Returns a topic's effective settings, and its own settings with those that they imply.

        Event-time retention without a basis implies retention.time.basis=append. That basis
        remains when event-time retention is switched off again, or old data that was just written
        would be deleted at once. A basis that somebody gives wins over it. Raises InvalidConfig.
        """
        config = self.of_topic(name, overrides)
        if not config.lacks_basis:
            return config, {}
        return self.of_topic(name, {**overrides, **_BASIS}), _BASIS

    def settled_broker(
        self, current: Mapping[str, str], changes: Mapping[str, str | None]
    ) -> dict[str, str | None]:
        """Returns the changes of the broker's settings, with the changes that they imply.

        Raises InvalidConfig.
        """
        config = self._reconfigured(merged(current, changes))
        if not config.topic_defaults.lacks_basis:
            return dict(changes)
        brought = {**changes, **_BROKER_BASIS}
        self._reconfigured(merged(current, brought))
        return brought

    def served(self, topic: Topic) -> TopicConfig:
        """Returns a topic's settings; if they are no longer valid, the broker's without deletion.

        Nothing is deleted then, because the topic may have asked to keep more than the broker does.
        """
        try:
            return self.of_topic(topic.name, topic.configs)
        except InvalidConfig as error:
            log.error(
                "topic goes by the broker's settings, and nothing of it is deleted: %s",
                error.message,
                extra={"topic": topic.name},
            )
            return self.of_topic(topic.name, KEEP)

    def served_topics(self, image: Image) -> dict[str, TopicConfig]:
        """Returns the settings of every topic of an image."""
        return {topic.name: self.served(topic) for topic in image.topics.values()}

    def _reconfigured(self, changes: Mapping[str, str]) -> BrokerConfig:
        try:
            return reconfigured(self._start, changes)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None


def topic_changes(changes: Mapping[str, Text]) -> dict[str, Text]:
    """Returns changes of a topic's settings without second names.

    Raises InvalidConfig if two names of one setting have different values.
    """
    return _named(changes, TOPIC_ALIASES)


def broker_changes(changes: Mapping[str, Text]) -> dict[str, Text]:
    """Returns changes of the broker's settings without second names, as `topic_changes` does."""
    return _named(changes, BROKER_ALIASES)


def _named(changes: Mapping[str, Text], aliases: Mapping[str, str]) -> dict[str, Text]:
    try:
        return without_aliases(changes, aliases)
    except ConfigError as error:
        raise InvalidConfig(str(error)) from None


def replacing_implied(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """Returns changes in which a basis that is given or removed also removes the implied one."""
    names = ((BASIS, IMPLIED_BASIS), (BROKER_BASIS, IMPLIED_BROKER_BASIS))
    return {**{implied: None for basis, implied in names if basis in changes}, **changes}


def merged(settings: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Returns settings after changes; None removes one."""
    return {k: v for k, v in {**settings, **changes}.items() if v is not None}


def differing(
    settings: Mapping[str, str], changes: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Returns the changes that have an effect."""
    return {name: value for name, value in changes.items() if settings.get(name) != value}
