"""Checks security settings under Kafka's names, and makes a `Security` of them.

    Security.of({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", ...})

A setting that is unknown, wrong, or contradicts another raises SecuritySettingsError. Its sentence
says what to do, and shows no secret. Stores are read at once, so a `Security` can be sent to another
machine that has no such files; token files and endpoints are used where connections are made.
Settings about other matters (`bootstrap.servers`, `acks`) are left alone, but not a name that looks
like a misspelt one of these.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.client.errors import SecuritySettingsError
from tidelog.client.security import stores
from tidelog.client.security.logins import Bearer, Password, login_of
from tidelog.client.security.options import BY_NAME, FAMILIES, REFUSED, TLS_VERSIONS, WITHOUT_EFFECT
from tidelog.client.security.secret import HiddenValue
from tidelog.client.security.stores import Tls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ALIKE: Final = 0.85  # of a misspelt name
_PROTOCOL: Final = "security.protocol"
_MAY_BE_EMPTY: Final = "ssl.endpoint.identification.algorithm"


@dataclass(frozen=True)
class Security:
    """How brokers are reached: Kafka's protocol name, and what TLS and SASL need."""

    protocol: str
    tls: Tls | None = None
    sasl: Password | Bearer | None = None

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Security | None:
        """Returns the security that settings ask for; None if they have none.

        Raises SecuritySettingsError.
        """
        given = _known(settings)
        if not given:
            return None
        protocol = given.get(_PROTOCOL, BY_NAME[_PROTOCOL].default).upper()
        _check_choice(_PROTOCOL, protocol)
        has_tls, has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
        _check_family("ssl.", has_tls, given, protocol, "SSL or SASL_SSL")
        _check_family("sasl.", has_sasl, given, protocol, "SASL_SSL or SASL_PLAINTEXT")
        return cls(
            protocol,
            tls_of(given) if has_tls else None,
            login_of(given, _tls_in_jaas) if has_sasl else None,
        )


def tls_of(given: Mapping[str, str]) -> Tls:
    """Returns what settings that begin with `ssl.` ask for. Raises SecuritySettingsError."""
    name = "ssl.endpoint.identification.algorithm"
    algorithm = given.get(name, "https").lower()
    _check_choice(name, algorithm)
    return Tls(_trust(given), _identity(given), bool(algorithm), _versions(given))


def _tls_in_jaas(options: Mapping[str, str]) -> Tls:
    """Returns what the `ssl.` options of a login module ask for; a misspelt one is an error."""
    try:
        return tls_of(_known(options))
    except SecuritySettingsError as error:
        raise SecuritySettingsError(f"sasl.jaas.config: {error}") from None


def _known(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the security settings among these, after a check of their names."""
    found = {}
    for name, value in settings.items():
        if name in REFUSED:
            raise SecuritySettingsError(f"{name} is not supported: {REFUSED[name]}")
        if name in BY_NAME:
            found[name] = value.strip()
            if not found[name] and name != _MAY_BE_EMPTY:
                raise SecuritySettingsError(f"{name} is empty")
        elif name not in WITHOUT_EFFECT:
            _refuse_misspelt(name)
    return found


def _refuse_misspelt(name: str) -> None:
    """Raises SecuritySettingsError if a name is, or should be, that of a security setting."""
    lower = name.lower()  # names are case-sensitive: in another case one would have no effect
    alike = difflib.get_close_matches(lower, BY_NAME, n=1, cutoff=_ALIKE)
    if alike or lower.startswith(FAMILIES):
        hint = f"; did you mean {alike[0]}?" if alike else ""
        raise SecuritySettingsError(f"{name} is not a security setting of a Kafka client{hint}")


def _check_family(
    family: str, has_it: bool, given: Iterable[str], protocol: str, needed: str
) -> None:
    """Raises SecuritySettingsError for settings that the protocol does not use."""
    for name in given:
        if name.startswith(family) and not has_it:
            raise SecuritySettingsError(
                f"{name} has no effect with {_PROTOCOL}={protocol}: set {needed}, or remove it"
            )


def _check_choice(name: str, value: str) -> None:
    choices = BY_NAME[name].choices
    if value not in choices:
        named = ", ".join(one or "(empty)" for one in choices)
        raise SecuritySettingsError(f"{name}={value} is unknown: it is one of {named}")


def _versions(given: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the TLS versions that are wanted."""
    text = given.get("ssl.enabled.protocols", ",".join(TLS_VERSIONS))
    wanted = tuple(one.strip() for one in text.split(","))
    for one in wanted:
        if one not in TLS_VERSIONS:
            raise SecuritySettingsError(
                f"ssl.enabled.protocols={text}: {one or 'an empty name'} is not supported,"
                f" only {', '.join(TLS_VERSIONS)}"
            )
    newest = given.get("ssl.protocol", TLS_VERSIONS[-1])
    _check_choice("ssl.protocol", newest)
    if newest in TLS_VERSIONS:
        wanted = tuple(one for one in wanted if one <= newest)
    if not wanted:
        raise SecuritySettingsError(
            f"ssl.protocol={newest} contradicts ssl.enabled.protocols={text}"
        )
    return wanted


def _store(given: Mapping[str, str], prefix: str, inline: Iterable[str]) -> stores.Given | None:
    """Returns the store of a prefix; None if there is no file. Checks that its parts agree."""
    location, password = f"{prefix}.location", f"{prefix}.password"
    kind = given.get(f"{prefix}.type", "").upper()
    if kind:
        _check_choice(f"{prefix}.type", kind)
    direct = [name for name in inline if name in given]
    if location in given and direct:
        raise SecuritySettingsError(f"{location} and {direct[0]} are both set: remove one")
    if location in given:
        return stores.Given(prefix, given[location], _secret(given, password), kind)
    if password in given:
        raise SecuritySettingsError(f"{password} is set without {location}")
    if kind not in ("", "PEM"):
        raise SecuritySettingsError(f"{prefix}.type={kind} needs {location}")
    if kind and not direct:
        raise SecuritySettingsError(f"{prefix}.type is set without a store")
    return None


def _trust(given: Mapping[str, str]) -> str | None:
    name = "ssl.truststore.certificates"
    store = _store(given, "ssl.truststore", [name])
    if store is not None:
        return stores.read_trust(store)
    if name in given:
        stores.check_certificates(name, given[name])
    return given.get(name)


def _identity(given: Mapping[str, str]) -> stores.Identity | None:
    key, chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
    store = _store(given, "ssl.keystore", [key, chain])
    password = _secret(given, "ssl.key.password")
    if store is not None:
        return stores.read_identity(store, password)
    if (key in given) != (chain in given):
        raise SecuritySettingsError(f"{key} and {chain} belong together: one of them is missing")
    if key in given:
        return stores.identity_of(key, f"{given[key]}\n{given[chain]}\n", password)
    if password is not None:
        raise SecuritySettingsError("ssl.key.password is set without a key (ssl.keystore.location)")
    return None


def _secret(given: Mapping[str, str], name: str) -> HiddenValue | None:
    return HiddenValue(given[name]) if name in given else None
