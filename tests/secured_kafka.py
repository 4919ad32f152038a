"""Apache Kafka with secured listeners, one for each way to fail, and settings that succeed there.

`LISTENERS` says what each is. Alice may log in by PLAIN and both kinds of SCRAM. A token is
unsigned, as Kafka's default handler takes it, for tests alone.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from typing import TYPE_CHECKING, NamedTuple

from tests.certificates import Authority, Issued
from tests.oracle import wire
from tests.oracle.apache_kafka import QUICK, ApacheKafka
from tests.oracle.brokers import wait_for_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

USER, PASSWORD = "alice", 'alice-sécrèt,=;"\\'
STORE_PASSWORD = "store-password"
LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",  # demands a client certificate
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",  # its certificate is of another host
    "SASLTLS": "SASL_SSL",
    "SASLPLAIN": "SASL_PLAINTEXT",
    "BRIEF": "SASL_PLAINTEXT",  # sessions of four seconds
}
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
SESSION_MS = 4000
_MODULES = "org.apache.kafka.common.security."
_SCRAM = f"{_MODULES}scram.ScramLoginModule required;"
_BEARER = f"{_MODULES}oauthbearer.OAuthBearerLoginModule required;"


def jaas_text(value: str) -> str:
    """A value between quotation marks, as JAAS has it."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def token(subject: str = USER, *, lasts_s: int = 3600) -> str:
    """An unsigned token, for Kafka's handler of tests."""

    def part(content: dict) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    now = int(time.time())
    claims = {"sub": subject, "iat": now, "exp": now + lasts_s}
    return f"{part({'alg': 'none'})}.{part(claims)}."


def login(mechanism: str, user: str = USER, password: str = PASSWORD) -> dict[str, str]:
    """The settings of a login by a password."""
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{_MODULES}{kind}LoginModule required"
        f" username={jaas_text(user)} password={jaas_text(password)};",
    }


def token_login(text: str) -> dict[str, str]:
    """The settings of a login by a token."""
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{_MODULES}oauthbearer.OAuthBearerLoginModule required token={jaas_text(text)};",
    }


def properties(path: Path, settings: Mapping[str, str]) -> str:
    """Writes settings as a client properties file; returns its path."""
    lines = (f"{name}={value.replace(chr(92), 2 * chr(92))}" for name, value in settings.items())
    path.write_text("# a comment\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


class Secured(NamedTuple):
    """A running broker, and what its clients need."""

    kafka: ApacheKafka
    authority: Authority
    client: Issued
    directory: Path

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.kafka.ports[listener]}"

    @property
    def trust(self) -> dict[str, str]:
        return {"ssl.truststore.location": str(self.directory / "trust.pem")}

    @property
    def identity(self) -> dict[str, str]:
        return {"ssl.keystore.location": str(self.directory / "client.pem")}

    def settings(self, listener: str, **more: str) -> dict[str, str]:
        """The protocol of a listener, and the authority to trust."""
        protocol = LISTENERS[listener]
        found = {"security.protocol": protocol}
        return found | (self.trust if protocol.endswith("SSL") else {}) | more


@contextlib.contextmanager
def secured_kafka(directory: Path) -> Iterator[Secured]:
    """Run Apache Kafka 3.9.1 with all the listeners."""
    authority = Authority("tidelog tests")
    hosts = ["127.0.0.1", "localhost"]
    stores = {
        "own": authority.issue("broker", hosts=hosts),
        "expired": authority.issue("broker", hosts=hosts, ended=True),
        "elsewhere": authority.issue("elsewhere", hosts=["broker.example"]),
    }
    paths = {name: issued.write_pem(directory / f"{name}.pem") for name, issued in stores.items()}
    (directory / "trust.pem").write_text(authority.pem)
    client = authority.issue("client")
    client.write_pem(directory / "client.pem")
    properties = _properties(paths, directory / "trust.pem")
    with ApacheKafka(
        "3.9.1", directory / "kafka", properties, listeners=LISTENERS, jvm=QUICK
    ) as kafka:
        _add_users(kafka)
        yield Secured(kafka, authority, client, directory)


def _properties(paths: dict[str, Path], trust: Path) -> dict[str, str]:
    found = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(paths["own"]),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
        "sasl.enabled.mechanisms": MECHANISMS,
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.mutual.ssl.client.auth": "required",
    }
    for name in ("expired", "elsewhere"):
        found[f"listener.name.{name}.ssl.keystore.location"] = str(paths[name])
        found[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
    for listener, protocol in LISTENERS.items():
        if not protocol.startswith("SASL"):
            continue
        prefix = f"listener.name.{listener.lower()}"
        password = jaas_text(PASSWORD).replace("\\", "\\\\")
        found |= {
            f"{prefix}.plain.sasl.jaas.config": f"{_MODULES}plain.PlainLoginModule required"
            f" user_{USER}={_escaped(password)};",
            f"{prefix}.scram-sha-256.sasl.jaas.config": _SCRAM,
            f"{prefix}.scram-sha-512.sasl.jaas.config": _SCRAM,
            f"{prefix}.oauthbearer.sasl.jaas.config": _BEARER,
        }
    for mechanism in MECHANISMS.lower().split(","):
        found[f"listener.name.brief.{mechanism}.connections.max.reauth.ms"] = str(SESSION_MS)
    return found


def _escaped(text: str) -> str:
    """Text for a properties file, which Java reads as Latin-1."""
    return "".join(one if one.isascii() else f"\\u{ord(one):04x}" for one in text)


def _add_users(kafka: ApacheKafka) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(30)
    # The controller answers before the broker knows the users.
    with wire.Connection(kafka.bootstrap, timeout_s=60) as connection:
        wait_for_changes(connection)
