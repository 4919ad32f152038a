"""Which directories, addresses and settings each of several brokers is started with: pure functions.

Broker 1 has the directories of a broker that is alone, and the metadata are where that one keeps
them. So a directory of one broker becomes that of broker 1 without moving a file. Broker K has
`brokers/K` in each directory. Addresses with a port have it raised by one for each broker; port 0
stays, and means any free port.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.config import ConfigError
from tidelog.config.broker.listeners import EVERY_INTERFACE, Listener
from tidelog.storage.filenames import BROKERS_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidelog.config import BrokerConfig

MOST_BROKERS = 100
_REPLICAS = 3  # of new topics, if there are as many brokers
_OURS = ("node.id", "broker.id", "metadata.store")
_LARGEST_PORT = 65_535


def arranged(
    config: BrokerConfig, overrides: Mapping[str, str], brokers: int
) -> list[dict[str, str]]:
    """Returns the settings of the command line of each broker, from broker 1 on.

    `config` is what a broker that is alone would have, and `overrides` what the command line set of
    it. Raises ConfigError if the number of brokers is out of range, for settings that each broker
    has of its own, and for ports that two listeners would share.
    """
    if not 1 <= brokers <= MOST_BROKERS:
        raise ConfigError(f"--brokers {brokers}: expected a number from 1 to {MOST_BROKERS}")
    for name in _OURS:
        if name in overrides:
            raise ConfigError(f"{name} cannot be set with --brokers, which sets it for each broker")
    _check_ports(config, brokers)
    return [dict(overrides) | _own(config, broker, brokers) for broker in range(1, brokers + 1)]


def directories_of(directories: Sequence[str], broker: int) -> list[Path]:
    """Returns the log directories of a broker from those of a broker that is alone."""
    roots = [Path(directory) for directory in directories]
    return roots if broker == 1 else [root / BROKERS_DIRECTORY / str(broker) for root in roots]


def files_of(files: Sequence[Path], broker: int) -> list[Path]:
    """Returns the properties files of a broker: those of all, and its own beside each.

    That of broker 2 beside `cluster.properties` is `cluster.2.properties`, if it is there.
    """
    found = []
    for file in files:
        own = file.with_name(f"{file.stem}.{broker}{file.suffix}")
        found += [file, own] if own.exists() else [file]
    return found


def _own(config: BrokerConfig, broker: int, brokers: int) -> dict[str, str]:
    """Returns the settings that are a broker's own."""
    directories = directories_of(config.log_dirs, broker)
    own = {
        "node.id": str(broker),
        "metadata.store": f"sqlite:{Path(config.log_dirs[0]) / 'tidelog.sqlite'}",
        "log.dirs": ",".join(map(str, directories)),
        "listeners": _raised(config.listeners, broker),
    }
    if config.advertised_listeners:
        own["advertised.listeners"] = _raised(config.advertised_listeners, broker)
    for name, address in _extra(config):
        if address is not None:
            host, port = address
            shown = f"[{host}]" if ":" in host else host
            own[name] = f"{shown}:{_port(port, broker)}"
    if "default.replication.factor" not in config.sources:
        own["default.replication.factor"] = str(min(_REPLICAS, brokers))
    return own


def _extra(config: BrokerConfig) -> tuple[tuple[str, tuple[str, int] | None], ...]:
    return ("http.listener", config.http.address), ("control.listener", config.control)


def _raised(listeners: Sequence[Listener], broker: int) -> str:
    return ",".join(str(each._replace(port=_port(each.port, broker))) for each in listeners)


def _port(port: int, broker: int) -> int:
    return port and port + broker - 1


def _check_ports(config: BrokerConfig, brokers: int) -> None:
    """Raises ConfigError if a port does not exist, or two addresses of brokers would be the same."""
    taken: dict[int, list[tuple[str, str]]] = {}
    for name, host, port in _addresses(config):
        if port + brokers - 1 > _LARGEST_PORT:
            raise ConfigError(
                f"{name}: {brokers} brokers from port {port} on need ports above {_LARGEST_PORT}"
            )
        for number in range(port, port + brokers):
            for other, other_host in taken.setdefault(number, []):
                if host == other_host or {host, other_host} & set(EVERY_INTERFACE):
                    raise ConfigError(
                        f"port {number} would be used by {other} of one broker and by {name} of "
                        f"another: leave {brokers} ports between them"
                    )
            taken[number].append((name, host))


def _addresses(config: BrokerConfig) -> Iterator[tuple[str, str, int]]:
    """Yields what listens where, without what listens on free ports."""
    for name, host, port in config.listeners:
        if port:
            yield f"listener {name}", host, port
    for name, address in _extra(config):
        if address is not None and address[1]:
            yield name, *address
