"""Declares the settings that promise safety and are not served: whoever gives one does not get a broker.

A broker that started without what such a setting asks for would be open, and its operator would believe
that it is not. So the start stops with a sentence, and clients cannot store such a setting. A value that
asks for nothing, such as Kafka's default, changes nothing and is accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.broker.tls import TLS_SETTINGS
from tidelog.config.ignored import IGNORED_BROKER_NAMES
from tidelog.config.setting import INT_MAX, ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_LISTENER_PREFIX = "listener.name."
_NO_RULES = "there are no access rules here, and whoever reaches a listener may do everything"
_NO_TLS = "no listener here has TLS"
_NOT_OF_TLS = "TLS does not do this here"
_NO_LOGIN = "nobody logs in here, by SASL or otherwise"
_NOTHING = frozenset({""})


class _Unserved(NamedTuple):
    """What stays open, and the values that ask for nothing, in lower case; of a list, each of its parts."""

    consequence: str
    harmless: frozenset[str] = _NOTHING


def _but(*harmless: str) -> frozenset[str]:
    return frozenset({"", *harmless})


_UNSERVED: Mapping[str, _Unserved] = {
    "authorizer.class.name": _Unserved(_NO_RULES),
    "super.users": _Unserved(_NO_RULES),
    "allow.everyone.if.no.acl.found": _Unserved(_NO_RULES, _but("true", "false")),
    "principal.builder.class": _Unserved(
        "every client is User:ANONYMOUS here",
        _but("org.apache.kafka.common.security.authenticator.defaultkafkaprincipalbuilder"),
    ),
    "connections.max.reauth.ms": _Unserved(_NO_LOGIN, _but("0")),
    "security.inter.broker.protocol": _Unserved(
        "brokers reach each other by PLAINTEXT alone", _but("plaintext")
    ),
    "client.quota.callback.class": _Unserved(
        "no class decides on quotas, and those of AlterClientQuotas hold"
    ),
    "cordoned.log.dirs": _Unserved("new partitions come to every log directory"),
    "create.topic.policy.class.name": _Unserved("no policy checks the topics that are created"),
    "alter.config.policy.class.name": _Unserved("no policy checks changes of settings"),
}
_FAMILIES: Mapping[str, str] = {"ssl.": _NO_TLS, "sasl.": _NO_LOGIN}
# Kafka's defaults within the families, and what means nothing where no listener has TLS: a file that
# spells them out asks for nothing.
_DEFAULTS: Mapping[str, frozenset[str]] = {
    "sasl.enabled.mechanisms": _but("gssapi"),
    "sasl.kerberos.kinit.cmd": _but("/usr/bin/kinit"),
    "sasl.kerberos.min.time.before.relogin": _but("60000"),
    "sasl.kerberos.principal.to.local.rules": _but("default"),
    "sasl.kerberos.ticket.renew.jitter": _but("0.05"),
    "sasl.kerberos.ticket.renew.window.factor": _but("0.8"),
    "sasl.login.refresh.buffer.seconds": _but("300"),
    "sasl.login.refresh.min.period.seconds": _but("60"),
    "sasl.login.refresh.window.factor": _but("0.8"),
    "sasl.login.refresh.window.jitter": _but("0.05"),
    "sasl.login.retry.backoff.max.ms": _but("10000"),
    "sasl.login.retry.backoff.ms": _but("100"),
    "sasl.mechanism.controller.protocol": _but("gssapi"),
    "sasl.mechanism.inter.broker.protocol": _but("gssapi"),
    "sasl.oauthbearer.allow.unverified.audience": _but("false"),
    "sasl.oauthbearer.allow.unverified.issuer": _but("false"),
    "sasl.oauthbearer.assertion.algorithm": _but("rs256"),
    "sasl.oauthbearer.assertion.claim.exp.seconds": _but("300"),
    "sasl.oauthbearer.assertion.claim.jti.include": _but("false"),
    "sasl.oauthbearer.assertion.claim.nbf.seconds": _but("60"),
    "sasl.oauthbearer.clock.skew.seconds": _but("30"),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": _but("3600000"),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": _but("10000"),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": _but("100"),
    "sasl.oauthbearer.jwt.retriever.class": _but(
        "org.apache.kafka.common.security.oauthbearer.defaultjwtretriever"
    ),
    "sasl.oauthbearer.jwt.validator.class": _but(
        "org.apache.kafka.common.security.oauthbearer.defaultjwtvalidator"
    ),
    "sasl.oauthbearer.scope.claim.name": _but("scope"),
    "sasl.oauthbearer.sub.claim.name": _but("sub"),
    "sasl.server.max.receive.size": _but("524288"),
    "ssl.allow.dn.changes": _but("false"),
    "ssl.allow.san.changes": _but("false"),
    "ssl.client.auth": _but("none"),
    "ssl.enabled.protocols": _but("tlsv1.2", "tlsv1.3"),
    "ssl.endpoint.identification.algorithm": _but("https"),
    "ssl.keymanager.algorithm": _but("sunx509"),
    "ssl.keystore.type": _but("jks", "pkcs12", "pem"),
    "ssl.principal.mapping.rules": _but("default"),
    "ssl.protocol": _but("tlsv1.2", "tlsv1.3"),
    "ssl.trustmanager.algorithm": _but("pkix"),
    "ssl.truststore.type": _but("jks", "pkcs12", "pem"),
}
# Kafka's container images name stores and their passwords in files that they alone know.
_OF_IMAGES = ("ssl.keystore", "ssl.truststore", "ssl.key")
_TRUST = "ssl.truststore."  # whose certificates are asked for by ssl.client.auth alone
# Of one listener alone; here the limits hold for all of them.
_LIMITS = frozenset({"max.connections", "max.connection.creation.rate"})

CONSEQUENCES: Mapping[str, str] = {
    **{name: rule.consequence for name, rule in _UNSERVED.items()},
    **{f"{prefix}*": consequence for prefix, consequence in _FAMILIES.items()},
}
"""Every such setting, or how a family of them begins, and what it leaves open."""


def is_promise(name: str) -> bool:
    """Returns whether a setting promises safety that is not served, such as TLS or access rules."""
    return name in _UNSERVED or _of_an_image(name)


def is_of_tls(name: str, with_tls: Collection[str]) -> bool:
    """Returns whether a setting is one of TLS that is served by one of the listeners `with_tls`."""
    listener, asked = _split(name)
    return asked in TLS_SETTINGS and (listener.upper() in with_tls if listener else bool(with_tls))


def check_served(
    name: str,
    value: str,
    origin: str = "",
    *,
    controllers: Collection[str] = (),
    with_tls: Collection[str] = (),
) -> None:
    """Checks that a setting of a broker asks for nothing that is not served. Raises ConfigError.

    The sentence does not have the value, which may be a secret. `controllers` are the listeners of
    KRaft's controllers, in upper case: none is bound here, so whatever theirs promise is of no matter.
    `with_tls` are the listeners that have TLS.
    """
    listener, asked = _split(name)
    if listener and listener.upper() in controllers:
        return
    if is_of_tls(name, with_tls) or (with_tls and asked.startswith(_TRUST)):
        return
    consequence = _consequence(asked, value, is_of_listener=bool(listener))
    if consequence == _NO_TLS and (listener.upper() in with_tls if listener else with_tls):
        consequence = _NOT_OF_TLS
    if consequence is not None:
        where = f" (from {origin})" if origin else ""
        raise ConfigError(
            f"{name}{where} asks for what is not served: {consequence}; remove it (docs/security.md "
            "says what protects a broker)"
        )


def _split(name: str) -> tuple[str, str]:
    """Returns the listener, "" if it is none, and the setting that a name means there."""
    if not name.startswith(_LISTENER_PREFIX):
        return "", name
    listener, _, asked = name.removeprefix(_LISTENER_PREFIX).partition(".")
    mechanism, sasl, rest = asked.partition(".sasl.")  # plain.sasl.jaas.config
    return listener, f"sasl.{rest}" if sasl and mechanism else asked


def _consequence(name: str, value: str, *, is_of_listener: bool) -> str | None:
    """Returns what a setting leaves open; None if it asks for nothing."""
    rule = _UNSERVED.get(name)
    if rule is None:
        family = next((each for each in _FAMILIES if name.startswith(each)), None)
        if family is not None and (
            is_of_listener
            or name in IGNORED_BROKER_NAMES
            or name in TLS_SETTINGS
            or _of_an_image(name)
        ):
            rule = _Unserved(_FAMILIES[family], _DEFAULTS.get(name, _NOTHING))
        elif is_of_listener and name in _LIMITS:
            rule = _Unserved(f"{name} holds for all listeners together", _but(str(INT_MAX)))
    parts = {part.strip() for part in value.lower().split(",")}
    if rule is None or parts <= rule.harmless:
        return None
    return rule.consequence


def _of_an_image(name: str) -> bool:
    return name.startswith(_OF_IMAGES) and name.endswith((".filename", ".credentials"))
