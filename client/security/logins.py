"""What the SASL settings ask for: a password or a source of tokens, checked for the mechanism."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from tidelog.client.errors import SecuritySettingsError
from tidelog.client.security.jaas import parse_jaas
from tidelog.client.security.mechanisms import OAuthBearer, Plain, Scram
from tidelog.client.security.options import BY_NAME, MECHANISMS, SCRAM_256, SCRAM_512
from tidelog.client.security.secret import HiddenValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.client.security.mechanisms import Mechanism
    from tidelog.client.security.stores import Tls
    from tidelog.client.security.tokens import GivenToken, TokenEndpoint, TokenFile

_MODULES: Final = "org.apache.kafka.common.security."
_SCRAM_MODULE: Final = f"{_MODULES}scram.ScramLoginModule"
_MODULE_OF: Final = {
    "PLAIN": f"{_MODULES}plain.PlainLoginModule",
    SCRAM_256: _SCRAM_MODULE,
    SCRAM_512: _SCRAM_MODULE,
    "OAUTHBEARER": f"{_MODULES}oauthbearer.OAuthBearerLoginModule",
}
_HANDLERS: Final = (
    f"{_MODULES}oauthbearer.OAuthBearerLoginCallbackHandler",
    f"{_MODULES}oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_MECHANISM: Final = "sasl.mechanism"
_JAAS: Final = "sasl.jaas.config"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT: Final = "sasl.oauthbearer.client.credentials.client"
_HANDLER: Final = "sasl.login.callback.handler.class"
_OF_TOKENS: Final = ("sasl.oauthbearer.", "sasl.login.")
_EXTENSION: Final = "extension_"
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")  # RFC 7628
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]*")


@dataclass(frozen=True)
class Password:
    """A user's name and password, for PLAIN or SCRAM."""

    name: str
    user: str
    password: HiddenValue

    def mechanism(self) -> Mechanism:
        """Returns the mechanism that uses them."""
        if self.name == Plain.name:
            return Plain(self.user, self.password)
        return Scram(self.name, self.user, self.password)


@dataclass(frozen=True)
class Bearer:
    """Where tokens come from, and the extensions that are sent with one (KIP-342)."""

    tokens: GivenToken | TokenFile | TokenEndpoint
    extensions: dict[str, str] = field(default_factory=dict)

    def mechanism(self) -> Mechanism:
        """Returns the mechanism that uses them."""
        return OAuthBearer(self.tokens.source(), self.extensions)


def login_of(
    given: Mapping[str, str], tls_of: Callable[[Mapping[str, str]], Tls]
) -> Password | Bearer:
    """Returns what the settings that begin with `sasl.` ask for. Raises SecuritySettingsError."""
    mechanism = given.get(_MECHANISM)
    if mechanism is None:
        raise SecuritySettingsError(
            f"{_MECHANISM} is not set: it is one of {', '.join(MECHANISMS)}"
            " (Kafka's default, GSSAPI, is not supported)"
        )
    if mechanism not in MECHANISMS:
        raise SecuritySettingsError(
            f"{_MECHANISM}={mechanism} is not supported: it is one of {', '.join(MECHANISMS)}"
        )
    options = _jaas_options(given, mechanism)
    if mechanism == OAuthBearer.name:
        return _bearer(given, options, tls_of)
    for name in given:
        if name.startswith(_OF_TOKENS):
            raise SecuritySettingsError(f"{name} has no effect with {_MECHANISM}={mechanism}")
    _check_options(options, ("username", "password"))
    user, password = options.get("username"), options.get("password")
    if user is None or password is None or not user.reveal() or not password.reveal():
        raise SecuritySettingsError(f"{_JAAS} needs username and password for {mechanism}")
    if "\0" in user.reveal() + password.reveal():
        raise SecuritySettingsError(f"{_JAAS}: username and password may not contain NUL")
    return Password(mechanism, user.reveal(), password)


def _jaas_options(given: Mapping[str, str], mechanism: str) -> dict[str, HiddenValue]:
    """Returns the options of the login module, which must be that of the mechanism."""
    if _JAAS not in given:
        if mechanism == OAuthBearer.name:
            return {}
        raise SecuritySettingsError(
            f"{_JAAS} is not set: {mechanism} needs"
            f' {_MODULE_OF[mechanism]} required username="..." password="...";'
        )
    login = parse_jaas(given[_JAAS])
    if login.module != _MODULE_OF[mechanism]:
        known = login.module if login.module in _MODULE_OF.values() else "another login module"
        raise SecuritySettingsError(
            f"{_JAAS} has {known}, but {_MECHANISM}={mechanism} needs {_MODULE_OF[mechanism]}"
        )
    return login.options


def _check_options(options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for number, name in enumerate(options, 1):
        if name not in known:
            is_name = name.isidentifier() or name.startswith(("ssl.", "sasl."))  # and no value
            shown = name if is_name else f"option {number}"
            raise SecuritySettingsError(
                f"{_JAAS}: {shown} is not supported; known are {', '.join(known)}"
            )


# --- OAUTHBEARER ----------------------------------------------------------------------------------


def _bearer(
    given: Mapping[str, str],
    options: Mapping[str, HiddenValue],
    tls_of: Callable[[Mapping[str, str]], Tls],
) -> Bearer:
    if given.get(_HANDLER, _HANDLERS[0]) not in _HANDLERS:
        raise SecuritySettingsError(
            f"{_HANDLER} names a class of Java that this client does not have: remove it, and give"
            f" {_URL}"
        )
    extensions = {
        name.removeprefix(_EXTENSION): value.reveal()
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    }
    for name, text in extensions.items():
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
            raise SecuritySettingsError(f"{_JAAS}: {_EXTENSION}{name} has an invalid name")
        if not _EXTENSION_VALUE.fullmatch(text):
            raise SecuritySettingsError(f"{_JAAS}: {_EXTENSION}{name} has invalid characters")
    others = {
        name: value for name, value in options.items() if not name.startswith((_EXTENSION, "ssl."))
    }
    _check_options(others, ("clientId", "clientSecret", "scope", "token"))
    endpoint_tls = {
        name: value.reveal() for name, value in options.items() if name.startswith("ssl.")
    }
    return Bearer(_tokens(given, others, endpoint_tls, tls_of), extensions)


def _tokens(
    given: Mapping[str, str],
    options: Mapping[str, HiddenValue],
    endpoint_tls: Mapping[str, str],
    tls_of: Callable[[Mapping[str, str]], Tls],
) -> GivenToken | TokenFile | TokenEndpoint:
    from tidelog.client.security import tokens

    url = given.get(_URL)
    parts = urlsplit(url or "")
    is_endpoint = parts.scheme == "https" and bool(parts.hostname)
    client_id = _either(given, f"{_CLIENT}.id", options, "clientId")
    client_secret = _either(given, f"{_CLIENT}.secret", options, "clientSecret")
    scope = _either(given, "sasl.oauthbearer.scope", options, "scope")
    if not is_endpoint and (client_id or client_secret or scope or endpoint_tls):
        raise SecuritySettingsError(
            f"client id, secret, scope and ssl. options in {_JAAS} are for a token endpoint: set"
            f" {_URL}=https://..."
        )
    if "token" in options:
        if url is not None:
            raise SecuritySettingsError(f"{_URL} and token in {_JAAS} are both set: remove one")
        if not tokens.is_token(options["token"].reveal()):
            raise SecuritySettingsError(f"{_JAAS}: token has characters that no token has")
        return tokens.GivenToken(options["token"])
    if url is None:
        raise SecuritySettingsError(
            f"OAUTHBEARER needs a token: set {_URL} to https://... or file:///..., or token in {_JAAS}"
        )
    if parts.scheme == "file" and parts.path and not parts.netloc:
        return tokens.TokenFile(unquote(parts.path))
    if not is_endpoint:
        raise SecuritySettingsError(
            f"{_URL} must begin with https:// (a secret is sent there) or file:///"
        )
    if parts.username is not None or parts.password is not None:
        raise SecuritySettingsError(f"{_URL} may not contain a user name or a password")
    if client_id is None or client_secret is None:
        raise SecuritySettingsError(
            f"{_URL} needs clientId and clientSecret in {_JAAS}, or {_CLIENT}.id and .secret"
        )
    return tokens.TokenEndpoint(
        url=url,
        client_id=client_id,
        client_secret=HiddenValue(client_secret),
        scope=scope,
        tls=tls_of(endpoint_tls),
        is_urlencoded=_boolean(given, "sasl.oauthbearer.header.urlencode"),
        connect_timeout_s=_seconds(given, "sasl.login.connect.timeout.ms"),
        read_timeout_s=_seconds(given, "sasl.login.read.timeout.ms"),
    )


def _either(
    given: Mapping[str, str], name: str, options: Mapping[str, HiddenValue], option: str
) -> str | None:
    """Returns a value that is a setting or an option of JAAS, but not both."""
    if name in given and option in options:
        raise SecuritySettingsError(f"{name} and {option} in {_JAAS} are both set: remove one")
    return options[option].reveal() if option in options else given.get(name)


def _boolean(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, BY_NAME[name].default)
    if text not in BY_NAME[name].choices:
        raise SecuritySettingsError(f"{name}={text} is neither true nor false")
    return text == "true"


def _seconds(given: Mapping[str, str], name: str) -> float:
    text = given.get(name, BY_NAME[name].default)
    if not text.isdecimal() or not 0 < int(text) <= 10**9:
        raise SecuritySettingsError(f"{name}={text} is not a number of milliseconds")
    return int(text) / 1000
