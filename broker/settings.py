"""The effective settings of the broker and of its topics.

The broker's settings are those given at start, overridden by dynamic settings in the metadata: those of
all brokers, and over them those of this broker. A stored setting that is invalid now, because an older
tidelog accepted it, is logged: a limit of connections is applied as far as an operator can still connect and
change it back, and other settings are ignored. This module writes nothing: a setting that a change implies
(a retention basis) is returned, and `TopicAdmin` writes it.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from tidelog.broker.metadata import own_configs
from tidelog.broker.metadata.records import size_of
from tidelog.config import (
    BROKER_ALIASES,
    TOPIC_ALIASES,
    ConfigError,
    check_formats,
    reconfigured,
    stored_as,
    topic_config,
    usable,
    without_aliases,
)
from tidelog.config.broker.checks import check_message_format, parse_broker_ids
from tidelog.config.load import BROKER_NAMES, DEFAULT_NAMES
from tidelog.protocol.errors import InvalidConfig, InvalidRequest, PolicyViolation
from tidelog.storage.time.retention import APPEND_BASIS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.config import BrokerConfig, TopicConfig

Text = TypeVar("Text", str, str | None)

log = logging.getLogger("tidelog.settings")

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
# The basis of retention, as set explicitly, and as event-time retention implies it: of a topic, and of
# the broker.
BASIS, BROKER_BASIS = "retention.time.basis", "log.retention.time.basis"
IMPLIED_BASIS, IMPLIED_BROKER_BASIS = f"{BASIS}.implied", f"{BROKER_BASIS}.implied"
_BASIS: Mapping[str, str] = MappingProxyType({IMPLIED_BASIS: APPEND_BASIS})
_BROKER_BASIS: Mapping[str, str] = MappingProxyType({IMPLIED_BROKER_BASIS: APPEND_BASIS})
_MOST_NAMED = 1_000
_MOST_CHARACTERS = 128 << 10
_CORDONED = "cordoned.brokers"
_FORMAT, _BROKER_FORMAT = "message.format.version", "log.message.format.version"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def is_internal(topic: str) -> bool:
    """Returns whether a topic is internal to the broker."""
    return topic in INTERNAL_TOPICS


class Named(Protocol):
    """A setting as a request names it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def value(self) -> str | None:
        """Its value; None for none."""


class Settings:
    """The current settings of this broker and its topics."""

    def __init__(self, config: BrokerConfig) -> None:
        """`config` is the configuration given at start."""
        self._start = config
        self.broker = config  # with the changes since the start
        self._lowered: dict[str, str] = {}  # the format versions that were warned of, by topic
        self._used: tuple[Mapping[str, str], Mapping[str, str]] | None = None  # of all, and own
        self._refused: Mapping[str, str] = {}  # why stored settings would be refused, by name
        self.refused_for_room = 0  # changes

    def use(self, image: Image) -> None:
        """Applies the broker settings of an image, except invalid ones, which are logged."""
        own = own_configs.of(image, self._start.cluster.node_id)
        if self._used == (image.broker_configs, own):
            return
        self._used = image.broker_configs, own
        self.broker, refused = usable(self._start, image.broker_configs, own)
        for name in refused.keys() - self._refused.keys():
            log.warning(
                "stored broker setting invalid",
                extra={
                    "setting": name,
                    "reason": refused[name],
                    "advice": "remove it with tidelog configs unset --of-broker",
                },
            )
        self._refused = refused

    def check_own(
        self, image: Image, current: Mapping[str, str], changes: Mapping[str, str | None]
    ) -> None:
        """Checks changes of the settings that this broker has alone. Raises InvalidConfig."""
        _, refused = usable(self._start, image.broker_configs, current)
        self._reconfigured(
            _without(image.broker_configs, refused), merged(_without(current, refused), changes)
        )

    def check_room(
        self, image: Image, before: Mapping[str, str], changes: Mapping[str, str | None]
    ) -> None:
        """Checks that the settings of a topic or of brokers stay within max.config.bytes after changes.

        Changes that do not increase the size are always accepted. Raises PolicyViolation.
        """
        config = self._start
        size = size_of(merged(before, changes))
        added = size - size_of(before)
        most = config.limits.max_config_bytes
        most_of_one = config.limits.max_config_bytes_per_resource
        if added <= 0 or (size <= most_of_one and image.config_bytes + added <= most):
            return
        self.refused_for_room += 1
        if size > most_of_one:
            raise PolicyViolation(
                f"settings of {size} bytes would exceed max.config.bytes.per.resource={most_of_one}"
            )
        raise PolicyViolation(
            f"settings take {image.config_bytes} bytes, and {added} more would exceed "
            f"max.config.bytes={most}"
        )

    def cordoned(self, image: Image) -> frozenset[int]:
        """Returns the brokers that get no new replicas, by an image that may not be applied yet."""
        stored = image.broker_configs.get(_CORDONED)
        config = self._start
        if stored is not None:
            config, _ = usable(config, {_CORDONED: stored})
        return frozenset(config.cluster.cordoned_brokers)

    def without_cordon(self, configs: Mapping[str, str], broker: int) -> Mapping[str, str]:
        """Returns broker settings without a broker in `cordoned.brokers`."""
        with contextlib.suppress(ValueError):  # then it has no effect
            listed = parse_broker_ids(configs.get(_CORDONED, ""))
            if broker in listed:
                left = ",".join(str(each) for each in listed if each != broker)
                return merged(configs, {_CORDONED: left or None})
        return configs

    def of_topic(
        self, name: str, overrides: Mapping[str, str], broker: BrokerConfig | None = None
    ) -> TopicConfig:
        """Returns a topic's settings over the broker's. Raises InvalidConfig.

        Internal topics always have the newest format, and keep the last record of each key. They
        have no window of record times: the broker's own appends must never be refused.
        """
        internal = is_internal(name)
        if internal:
            overrides = {**overrides, **_INTERNAL}
        with _as_invalid():
            config = topic_config(self.broker if broker is None else broker, overrides)
        return config.without_window() if internal else config

    def settled(
        self,
        name: str,
        overrides: Mapping[str, str],
        changes: Mapping[str, str | None] | None = None,
        image: Image | None = None,
    ) -> tuple[TopicConfig, Mapping[str, str]]:
        """Returns a topic's effective settings, and its own settings with those that they imply.

        Event-time retention without a basis implies retention.time.basis=append. That basis
        remains when event-time retention is switched off again, or old data that was just written
        would be deleted at once. A basis that is set explicitly has precedence.

        A message format must not be newer than `inter.broker.protocol.version`, if it is among the
        `changes` that led to the overrides (all, unless given). With an `image` that holds for every
        broker that is registered. Raises InvalidConfig.
        """
        config = self.of_topic(name, overrides)
        changed = overrides if changes is None else changes
        if changed.get(_FORMAT) is not None and not is_internal(name):
            with _as_invalid():
                check_formats(self.broker, config)
            self._check_others(image, _FORMAT, config)
        if not config.lacks_basis:
            return config, {}
        return self.of_topic(name, {**overrides, **_BASIS}), _BASIS

    def settled_broker(
        self,
        current: Mapping[str, str],
        changes: Mapping[str, str | None],
        image: Image | None = None,
    ) -> dict[str, str | None]:
        """Returns changes of the settings of all brokers, with the changes that they imply.

        With an `image` the changes are checked for every registered broker. Raises InvalidConfig.
        """
        config = self._changed(current, changes)
        if changes.get(_BROKER_FORMAT) is not None:
            with _as_invalid():
                check_formats(config)
            self._check_others(image, _BROKER_FORMAT, config.topic_defaults)
        if not config.topic_defaults.lacks_basis:
            return dict(changes)
        brought = {**changes, **_BROKER_BASIS}
        self._changed(current, brought)
        return brought

    def _check_others(self, image: Image | None, name: str, config: TopicConfig) -> None:
        """Raises InvalidConfig if a registered broker may not store the message format of a change.

        A broker that is down counts, too: it will lead or follow with the settings of its last start.
        """
        if image is None:
            return
        for broker, registered in sorted(image.registrations.items()):
            protocol = registered.record.protocol
            if not protocol or broker == self._start.cluster.node_id:
                continue
            cluster = replace(self.broker.cluster, inter_broker_protocol_version=protocol)
            others = replace(self.broker, cluster=cluster)
            try:
                check_message_format(others, config.message_format_version, name)
            except ConfigError as error:
                raise InvalidConfig(f"broker {broker}: {error}") from None

    def served(self, topic: Topic) -> TopicConfig:
        """Returns a topic's settings; if they are invalid now, the broker's without deletion.

        Nothing is deleted then, because the topic's settings may have kept more than the broker's do.
        A message format that is newer than `inter.broker.protocol.version` is stored as that one.
        """
        try:
            config = self.of_topic(topic.name, topic.configs)
            return config if is_internal(topic.name) else self._storable(topic.name, config)
        except InvalidConfig as error:
            log.error(
                "topic settings invalid, broker settings used and retention disabled",
                extra={"topic": topic.name, "reason": error.message},
            )
            return self.of_topic(topic.name, KEEP)

    def _storable(self, topic: str, config: TopicConfig) -> TopicConfig:
        """Returns a topic's settings with a message format that this broker may store."""
        storable = stored_as(self.broker, config)
        if storable is not config and self._lowered.get(topic) != config.message_format_version:
            self._lowered[topic] = config.message_format_version
            log.warning(
                "message.format.version above inter.broker.protocol.version, older format written",
                extra={
                    "topic": topic,
                    "message_format_version": config.message_format_version,
                    "inter_broker_protocol_version": self.broker.cluster.inter_broker_protocol_version,
                },
            )
        return storable

    def served_topics(self, image: Image) -> dict[str, TopicConfig]:
        """Returns the settings of every topic of an image."""
        return {topic.name: self.served(topic) for topic in image.topics.values()}

    def _changed(
        self, current: Mapping[str, str], changes: Mapping[str, str | None]
    ) -> BrokerConfig:
        """Returns the settings of all brokers after changes, without stored ones that are invalid.

        Raises InvalidConfig for an invalid change.
        """
        _, refused = usable(self._start, current)
        return self._reconfigured(merged(_without(current, refused), changes))

    def _reconfigured(
        self, changes: Mapping[str, str], own: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        with _as_invalid():
            return reconfigured(self._start, changes, own)


def _without(settings: Mapping[str, str], refused: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name not in refused}


def check_size(configs: Sequence[Named]) -> None:
    """Checks that a request does not name too many, or too long, settings for one topic or broker.

    The event loop handles them in one step. Raises InvalidRequest.
    """
    if len(configs) > _MOST_NAMED:
        raise InvalidRequest(f"{len(configs)} settings are named, and at most {_MOST_NAMED} can be")
    size = sum(len(each.name) + len(each.value or "") for each in configs)
    if size > _MOST_CHARACTERS:
        raise InvalidRequest(
            f"settings of {size} characters are named, and at most {_MOST_CHARACTERS} can be"
        )


def topic_changes(changes: Mapping[str, Text]) -> dict[str, Text]:
    """Returns changes of a topic's settings without second names.

    Raises InvalidConfig if two names of one setting have different values.
    """
    return _named(changes, TOPIC_ALIASES)


def broker_changes(changes: Mapping[str, Text]) -> dict[str, Text]:
    """Returns changes of the broker's settings without second names, as `topic_changes` does."""
    return _named(changes, BROKER_ALIASES)


def _named(changes: Mapping[str, Text], aliases: Mapping[str, str]) -> dict[str, Text]:
    with _as_invalid():
        return without_aliases(changes, aliases)


@contextlib.contextmanager
def _as_invalid() -> Iterator[None]:
    """Raises a ConfigError as InvalidConfig, with the same sentence."""
    try:
        yield
    except ConfigError as error:
        raise InvalidConfig(str(error)) from None


def replacing_implied(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """Returns changes in which a basis that is set or removed also removes the implied one."""
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


def log_ignored(config: BrokerConfig) -> None:
    """Logs every setting that was given at the start and has no effect."""
    for name, value in config.ignored.items():
        log.info("setting accepted and ignored", extra={"setting": name, "value": value})
    for name, given in config.given.items():
        setting = BROKER_NAMES.get(name) or DEFAULT_NAMES.get(name)
        if setting is not None and not setting.effective:
            extra = {"setting": name, "value": given.value}
            log.info("setting accepted and ignored", extra=extra)
