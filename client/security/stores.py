"""Reads key stores and trust stores into PEM: files of PEM or PKCS12, or PEM given directly.

A file's form is found in its first bytes, because names lie: many a `.jks` is PKCS12. PKCS12 needs
the package `cryptography`. Java's own form, JKS, is refused with the command that converts it.
Errors are SecuritySettingsError and contain neither keys nor passwords.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.client.errors import SecuritySettingsError
from tidelog.client.security.options import TLS_VERSIONS
from tidelog.client.security.secret import HiddenValue

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAGIC: Final = (
    (b"-----", "PEM"),
    (b"\xfe\xed\xfe\xed", "JKS"),
    (b"\xce\xce\xce\xce", "JCEKS"),
    (b"\x30", "PKCS12"),
)
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_KEY: Final = "PRIVATE KEY-----"
_ENCRYPTED: Final = ("BEGIN ENCRYPTED PRIVATE KEY", "Proc-Type: 4,ENCRYPTED")


class Identity(NamedTuple):
    """A client's key and its certificates in one PEM text, and the password of the key."""

    pem: HiddenValue
    password: HiddenValue | None


class Tls(NamedTuple):
    """What a TLS client trusts (PEM, or None for the system's), and who it is."""

    trust: str | None = None
    identity: Identity | None = None
    checks_host_name: bool = True
    versions: tuple[str, ...] = TLS_VERSIONS


class Given(NamedTuple):
    """A store in the settings that begin with `prefix`: its file, and what was given with it."""

    prefix: str
    location: str
    password: HiddenValue | None
    kind: str


def read_trust(given: Given) -> str:
    """Returns the certificates to trust, as PEM. Raises SecuritySettingsError."""
    data, kind = _read(given)
    if kind == "PKCS12":
        _, certificates = _unpacked(given, data)
        return "".join(_pem(each) for each in certificates)
    text = _text(given, data)
    _refuse_password(given)
    check_certificates(f"{given.prefix}.location", text)
    return text


def read_identity(given: Given, key_password: HiddenValue | None) -> Identity:
    """Returns the client's key and certificates. Raises SecuritySettingsError."""
    data, kind = _read(given)
    if kind == "PKCS12":
        if key_password is not None and key_password != given.password:
            raise SecuritySettingsError(
                "ssl.key.password differs from ssl.keystore.password: PKCS12 has one for both"
            )
        key, certificates = _unpacked(given, data)
        if key is None:
            raise SecuritySettingsError(f"{given.prefix}.location: {given.location} has no key")
        return Identity(HiddenValue(_key_pem(key) + "".join(map(_pem, certificates))), None)
    text = _text(given, data)
    _refuse_password(given)
    return identity_of(f"{given.prefix}.location", text, key_password)


def identity_of(name: str, text: str, key_password: HiddenValue | None) -> Identity:
    """Returns PEM text as an identity, after a check of its parts. Raises SecuritySettingsError."""
    if _KEY not in text:
        raise SecuritySettingsError(f"{name} has no private key (PEM: BEGIN PRIVATE KEY)")
    if any(each in text for each in _ENCRYPTED) and key_password is None:
        raise SecuritySettingsError(f"{name} has an encrypted key: set ssl.key.password")
    check_certificates(name, text)
    return Identity(HiddenValue(text), key_password)


def check_certificates(name: str, text: str) -> None:
    """Raises SecuritySettingsError if PEM text has no certificate."""
    if _CERTIFICATE not in text:
        raise SecuritySettingsError(f"{name} has no certificate (PEM: BEGIN CERTIFICATE)")


def _read(given: Given) -> tuple[bytes, str]:
    """Returns the bytes of the file, and its form."""
    name = f"{given.prefix}.location"
    try:
        data = Path(given.location).read_bytes()
    except OSError as error:
        raise SecuritySettingsError(
            f"{name}: {given.location} cannot be read: {error.strerror}"
        ) from None
    start = data.lstrip()[:5]
    found = next((kind for magic, kind in _MAGIC if start.startswith(magic)), None)
    if found is None and _CERTIFICATE.encode() in data:
        found = "PEM"  # with text in front of the first certificate
    if found is None:
        raise SecuritySettingsError(f"{name}: {given.location} is neither PEM nor PKCS12")
    if found in ("JKS", "JCEKS"):
        raise SecuritySettingsError(
            f"{name}: {given.location} is a {found} store, which only Java reads: convert it with"
            f" keytool -importkeystore -srckeystore {given.location}"
            f" -destkeystore {Path(given.location).stem}.p12 -deststoretype PKCS12"
        )
    if given.kind not in ("", "JKS", found):
        raise SecuritySettingsError(
            f"{given.prefix}.type is {given.kind}, but {given.location} is {found}"
        )
    return data, found


def _text(given: Given, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SecuritySettingsError(
            f"{given.prefix}.location: {given.location} is not text"
        ) from None


def _refuse_password(given: Given) -> None:
    if given.password is not None:
        raise SecuritySettingsError(
            f"{given.prefix}.password is set, but a PEM file has none"
            " (ssl.key.password is that of its key)"
        )


# --- PKCS12 ---------------------------------------------------------------------------------------


def _unpacked(given: Given, data: bytes) -> tuple[Any, Sequence[Any]]:
    """Returns the key (or None) and the certificates of a PKCS12 file, the key's first."""
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise SecuritySettingsError(
            f"{given.prefix}.location: {given.location} is PKCS12, which needs the package"
            " cryptography: pip install '.[security]' in a clone of tidelog, or convert it to PEM"
        ) from None
    password = None if given.password is None else given.password.reveal().encode()
    try:
        store = pkcs12.load_pkcs12(data, password)
    except ValueError:
        raise SecuritySettingsError(
            f"{given.prefix}.location: {given.location} cannot be opened: {given.prefix}.password"
            " is wrong or missing, or the file is damaged"
        ) from None
    certificates = [each.certificate for each in (store.cert, *store.additional_certs) if each]
    if not certificates:
        raise SecuritySettingsError(f"{given.prefix}.location: {given.location} has no certificate")
    return store.key, certificates


def _pem(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return str(certificate.public_bytes(Encoding.PEM).decode())


def _key_pem(key: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return str(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
