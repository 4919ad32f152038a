"""Settings as DescribeConfigs and CreateTopics show them: value, source, synonyms, type, doc.

The source of an entry is the strongest place in which its value was set. Its synonyms are all the
places, strongest first, ending with the default (KIP-226). A setting that has a second name is shown
under its own, and each place in which it was set has a synonym for either name.
"""

from __future__ import annotations

from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from tidelog.config import ignored
from tidelog.config.broker.settings import BROKER_SETTINGS
from tidelog.config.load import BROKER_NAMES, DEFAULT_NAMES, DYNAMIC, DYNAMIC_HERE
from tidelog.config.setting import Setting, Type, written
from tidelog.config.topic import TOPIC_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.config.broker.settings import BrokerConfig
    from tidelog.config.setting import Given
    from tidelog.config.topic import TopicConfig


class ConfigSource(IntEnum):
    """Where a value was set, by the numbers of the protocol (KIP-226)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """One place in which a value was set."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """The description of one setting."""

    name: str
    value: str | None
    source: ConfigSource
    type: Type
    read_only: bool
    doc: str
    synonyms: tuple[Synonym, ...]
    is_sensitive: bool = False  # it may be a secret, so its value is not shown

    @property
    def is_default(self) -> bool:
        """Whether the value is the default (DescribeConfigs v0)."""
        return self.source is ConfigSource.DEFAULT


def topic_entries(
    broker: BrokerConfig, config: TopicConfig, overrides: Mapping[str, str]
) -> list[ConfigEntry]:
    """Returns an entry for every setting of a topic, whose `config` was made from `overrides`."""
    entries = []
    for attribute, setting in TOPIC_SETTINGS.items():
        # A topic's own symmetric window replaces the broker's window, which is then no synonym, and
        # no window counts on the broker's own topics.
        counts = setting.name in config.sources
        named = (setting.name, *setting.aliases)
        value = next((overrides[name] for name in named if name in overrides), None)
        set_here = [
            Synonym(name, value.strip(), ConfigSource.TOPIC)
            for name in named
            if counts and value is not None
        ]
        below = _given(broker, *_default_names(setting)) if counts else []
        implied = _implied(broker, setting, overrides)
        shared = setting.broker_names[0].name if setting.broker_names else setting.name
        final = Synonym(shared, setting.default, ConfigSource.DEFAULT)
        synonyms = (*set_here, *below, *implied, final)
        entries.append(_entry(setting, getattr(config, attribute), synonyms, fixed=False))
    return entries


def broker_entries(broker: BrokerConfig) -> list[ConfigEntry]:
    """Returns an entry for every setting of a broker, including the defaults of topic settings."""
    entries = []
    for attribute, setting in BROKER_SETTINGS.items():
        synonyms = (
            *_given(broker, (setting.name, *setting.aliases), setting.fallbacks),
            Synonym(setting.name, setting.default, ConfigSource.DEFAULT),
        )
        value = attrgetter(attribute)(broker)
        entries.append(_entry(setting, value, synonyms, fixed=not setting.dynamic))
    for attribute, setting in TOPIC_SETTINGS.items():
        if not setting.broker_names:
            continue
        name = setting.broker_names[0].name
        synonyms = (
            *_given(broker, *_default_names(setting)),
            *_implied(broker, setting, {}),
            Synonym(name, setting.default, ConfigSource.DEFAULT),
        )
        value = getattr(broker.topic_defaults, attribute)
        entry = _entry(setting, value, synonyms, fixed=not setting.dynamic)
        entries.append(entry._replace(name=name))
    return entries


def unused_entries(
    stored: Iterable[str], entries: Iterable[ConfigEntry], source: ConfigSource
) -> list[ConfigEntry]:
    """Returns an entry for each name under which something is stored that is not among the `entries`.

    An older tidelog has stored it. As in Kafka it may be a secret, so nobody is told its value.
    """
    known = {each.name for each in entries}.union(BROKER_NAMES, DEFAULT_NAMES)
    doc = "It is stored, and not a setting that is used here: it can be removed."
    return [
        ConfigEntry(name, None, source, Type.UNKNOWN, False, doc, (), is_sensitive=True)
        for name in sorted(stored)
        if name not in known
    ]


def _only_at_start() -> frozenset[str]:
    """Returns the names of broker settings that clients cannot change.

    As in Kafka, the weaker names of a span, log.retention.hours beside log.retention.ms, are among them.
    """
    fixed = {each.name for each in BROKER_SETTINGS.values() if not each.dynamic}
    fixed |= ignored.ONLY_AT_START
    for setting in TOPIC_SETTINGS.values():
        names = setting.broker_names[1:] if setting.dynamic else setting.broker_names
        fixed |= {each.name for each in names}
    return frozenset(fixed)


ONLY_AT_START = _only_at_start()


def _default_names(setting: Setting) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the equal names of a topic setting's broker default, and the weaker ones."""
    if not setting.broker_names:
        return (), ()
    strongest, *weaker = (each.name for each in setting.broker_names)
    aliases = (name for name in setting.broker_aliases if name not in weaker)
    return (strongest, *(name for name in aliases if name != strongest)), tuple(weaker)


def _implied(broker: BrokerConfig, setting: Setting, overrides: Mapping[str, str]) -> list[Synonym]:
    """Returns the values of a setting that other settings implied; they are weaker than given ones."""
    if setting.implied_names is None:
        return []
    of_topic, of_broker = setting.implied_names
    own = (
        [Synonym(of_topic, overrides[of_topic], ConfigSource.TOPIC)]
        if of_topic in overrides
        else []
    )
    return [*own, *_given(broker, (of_broker,), ())]


def live_source(broker: BrokerConfig) -> ConfigSource:
    """Returns the source of a change of all brokers: as Kafka's tools name it, where there may be others."""
    return (
        ConfigSource.DYNAMIC_DEFAULT_BROKER
        if broker.cluster.metadata_store
        else ConfigSource.DYNAMIC_BROKER
    )


def _given(broker: BrokerConfig, equal: tuple[str, ...], weaker: tuple[str, ...]) -> list[Synonym]:
    """Returns where a setting was set on the broker, strongest first.

    A value under one of the `equal` names is told under all of them, because each can replace it. A
    change of all brokers is the default of one that is among several.
    """
    sources = {DYNAMIC: live_source(broker), DYNAMIC_HERE: ConfigSource.DYNAMIC_BROKER}
    found: dict[tuple[str, int], Given] = {}
    for name in (*equal, *weaker):
        given = broker.given.get(name)
        while given is not None:
            for told in equal if name in equal else (name,):
                found.setdefault((told, given.rank), given)
            given = given.below
    ranked = sorted(found.items(), key=lambda item: -item[0][1])  # stable: names keep their order
    return [
        Synonym(
            name,
            given.value.strip(),
            sources.get(rank, ConfigSource.STATIC_BROKER),
        )
        for (name, rank), given in ranked
    ]


def _entry(
    setting: Setting, value: object, synonyms: tuple[Synonym, ...], *, fixed: bool
) -> ConfigEntry:
    """Returns the entry of a setting; that of a password does not have its value."""
    text = setting.default if value is None else written(value)
    source, is_secret = synonyms[0].source, setting.type is Type.PASSWORD
    if is_secret:
        text, synonyms = None, tuple(each._replace(value=None) for each in synonyms)
    return ConfigEntry(
        setting.name, text, source, setting.type, fixed, setting.doc, synonyms, is_secret
    )
