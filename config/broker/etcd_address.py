"""Where etcd is, and which cluster's keys are meant, as `metadata.store` writes it."""

from __future__ import annotations

import re
from typing import NamedTuple

_SCHEME = "etcd://"
_DEFAULT_PORT = 2379
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXPECTED = "expected etcd://HOST:PORT,HOST:PORT/NAME; ports and /NAME may be left out"


class EtcdAddress(NamedTuple):
    """The members of an etcd cluster as HOST:PORT, and the name of the tidelog cluster in it."""

    endpoints: tuple[str, ...]
    name: str = "tidelog"


def is_etcd(store: str) -> bool:
    """Returns whether a `metadata.store` is etcd."""
    return store.startswith("etcd:")


def parse_etcd(text: str) -> EtcdAddress:
    """Returns the address in a `metadata.store`; raises ValueError."""
    if not text.startswith(_SCHEME):
        raise ValueError(_EXPECTED)
    members, slash, name = text.removeprefix(_SCHEME).partition("/")
    if slash and not _NAME.fullmatch(name):
        raise ValueError(f"{_EXPECTED}; a name has letters, digits, '.', '_' and '-'")
    endpoints = tuple(_endpoint(each.strip()) for each in members.split(","))
    if len(set(endpoints)) < len(endpoints):
        raise ValueError("a member of etcd is named twice")
    return EtcdAddress(endpoints, name) if name else EtcdAddress(endpoints)


def _endpoint(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        host, port = text, str(_DEFAULT_PORT)
    is_ipv6 = host.startswith("[") and host.endswith("]")
    is_port = port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16
    if not host or not is_port or (":" in host and not is_ipv6):
        raise ValueError(_EXPECTED)
    return f"{host}:{port}"
