"""Settings as DescribeConfigs and CreateTopics show them: value, source, synonyms, type, doc.

The source of an entry is the strongest place in which its value was set. Its synonyms are all the
places, strongest first, ending with the default (KIP-226). A setting given under an alias is shown
under its own name.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from config.broker import BROKER_SETTINGS
from config.load import DYNAMIC
from config.setting import Setting, Type, written
from config.topic import TOPIC_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from config.broker import BrokerConfig
    from config.topic import TopicConfig


class Source(IntEnum):
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
    source: Source


class Entry(NamedTuple):
    """The description of one setting."""

    name: str
    value: str | None
    source: Source
    type: Type
    read_only: bool
    doc: str
    synonyms: tuple[Synonym, ...]

    @property
    def is_default(self) -> bool:
        """Whether the value is the default (DescribeConfigs v0)."""
        return self.source is Source.DEFAULT


def topic_entries(
    broker: BrokerConfig, config: TopicConfig, overrides: Mapping[str, str]
) -> list[Entry]:
    """Returns an entry for every setting of a topic, whose `config` was made from `overrides`."""
    entries = []
    for attribute, setting in TOPIC_SETTINGS.items():
        set_here = [
            Synonym(setting.name, overrides[name].strip(), Source.TOPIC)
            for name in setting.names
            if name in overrides
        ]
        names = [name.name for name in setting.broker_names]
        # A topic's own symmetric window replaces the broker's window, which is then no synonym.
        counts = setting.name in config.sources
        below = _given(broker, (*names, *setting.broker_aliases)) if counts else []
        final = Synonym(names[0] if names else setting.name, setting.default, Source.DEFAULT)
        entries.append(
            _entry(setting, getattr(config, attribute), (*set_here[:1], *below, final), fixed=False)
        )
    return entries


def broker_entries(broker: BrokerConfig) -> list[Entry]:
    """Returns an entry for every setting of a broker, including the defaults of topic settings."""
    entries = []
    for attribute, setting in BROKER_SETTINGS.items():
        synonyms = (
            *_given(broker, setting.names),
            Synonym(setting.name, setting.default, Source.DEFAULT),
        )
        value = getattr(broker, attribute)
        entries.append(_entry(setting, value, synonyms, fixed=not setting.dynamic))
    for attribute, setting in TOPIC_SETTINGS.items():
        name = setting.broker_names[0].name
        names = (*(each.name for each in setting.broker_names), *setting.broker_aliases)
        synonyms = (*_given(broker, names), Synonym(name, setting.default, Source.DEFAULT))
        value = getattr(broker.topic_defaults, attribute)
        entry = _entry(setting, value, synonyms, fixed=not setting.dynamic)
        entries.append(entry._replace(name=name))
    return entries


def _given(broker: BrokerConfig, names: Iterable[str]) -> list[Synonym]:
    """Returns where any of the names was set on the broker, strongest first."""
    found = [
        (name, given)
        for name in dict.fromkeys(names)
        if name in broker.given
        for given in (broker.given[name], broker.given[name].below)
        if given is not None
    ]
    found.sort(key=lambda item: -item[1].rank)  # stable: equal sources keep the order of the names
    return [
        Synonym(
            name,
            given.value.strip(),
            Source.DYNAMIC_BROKER if given.rank == DYNAMIC else Source.STATIC_BROKER,
        )
        for name, given in found
    ]


def _entry(setting: Setting, value: object, synonyms: tuple[Synonym, ...], *, fixed: bool) -> Entry:
    text = setting.default if value is None else written(value)
    return Entry(setting.name, text, synonyms[0].source, setting.type, fixed, setting.doc, synonyms)
