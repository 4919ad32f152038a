"""Certificates for tests: an authority, and what it signs, as PEM and as PKCS12.

authority = Authority("tests")
server = authority.issue("broker", hosts=["localhost", "127.0.0.1"])
server.write_pem(path)
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DAY = dt.timedelta(days=1)
_NO_CIPHERS = {"encipher_only": False, "decipher_only": False}


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class Issued(NamedTuple):
    """A key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        encryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        )
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        """Write key and certificate as one file, as Kafka's PEM key stores are."""
        path.write_text(self.key_pem(password) + self.certificate_pem)
        return path

    def write_pkcs12(self, path: Path, password: str) -> Path:
        encryption = BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"own", self.key, self.certificate, None, encryption
            )
        )
        return path


class Authority:
    """An authority that signs certificates; `pem` is its own."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        usage = x509.KeyUsage(*5 * [False], key_cert_sign=True, crl_sign=True, **_NO_CIPHERS)
        builder = (
            self._builder(self._name, self._key, 3650 * DAY, -DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
        )
        self.certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(self, name: str, *, hosts: Sequence[str] = (), ended: bool = False) -> Issued:
        """Sign a certificate for some hosts; `ended`: its time was over yesterday."""
        key = ec.generate_private_key(ec.SECP256R1())
        life, begin = (DAY, -2 * DAY) if ended else (30 * DAY, -DAY)
        builder = self._builder(_name(name), key, life, begin)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(one) for one in hosts])
            builder = builder.add_extension(names, critical=False)
        return Issued(key, builder.sign(self._key, hashes.SHA256()))

    def _builder(self, subject, key, life, begin) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begin)
            .not_valid_after(now + begin + life)
            # Without these, Python's own default context refuses a certificate from 3.13 on.
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
