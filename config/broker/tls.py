"""The settings of listeners with TLS: `ssl.*` of all of them, `listener.name.NAME.ssl.*` of one.

A store is a file, PEM or PKCS12, or PEM text in the settings themselves. The files are read when the broker
starts (broker/network/tls/contexts.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.config.setting import Type, declared_in, setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.config.setting import Given

OF_LISTENER: Final = "listener.name."
_STORE_TYPES = ("JKS", "PKCS12", "PEM")
_VERSIONS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """A broker's settings of TLS."""

    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location",
        Type.STRING,
        None,
        "The file with the broker's key and its certificates, PEM or PKCS12.",
        dynamic=False,
    )
    ssl_keystore_password: str | None = setting(
        "ssl.keystore.password",
        Type.PASSWORD,
        None,
        "The password of ssl.keystore.location, if that is PKCS12.",
        dynamic=False,
    )
    ssl_keystore_type: str = setting(
        "ssl.keystore.type",
        Type.STRING,
        "JKS",
        "The form of the key store; it is found in the file too. Java's own form, JKS, is refused with the "
        "command that converts it.",
        choices=_STORE_TYPES,
        dynamic=False,
    )
    ssl_keystore_key: str | None = setting(
        "ssl.keystore.key",
        Type.PASSWORD,
        None,
        "The broker's key itself, as PEM (PKCS#8), instead of a file.",
        dynamic=False,
    )
    ssl_keystore_certificate_chain: str | None = setting(
        "ssl.keystore.certificate.chain",
        Type.PASSWORD,
        None,
        "The certificates for ssl.keystore.key, as PEM.",
        dynamic=False,
    )
    ssl_key_password: str | None = setting(
        "ssl.key.password",
        Type.PASSWORD,
        None,
        "The password of an encrypted PEM key.",
        dynamic=False,
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols",
        Type.LIST,
        _VERSIONS,
        "The TLS versions that are served.",
        choices=_VERSIONS,
        dynamic=False,
    )
    ssl_protocol: str = setting(
        "ssl.protocol",
        Type.STRING,
        "TLSv1.3",
        "The newest TLS version that is served.",
        choices=("TLS", *_VERSIONS),
        dynamic=False,
    )


TLS_SETTINGS: Final = {each.name: each for each in declared_in(TlsConfig).values()}


def tls_settings(given: Mapping[str, Given], listener: str) -> dict[str, str]:
    """Returns the settings of TLS that hold for a listener, by name: its own, and those of all listeners."""
    found = {}
    for name in TLS_SETTINGS:
        own = f"{OF_LISTENER}{listener.lower()}.{name}"
        value = given.get(own) or given.get(name)
        if value is not None and value.value.strip():
            found[name] = value.value.strip()
    return found
