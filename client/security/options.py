"""Every security setting of a Kafka client: what it means here, or why it is refused.

The names and the defaults are those of Kafka 3.9's `SslConfigs` and `SaslConfigs`, and of KIP-1139.
A setting that begins like one of these and is not declared is an error, because a misspelt setting
must not make a connection less secure. `docs/security.md` is derived from this file.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM_256: Final = "SCRAM-SHA-256"
SCRAM_512: Final = "SCRAM-SHA-512"
MECHANISMS: Final = ("PLAIN", SCRAM_256, SCRAM_512, "OAUTHBEARER")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
FAMILIES: Final = ("security.", "ssl.", "sasl.")


class Option(NamedTuple):
    """One setting. `choices` are its values if it has few; a secret is never shown."""

    name: str
    meaning: str
    default: str = ""
    choices: tuple[str, ...] = ()
    is_secret: bool = False


OPTIONS: Final = (
    Option("security.protocol", "how brokers are reached", "PLAINTEXT", PROTOCOLS),
    Option(
        "ssl.truststore.location",
        "a file of the certificates to trust, PEM or PKCS12; without one, those of the system",
    ),
    Option("ssl.truststore.password", "the password of a PKCS12 file", is_secret=True),
    Option("ssl.truststore.certificates", "the certificates themselves, as PEM, instead of a file"),
    Option("ssl.truststore.type", "the form of the file", "found in the file", STORE_TYPES),
    Option(
        "ssl.keystore.location",
        "a file of the client's key and certificates, PEM or PKCS12, for brokers that ask for them",
    ),
    Option("ssl.keystore.password", "the password of a PKCS12 file", is_secret=True),
    Option("ssl.keystore.key", "the key itself, as PEM, instead of a file", is_secret=True),
    Option("ssl.keystore.certificate.chain", "the certificates for `ssl.keystore.key`, as PEM"),
    Option("ssl.keystore.type", "the form of the file", "found in the file", STORE_TYPES),
    Option("ssl.key.password", "the password of an encrypted PEM key", is_secret=True),
    Option(
        "ssl.endpoint.identification.algorithm",
        "`https` compares the broker's host name with its certificate; empty does not",
        "https",
        ("https", ""),
    ),
    Option("ssl.enabled.protocols", "the TLS versions, separated by commas", "TLSv1.2,TLSv1.3"),
    Option("ssl.protocol", "the newest TLS version", "TLSv1.3", ("TLS", *TLS_VERSIONS)),
    Option("sasl.mechanism", "how the client proves who it is", "none", MECHANISMS),
    Option(
        "sasl.jaas.config",
        "a login module and its options: user name and password, or what obtains a token",
        is_secret=True,
    ),
    Option(
        "sasl.oauthbearer.token.endpoint.url",
        "`https://...`, which gives tokens for client credentials, or `file:///...` with a token",
    ),
    Option("sasl.oauthbearer.client.credentials.client.id", "instead of `clientId` in JAAS"),
    Option(
        "sasl.oauthbearer.client.credentials.client.secret",
        "instead of `clientSecret` in JAAS",
        is_secret=True,
    ),
    Option("sasl.oauthbearer.scope", "instead of `scope` in JAAS"),
    Option(
        "sasl.oauthbearer.header.urlencode",
        "whether id and secret are URL-encoded for the endpoint (RFC 6749, 2.3.1)",
        "false",
        ("true", "false"),
    ),
    Option(
        "sasl.login.connect.timeout.ms", "how long connecting to the endpoint may take", "10000"
    ),
    Option("sasl.login.read.timeout.ms", "how long the endpoint may take to answer", "10000"),
    Option(
        "sasl.login.callback.handler.class",
        "Kafka's own handler of OAUTHBEARER, which is not needed here; any other is refused",
    ),
)

BY_NAME: Final[Mapping[str, Option]] = MappingProxyType({one.name: one for one in OPTIONS})

_JAVA: Final = "it names a part of Java, and this client has none"
_KERBEROS: Final = f"Kerberos (GSSAPI) is not supported; use {', '.join(MECHANISMS)} or SSL"
_BROKER: Final = "it is a setting of brokers"
_LIBRDKAFKA: Final = "it is a name of librdkafka"

REFUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "security.providers": _JAVA,
        "ssl.provider": _JAVA,
        "ssl.keymanager.algorithm": _JAVA,
        "ssl.trustmanager.algorithm": _JAVA,
        "ssl.secure.random.implementation": _JAVA,
        "ssl.engine.factory.class": _JAVA,
        "ssl.cipher.suites": "the cipher suites are OpenSSL's own choice here",
        "sasl.client.callback.handler.class": _JAVA,
        "sasl.login.class": _JAVA,
        "sasl.oauthbearer.jwt.retriever.class": _JAVA,
        "sasl.kerberos.service.name": _KERBEROS,
        "sasl.kerberos.kinit.cmd": _KERBEROS,
        "sasl.kerberos.ticket.renew.window.factor": _KERBEROS,
        "sasl.kerberos.ticket.renew.jitter": _KERBEROS,
        "sasl.kerberos.min.time.before.relogin": _KERBEROS,
        "sasl.enabled.mechanisms": f"{_BROKER}; a client has sasl.mechanism",
        "ssl.client.auth": _BROKER,
        "ssl.principal.mapping.rules": _BROKER,
        "sasl.username": f"{_LIBRDKAFKA}; give the user name in sasl.jaas.config",
        "sasl.password": f"{_LIBRDKAFKA}; give the password in sasl.jaas.config",
        "sasl.mechanisms": f"{_LIBRDKAFKA}; write sasl.mechanism",
        "ssl.ca.location": f"{_LIBRDKAFKA}; write ssl.truststore.location",
        "ssl.certificate.location": f"{_LIBRDKAFKA}; write ssl.keystore.location",
        "ssl.key.location": f"{_LIBRDKAFKA}; write ssl.keystore.location",
    }
)
"""Known settings that this client does not have, each with the reason."""

WITHOUT_EFFECT: Final = (
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.retry.backoff.ms",
    "sasl.login.retry.backoff.max.ms",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
)
"""Settings that are accepted and not needed: the client renews tokens and retries in its own way."""
