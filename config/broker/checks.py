"""Checks of broker settings that depend on each other, and parsers of single ones."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from tidelog.config.broker.etcd_address import is_etcd, parse_etcd
from tidelog.config.broker.listeners import (
    Listener,
    are_same_port,
    is_loopback,
    parse_protocol_map,
    protocol_of,
)
from tidelog.config.broker.tls import OF_LISTENER, tls_settings
from tidelog.config.setting import ConfigError
from tidelog.config.versions import FIRST_RELEASE_OF, magic_of

if TYPE_CHECKING:
    from tidelog.config.broker.cluster import ClusterConfig
    from tidelog.config.broker.connections import ConnectionsConfig
    from tidelog.config.broker.limits import LimitsConfig
    from tidelog.config.broker.settings import BrokerConfig
    from tidelog.config.setting import Setting

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SERVED_PROTOCOLS = ("PLAINTEXT", "SSL")
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"


def parse_node_id(text: str) -> int:
    """Returns the node id; 1 for -1, with which Kafka asks for an id of the broker's choosing."""
    return 1 if int(text) == -1 else int(text)


def parse_metadata_store(text: str) -> str:
    """Returns the store of the metadata; raises ValueError."""
    kind, _, path = text.partition(":")
    if is_etcd(text):
        parse_etcd(text)
    elif text and (kind != "sqlite" or not path):
        raise ValueError("expected sqlite:PATH, the path of a file, etcd://HOST:PORT, or nothing")
    return text


def parse_replica_selector(text: str) -> str:
    """Returns the class that chooses the replica for a consumer, one of Kafka's; raises ValueError."""
    if text not in (RACK_AWARE_SELECTOR, LEADER_SELECTOR):
        raise ValueError(f"expected {RACK_AWARE_SELECTOR} or {LEADER_SELECTOR}")
    return text


def parse_broker_ids(text: str) -> tuple[int, ...]:
    """Parses broker ids that are separated by commas. Raises ValueError."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise ValueError("expected ids of brokers, separated by commas")
    return tuple(sorted(set(map(int, parts))))


def parse_log_dirs(text: str) -> tuple[str, ...]:
    """Parses directories that are separated by commas. Raises ValueError."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise ValueError("expected at least one directory")
    if len(set(found)) < len(found):
        raise ValueError("a directory is named twice")
    return found


def check_metadata_files(config: ClusterConfig) -> None:
    """Checks that a certificate and its key are both named, or neither; raises ConfigError."""
    if bool(config.metadata_store_certificate_file) != bool(config.metadata_store_key_file):
        raise ConfigError(
            "metadata.store.certificate.file and metadata.store.key.file need each other"
        )
    if bool(config.metadata_store_user) != bool(config.metadata_store_password_file):
        raise ConfigError("metadata.store.user and metadata.store.password.file need each other")


def check_memory(config: LimitsConfig) -> None:
    """Checks that queued requests may take as much as the largest of them; raises ConfigError."""
    queued_bytes = config.queued_max_request_bytes
    if 0 < queued_bytes < config.socket_request_max_bytes:
        raise ConfigError(
            f"queued.max.request.bytes={queued_bytes} must not be less than "
            f"socket.request.max.bytes={config.socket_request_max_bytes}"
        )


def check_connections(config: ConnectionsConfig) -> None:
    """Checks that some address may connect, as Kafka does; raises ConfigError."""
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        raise ConfigError(
            "max.connections.per.ip=0 needs max.connections.per.ip.overrides: else nobody could connect"
        )


def check_undoable(name: str, setting: Setting, text: str) -> None:
    """Checks that clients can still connect, and undo a change made while brokers run.

    Raises ConfigError.
    """
    least = setting.least_live
    if least is None:
        return
    value = setting.parse(text, name)
    limits = [each.most for each in value] if isinstance(value, tuple) else [value]
    if any(limit < least for limit in limits):
        raise ConfigError(
            f"{name}={text.strip()}: the least possible value while the broker runs is {least}, because with "
            "less nobody might be able to connect and undo it; less can be given when the broker starts"
        )


def undoable(name: str, setting: Setting, text: str) -> str:
    """Returns what holds of a limit that an older tidelog has stored, so that it can be undone.

    A lower limit holds as the least one that may be set while brokers run. That of a single address
    holds as it is, unless it is of this machine: others can connect. Raises ConfigError.
    """
    least, value = setting.least_live or 0, setting.parse(text, name)
    if not isinstance(value, tuple):
        return str(max(value, least))
    limits = (
        limit._replace(most=max(limit.most, least))
        if ipaddress.ip_address(limit.address).is_loopback
        else limit
        for limit in value
    )
    return ",".join(map(str, limits))


def check_addresses(config: ConnectionsConfig) -> None:
    """Checks a change of `max.connections.per.ip.overrides` made while brokers run; raises ConfigError."""
    if config.max_connections_per_ip == 0:
        raise ConfigError(
            "max.connections.per.ip=0 lets nobody connect but the addresses of "
            "max.connections.per.ip.overrides: those can only be changed when the broker starts"
        )


def check_clock(config: BrokerConfig) -> None:
    """Checks that a manual clock can be moved and no other has a start; raises ConfigError."""
    if config.clock == "manual":
        if not config.control_listener:
            raise ConfigError(
                "clock=manual needs a control.listener, such as 127.0.0.1:0 (--control): without it the "
                "clock would stand still for ever"
            )
    elif config.clock_start_ms is not None:
        raise ConfigError(
            f"clock.start.ms={config.clock_start_ms} needs clock=manual: the machine's clock is not set"
        )


def check_message_format(config: BrokerConfig, version: str, name: str) -> None:
    """Checks that a message format is not newer than what the brokers may store (KIP-32).

    `version` is the release that was given under `name`. Raises ConfigError.
    """
    magic = magic_of(version)
    if magic > config.newest_magic:
        raise ConfigError(
            f"{name}={version} is message format {magic}, and inter.broker.protocol.version="
            f"{config.cluster.inter_broker_protocol_version} allows none newer than {config.newest_magic}: "
            f"set inter.broker.protocol.version to {FIRST_RELEASE_OF[magic]} or later on every "
            f"broker first, or an older {name}"
        )


def check_listeners(
    listeners: tuple[Listener, ...],
    advertised: tuple[Listener, ...],
    protocol_map: str,
    controllers: tuple[str, ...],
    inter_broker: str,
) -> tuple[Listener, ...]:
    """Returns the listeners to bind, after checking that they agree with the settings around them.

    Those of KRaft's controllers are not bound, and may be advertised. Raises ConfigError for a protocol
    that is not served, a listener without a protocol, and an advertised listener, or one of the other
    brokers, that is not bound.
    """
    of_controllers = {name.upper() for name in controllers}
    ours = tuple(at for at in listeners if at.name not in of_controllers)
    if not ours:
        raise ConfigError(
            "every one of the listeners is named in controller.listener.names: a broker needs one of its own"
        )
    protocols = parse_protocol_map(protocol_map)
    for listener in ours:
        protocol = protocol_of(listener, protocols)
        if protocol is None:
            raise ConfigError(
                f"listener {listener.name} has no protocol: add {listener.name}:PLAINTEXT to "
                "listener.security.protocol.map"
            )
        if protocol not in SERVED_PROTOCOLS:
            raise ConfigError(
                f"listener {listener.name} asks for {protocol}, and only {' and '.join(SERVED_PROTOCOLS)} "
                "are served"
            )
    names = {listener.name for listener in ours}
    for listener in advertised:
        if listener.name not in names | of_controllers:
            raise ConfigError(
                f"advertised.listeners names {listener.name}, which is not among the listeners"
            )
    if inter_broker and inter_broker not in names:
        raise ConfigError(
            f"inter.broker.listener.name={inter_broker} is not among the listeners: name one of "
            f"{', '.join(sorted(names))}, or none"
        )
    return ours


def check_tls(config: BrokerConfig) -> None:
    """Checks that each listener with TLS has a key, and that other brokers come by one without.

    Raises ConfigError.
    """
    with_tls = config.listeners_with_tls
    for name in with_tls:
        settings = tls_settings(config.given, name)
        if not {"ssl.keystore.location", "ssl.keystore.key"} & settings.keys():
            raise ConfigError(
                f"listener {name} has TLS, and the broker has no key: set ssl.keystore.location, or "
                f"{OF_LISTENER}{name.lower()}.ssl.keystore.location for this listener alone"
            )
    between = config.inter_broker_listener_name or config.listeners[0].name
    if config.cluster.metadata_store and between in with_tls:
        raise ConfigError(
            f"listener {between} has TLS, and brokers reach each other by PLAINTEXT alone: name a "
            "listener of PLAINTEXT in inter.broker.listener.name"
        )


def check_reach(config: BrokerConfig) -> None:
    """Checks that nobody is sent to a listener on loopback that was not asked for; raises ConfigError.

    Without `listeners` a broker listens there alone, where neither the brokers of other machines reach it
    nor the clients that are given another address.
    """
    if "listeners" in config.sources:
        return
    host = config.listeners[0].host
    outside = [at for at in config.advertised_listeners if not is_loopback(at.host)]
    if outside:
        reason = f"advertised.listeners sends clients to {outside[0].host}"
    elif is_etcd(config.cluster.metadata_store):
        reason = "the brokers of metadata.store=etcd://... may be on other machines"
    else:
        return
    raise ConfigError(
        f"listeners is not set, so the broker would listen on {host} alone, but {reason}: set "
        "listeners=PLAINTEXT://:9092 to listen on every interface"
    )


def check_ports(config: BrokerConfig) -> None:
    """Checks that no two of the broker's ports are the same; raises ConfigError."""
    taken = [(f"listener {at.name}", (at.host, at.port)) for at in config.listeners]
    for name, address in (
        ("http.listener", config.http.address),
        ("control.listener", config.control),
    ):
        if address is None:
            continue
        for other, other_address in taken:
            if are_same_port(address, other_address):
                raise ConfigError(
                    f"{name} and {other} would both have port {address[1]}: name another one, or 0 for a "
                    "free one"
                )
        taken.append((name, address))
