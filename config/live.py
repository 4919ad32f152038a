"""The broker's settings with changes that clients make while it runs.

A change that nobody could undo is refused, and so is a name that is no setting. What is stored all the same,
by an older tidelog, must not keep a broker from starting: limits of connections hold as far as somebody can
still connect, and the rest is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.config.broker.checks import check_addresses, check_undoable, undoable
from tidelog.config.ignored import IGNORED_PREFIXES
from tidelog.config.load import BROKER_NAMES, DYNAMIC, DYNAMIC_HERE, build, is_setting
from tidelog.config.setting import ConfigError, Given, no_setting
from tidelog.config.unserved import check_served

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.config.broker.settings import BrokerConfig

_DYNAMIC_ORIGIN = "changed while running"


def reconfigured(
    broker: BrokerConfig, changes: Mapping[str, str], own: Mapping[str, str] | None = None
) -> BrokerConfig:
    """Returns the broker's settings with changes made while it runs: of all brokers, and its `own`.

    They hold all changes in force, not only the newest. Raises ConfigError as `load` does, for a
    setting that needs a restart, one that is not Kafka's nor ours, and a value that nobody could undo.
    """
    for changed in (changes, own or {}):
        for name, value in changed.items():
            _check(name, value)
    return _over(broker, changes, own or {})


def _check(name: str, value: str) -> None:
    """Checks that one setting may be changed while the broker runs. Raises ConfigError."""
    owner = BROKER_NAMES.get(name)
    if owner is not None:
        if not owner.dynamic:
            raise ConfigError(f"{name} cannot be changed while the broker runs")
        check_undoable(name, owner, value)
    elif name.startswith(IGNORED_PREFIXES):
        raise no_setting(name)


def _over(broker: BrokerConfig, changes: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
    """Returns the broker's settings with changes; raises ConfigError for what contradicts the start."""
    given = {name: value for name, value in broker.given.items() if value.rank < DYNAMIC}
    for rank, changed in ((DYNAMIC, changes), (DYNAMIC_HERE, own)):
        for name, value in changed.items():
            given[name] = Given(value, _DYNAMIC_ORIGIN, rank, given.get(name))
    config = build(given, {})
    overrides = given.get("max.connections.per.ip.overrides")
    if overrides is not None and overrides.rank >= DYNAMIC:
        check_addresses(config.connections)
    return config


def usable(
    broker: BrokerConfig, changes: Mapping[str, str], own: Mapping[str, str] | None = None
) -> tuple[BrokerConfig, dict[str, str]]:
    """Returns the broker's settings with those of stored changes that can be used.

    With them comes why each of the others would be refused now, by name. An older tidelog has stored
    those, and what was given at the start may contradict a change: the broker has to start all the same.
    """
    refused: dict[str, str] = {}
    kept: tuple[dict[str, str], dict[str, str]] = {}, {}
    for taken, stored in zip(kept, (changes, own or {}), strict=True):
        for name, value in stored.items():
            try:
                if not is_setting(name):
                    raise no_setting(name)  # without a search for similar names, which takes long
                if (owner := BROKER_NAMES.get(name)) is not None and owner.least_live is not None:
                    taken[name] = undoable(name, owner, value)
                _check(name, value)
                check_served(name, value)
                taken[name] = value
            except ConfigError as error:
                holds = f"; {name}={taken[name]} holds" if name in taken else ""
                refused[name] = f"{error}{holds}"
    try:
        return _over(broker, *kept), refused
    except ConfigError:
        return _without_contradictions(broker, kept, refused)


def _without_contradictions(
    broker: BrokerConfig, stored: tuple[dict[str, str], dict[str, str]], refused: dict[str, str]
) -> tuple[BrokerConfig, dict[str, str]]:
    """Returns what `usable` does of changes that are possible one by one, and not together."""
    kept: tuple[dict[str, str], dict[str, str]] = {}, {}
    config = _over(broker, {}, {})
    for taken, changes in zip(kept, stored, strict=True):
        for name, value in sorted(changes.items()):
            taken[name] = value
            try:
                config = _over(broker, *kept)
            except ConfigError as error:
                refused[name] = str(error)
                del taken[name]
    return config, refused
