"""Merges the sources of settings into one BrokerConfig, and a topic's overrides into its TopicConfig.

Sources, weakest first: the default, the properties file, KAFKA_* environment variables, flags, and
changes made while the broker runs. A value from a stronger source wins, whatever name it is given
under. Within one source log.retention.ms wins over log.retention.minutes, and that over
log.retention.hours, as in Kafka. Two names of one setting with different values in one source are
an error. For a topic, what is set on the topic is stronger than what is set on the broker: a
topic's own symmetric window replaces a one-sided window of the broker.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.config.broker.checks import (
    check_clock,
    check_connections,
    check_listeners,
    check_memory,
    check_message_format,
    check_metadata_files,
    check_ports,
    check_tls,
)
from tidelog.config.broker.cluster import SESSION_TIMEOUT_WITH_ETCD_MS
from tidelog.config.broker.etcd_address import is_etcd
from tidelog.config.broker.settings import BROKER_SETTINGS, BrokerConfig
from tidelog.config.environment import from_environment
from tidelog.config.ignored import IGNORED_TOPIC_NAMES, REPLACED, is_ignored, shown
from tidelog.config.properties import parse_properties
from tidelog.config.setting import (
    INT_MAX,
    BrokerName,
    ConfigError,
    Given,
    Setting,
    Type,
    arguments_of,
    closest,
    unknown,
)
from tidelog.config.topic import TOPIC_SETTINGS, TopicConfig
from tidelog.config.unserved import check_served, is_of_tls, is_promise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

FILE, ENVIRONMENT, FLAG, DYNAMIC, DYNAMIC_HERE = 1, 2, 3, 4, 5
TOPIC = "topic"
# Event-time retention implies a basis where nobody has given one.
IMPLIED_BY_TOPIC = "kept since retention.max.eventtime.ms was set on the topic"
IMPLIED_BY_BROKER = "kept since log.retention.max.eventtime.ms was set on the broker"
# How similar to a known name an unknown KAFKA_ variable must be to count as a misspelling of it.
_MISSPELT = 0.8

_Text = TypeVar("_Text", str, str | None)

# A candidate for a value: the rank of its name, the name, where it was given, and the parsed value.
_Candidate = tuple[int, str, Given, Any]


def load(
    properties: Path | Sequence[Path] | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, str],
) -> BrokerConfig:
    """Returns the broker's settings from properties files (if any), the environment and flags.

    Of several files the later wins.

    Raises ConfigError, in one sentence, for a file that cannot be read, a misspelt name, a value of
    the wrong type or out of range, and settings that contradict each other. A KAFKA_ variable that
    resembles no setting is not an error; `ignored` names it.
    """
    given: dict[str, Given] = {}
    strays: dict[str, str] = {}
    for path in [properties] if isinstance(properties, Path) else properties or ():
        for name, value in _read(path).items():
            given[name] = Given(value, str(path), FILE)
    for name, value, variable in from_environment(environ):
        if not _is_known(name) and closest(name, known_names(), _MISSPELT) is None:
            strays[variable] = shown(name, value)
            continue
        given[name] = Given(value, f"environment variable {variable}", ENVIRONMENT)
    for name, value in overrides.items():
        given[name] = Given(value, "command line", FLAG)
    config = build(given, strays)
    check_formats(config)
    return config


def check_formats(config: BrokerConfig, topic: TopicConfig | None = None) -> None:
    """Checks the message format of a topic, or the broker's default, as `check_message_format` does.

    The settings in force are not checked again when a broker starts with an older
    inter.broker.protocol.version: it stores the older format then (`stored_as`). Raises ConfigError.
    """
    name = "log.message.format.version" if topic is None else "message.format.version"
    wanted = config.topic_defaults if topic is None else topic
    check_message_format(config, wanted.message_format_version, name)


def stored_as(config: BrokerConfig, topic: TopicConfig) -> TopicConfig:
    """Returns a topic's settings with the newest message format that this broker stores."""
    if topic.target_magic <= config.newest_magic:
        return topic
    return replace(topic, message_format_version=config.cluster.inter_broker_protocol_version)


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Returns a topic's settings: its own over the broker's defaults.

    Raises ConfigError for a misspelt name, a bad value, and two names of one setting that disagree.
    """
    if not overrides:
        return broker.topic_defaults
    for name in overrides:
        if name not in TOPIC_NAMES and name not in IGNORED_TOPIC_NAMES:
            raise unknown(name, (*TOPIC_NAMES, *IGNORED_TOPIC_NAMES))
    values: dict[str, Any] = {}
    sources = dict(broker.topic_defaults.sources)
    for attribute, setting in TOPIC_SETTINGS.items():
        candidates: list[_Candidate] = [
            (0, name, Given(overrides[name], TOPIC, 0), setting.parse(overrides[name], name))
            for name in setting.names
            if name in overrides
        ]
        given = [each for each in candidates if not _is_implied(setting, each[1])]
        if given:
            values[attribute] = _strongest(given)[3]
            sources[setting.name] = TOPIC
        elif candidates and sources.get(setting.name) in (None, IMPLIED_BY_BROKER):
            values[attribute] = candidates[0][3]
            sources[setting.name] = IMPLIED_BY_TOPIC
        else:
            values[attribute] = getattr(broker.topic_defaults, attribute)
    if sources.get("message.timestamp.difference.max.ms") == TOPIC:
        for side in ("before", "after"):
            if sources.get(f"message.timestamp.{side}.max.ms") != TOPIC:
                values[f"message_timestamp_{side}_max_ms"] = None
                sources.pop(f"message.timestamp.{side}.max.ms", None)
    return TopicConfig(**values, sources=sources)


def _read(path: Path) -> dict[str, str]:
    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the properties file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the properties file {path} is not UTF-8 text") from None


# --- putting it together -------------------------------------------------------------------------


def build(given: Mapping[str, Given], strays: Mapping[str, str]) -> BrokerConfig:
    """Returns the settings that were given, by name; `strays` are variables that name none of them.

    Raises ConfigError.
    """
    ignored = dict(strays)
    for name, value in given.items():
        if name in REPLACED:
            raise ConfigError(
                f"{name} (from {value.origin}) is no longer a setting: use {REPLACED[name]}"
            )
        if not _is_known(name):
            raise unknown(name, known_names(), value.origin)
        if is_ignored(name) or is_promise(name):
            ignored[name] = shown(name, value.value)
    values, sources = _resolve(BROKER_SETTINGS, partial(_candidates, given))
    values["topic_defaults"] = _topic_defaults(given)
    parts = arguments_of(BrokerConfig, values)
    config = BrokerConfig(**parts, given=dict(given), ignored=ignored, sources=sources)
    check_clock(config)
    check_connections(config.connections)
    check_memory(config.limits)
    check_metadata_files(config.cluster)
    bound = check_listeners(
        config.listeners,
        config.advertised_listeners,
        config.listener_security_protocol_map,
        config.controller_listener_names,
        config.inter_broker_listener_name,
    )
    object.__setattr__(config, "listeners", bound)
    controllers = {name.upper() for name in config.controller_listener_names}
    with_tls = config.listeners_with_tls
    for name, value in given.items():
        check_served(name, value.value, value.origin, controllers=controllers, with_tls=with_tls)
        if name in ignored and is_of_tls(name, with_tls):
            del ignored[name]
    check_tls(config)
    check_ports(config)
    if is_etcd(config.cluster.metadata_store) and "broker.session.timeout.ms" not in sources:
        object.__setattr__(
            config.cluster, "broker_session_timeout_ms", SESSION_TIMEOUT_WITH_ETCD_MS
        )
    return config


def _topic_defaults(given: Mapping[str, Given]) -> TopicConfig:
    """Returns the broker's defaults of topic settings."""
    values, sources = _resolve(TOPIC_SETTINGS, partial(_default_candidates, given))
    for attribute, setting in TOPIC_SETTINGS.items():
        implied = None if setting.implied_names is None else given.get(setting.implied_names[1])
        if implied is not None and setting.name not in sources:
            values[attribute] = setting.parse(implied.value, setting.name, implied.origin)
            sources[setting.name] = IMPLIED_BY_BROKER
    return TopicConfig(**values, sources=sources)


def _resolve(
    settings: Mapping[str, Setting], candidates_of: Callable[[Setting], list[_Candidate]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the values that were given, by attribute, and their origins, by setting.

    Raises ConfigError.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for attribute, setting in settings.items():
        candidates = candidates_of(setting)
        if candidates:
            strongest = _strongest(candidates)
            values[attribute] = strongest[3]
            sources[setting.name] = strongest[2].origin
    return values, sources


def _candidates(given: Mapping[str, Given], setting: Setting) -> list[_Candidate]:
    """Returns what was given for a broker setting, under any name. Aliases have the same rank."""
    level = dict.fromkeys((setting.name, *setting.aliases), 0)
    level.update({name: place for place, name in enumerate(setting.fallbacks, 1)})
    return [
        (place, name, given[name], setting.parse(given[name].value, name, given[name].origin))
        for name, place in level.items()
        if name in given
    ]


def _default_candidates(given: Mapping[str, Given], setting: Setting) -> list[_Candidate]:
    """Returns what was given for the default of a topic setting, under any of its broker names."""
    found: list[_Candidate] = []
    for place, broker_name in enumerate(setting.broker_names):
        if broker_name.name in given:
            value = given[broker_name.name]
            found.append((place, broker_name.name, value, _scaled(setting, broker_name, value)))
    found += [
        (0, name, given[name], setting.parse(given[name].value, name, given[name].origin))
        for name in setting.broker_aliases
        if name in given and name not in {broker_name.name for broker_name in setting.broker_names}
    ]
    return found


def _scaled(setting: Setting, broker_name: BrokerName, given: Given) -> Any:
    """Returns a broker setting's value in the topic setting's unit; -1 for a negative value."""
    name, factor, zero = broker_name
    if factor == 1:
        value = setting.parse(given.value, name, given.origin)
    else:
        least = -INT_MAX - 1 if setting.low == -1 else 1 if setting.low == 1 else 0
        value = Setting(name, Type.INT, None, "", low=least).parse(given.value, name, given.origin)
        value = value * factor if value >= 0 else -1
    if value == 0 and not zero:
        raise ConfigError(f"{name}=0 (from {given.origin}): expected a positive number, or -1")
    return value


def _strongest(candidates: list[_Candidate]) -> _Candidate:
    """Returns the candidate that wins. Raises ConfigError if one of its rank contradicts it."""
    winner = min(candidates, key=lambda candidate: (-candidate[2].rank, candidate[0]))
    for place, name, given, value in candidates:
        if (given.rank, place) == (winner[2].rank, winner[0]) and value != winner[3]:
            raise _contradiction(winner[1], winner[2].value, name, given.value)
    return winner


def _is_implied(setting: Setting, name: str) -> bool:
    return setting.implied_names is not None and name in setting.implied_names


# --- names ---------------------------------------------------------------------------------------


def _by_name(settings: Iterable[tuple[Setting, Iterable[str]]]) -> dict[str, Setting]:
    """Returns the settings by all their names, of which each may be used once."""
    found: dict[str, Setting] = {}
    for setting, names in settings:
        for name in dict.fromkeys(names):
            assert name not in found, name
            found[name] = setting
    return found


TOPIC_NAMES: Mapping[str, Setting] = _by_name((s, s.names) for s in TOPIC_SETTINGS.values())
"""Every name a topic setting can be given by on a topic."""

DEFAULT_NAMES: Mapping[str, Setting] = _by_name(
    (s, s.default_names) for s in TOPIC_SETTINGS.values()
)
"""Every broker setting that is a topic setting's default."""

BROKER_NAMES: Mapping[str, Setting] = _by_name((s, s.names) for s in BROKER_SETTINGS.values())
"""Every name of every other broker setting."""

TOPIC_ALIASES: Mapping[str, str] = {
    alias: setting.name for setting in TOPIC_SETTINGS.values() for alias in setting.aliases
}
"""The second names of topic settings, each with the name under which the setting is stored."""

BROKER_ALIASES: Mapping[str, str] = {
    **{alias: setting.name for setting in BROKER_SETTINGS.values() for alias in setting.aliases},
    **{
        alias: setting.broker_names[0].name
        for setting in TOPIC_SETTINGS.values()
        if setting.broker_names
        for alias in setting.broker_aliases
        if alias not in {each.name for each in setting.broker_names}
    },
}
"""The second names of broker settings, each with the name under which the setting is stored."""


FOR_ONE_BROKER: frozenset[str] = frozenset(
    setting.name for setting in BROKER_SETTINGS.values() if setting.for_one_broker
)
"""The broker settings that may be changed for one of several brokers alone."""


def without_aliases(given: Mapping[str, _Text], aliases: Mapping[str, str]) -> dict[str, _Text]:
    """Returns settings under their own names instead of their second ones.

    Raises ConfigError for a setting that is given different values under its names.
    """
    found: dict[str, _Text] = {}
    said_as: dict[str, str] = {}
    for said, value in given.items():
        name = aliases.get(said, said)
        if name in found and _stripped(found[name]) != _stripped(value):
            raise _contradiction(said_as[name], found[name], said, value)
        if name not in found or said == name:
            found[name], said_as[name] = value, said
    return found


def _stripped(value: str | None) -> str | None:
    return None if value is None else value.strip()


def _contradiction(
    name: str, value: str | None, other: str, other_value: str | None
) -> ConfigError:
    def said(name: str, value: str | None) -> str:
        return f"the removal of {name}" if value is None else f"{name}={value}"

    return ConfigError(
        f"{said(name, value)} and {said(other, other_value)} are two names of one setting "
        "and contradict each other: give one of them"
    )


def _is_known(name: str) -> bool:
    return (
        name in BROKER_NAMES
        or name in DEFAULT_NAMES
        or name in REPLACED
        or is_ignored(name)
        or is_promise(name)
    )


def is_setting(name: str) -> bool:
    """Returns whether a broker accepts a name, whatever its value."""
    return _is_known(name) and name not in REPLACED


def known_names() -> tuple[str, ...]:
    """Returns the names that a broker's setting may have, but for families of them."""
    from tidelog.config.ignored import IGNORED_BROKER_NAMES

    return (*BROKER_NAMES, *DEFAULT_NAMES, *sorted(IGNORED_BROKER_NAMES))
