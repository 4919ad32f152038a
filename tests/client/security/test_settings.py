"""Settings under Kafka's names: what they make, which are refused with which sentence, and secrets."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.secured_kafka import login, token, token_login
from tidelog.client.errors import SecuritySettingsError
from tidelog.client.security import Security, access_to, secured
from tidelog.client.security.options import BY_NAME, OPTIONS, REFUSED, WITHOUT_EFFECT

ROOT = Path(__file__).parents[3]
SECRET = "hunter2"
PLAIN = {"security.protocol": "SASL_PLAINTEXT"} | login("PLAIN", "alice", SECRET)
BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
URL = "sasl.oauthbearer.token.endpoint.url"
ENDPOINT = {URL: "https://id.example/token"}
SSL = {"security.protocol": "SSL"}
TRUST = SSL | {"ssl.truststore.location": "DIR/trust.pem"}
STORE = SSL | {"ssl.keystore.location": "DIR/client.jks", "ssl.keystore.password": SECRET}


def bearer(option='scope="s"'):
    """A client of a token endpoint, and one more option."""
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    options = f'clientId="a" clientSecret="{SECRET}" {option}'
    return {"sasl.jaas.config": f"{module} required {options};"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    directory = tmp_path_factory.mktemp("stores")
    authority = Authority("tests")
    client = authority.issue("client")
    (directory / "trust.pem").write_text("an introduction\n" + authority.pem)
    client.write_pem(directory / "client.pem")
    client.write_pem(directory / "locked.pem", SECRET)
    client.write_pkcs12(directory / "client.jks", SECRET)  # its name lies
    (directory / "empty.pem").write_text("")
    (directory / "key.pem").write_text(client.key_pem())
    (directory / "java.jks").write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    (directory / "token").write_text(token() + "\n")
    return directory


def filled(settings, stores):
    return {name: value.replace("DIR", str(stores)) for name, value in settings.items()}


def test_nothing_about_security_is_no_security():
    assert Security.of({}) is None
    assert Security.of({"bootstrap.servers": "a:1", "acks": "all", "client.id": "x"}) is None
    assert access_to("a:1", None).tls is None


@pytest.mark.parametrize(
    ("base", "line", "sentence"),
    [
        (
            {},
            "security.protcol=SSL",
            "security.protcol is not a security setting.*mean security.prot",
        ),
        ({}, "securty.protocol=SSL", "did you mean security.protocol"),
        ({}, "SECURITY.PROTOCOL=SSL", "did you mean security.protocol"),
        ({}, "SSL.Whatever=x", "SSL.Whatever is not a security setting of a Kafka client"),
        ({}, "ssl.truststore.locations=x", "did you mean ssl.truststore.location"),
        ({}, "sasl.whatever=x", "sasl.whatever is not a security setting of a Kafka client"),
        ({}, "security.protocol=TLS", "security.protocol=TLS is unknown.*PLAINTEXT, SSL"),
        ({}, "security.protocol=", "security.protocol is empty"),
        (login("PLAIN"), "", "sasl.mechanism has no effect with security.protocol=PLAINTEXT"),
        (
            {},
            "security.protocol=SASL_PLAINTEXT ssl.truststore.location=x",
            "ssl.truststore.location has no effect with security.protocol=SASL_PLAINTEXT",
        ),
        (SSL, "sasl.mechanism=PLAIN", "sasl.mechanism has no effect"),
        ({}, "security.protocol=SASL_SSL", "sasl.mechanism is not set: it is one of PLAIN"),
        (PLAIN, "sasl.mechanism=GSSAPI", "sasl.mechanism=GSSAPI is not supported"),
        (PLAIN, "sasl.mechanism=SCRAM-SHA-256", "PlainLoginModule, but.*ScramLoginModule"),
        ({}, "security.protocol=SASL_SSL sasl.mechanism=PLAIN", "sasl.jaas.config is not set"),
        (
            PLAIN | {"sasl.jaas.config": "com.sun.security.auth.module.JndiLoginModule required;"},
            "",
            "has another login module",
        ),
        (PLAIN | login("PLAIN", "", SECRET), "", "needs username and password"),
        (PLAIN | login("PLAIN", "a", ""), "", "needs username and password"),
        (PLAIN | login("PLAIN", "a", f"{SECRET}\0"), "", "may not contain NUL"),
        (
            PLAIN
            | {"sasl.jaas.config": PLAIN["sasl.jaas.config"].replace(";", ' tokenauth="true";')},
            "",
            "tokenauth is not supported",
        ),
        (PLAIN | ENDPOINT, "", "token.endpoint.url has no effect with sasl.mechanism=PLAIN"),
        (BEARER, "", "OAUTHBEARER needs a token"),
        (BEARER | ENDPOINT, "", "needs clientId and clientSecret"),
        (BEARER, f"{URL}=http://a:{SECRET}@id.example/token", "must begin with https://"),
        (
            BEARER,
            f"{URL}=https://a:{SECRET}@id.example/",
            "may not contain a user name or a password",
        ),
        (BEARER | ENDPOINT | token_login(token()), "", "token in sasl.jaas.config are both set"),
        (BEARER | token_login("no token"), "", "token has characters that no token has"),
        (BEARER | bearer(), "", "are for a token endpoint"),
        (
            BEARER | ENDPOINT | bearer(),
            f"sasl.oauthbearer.client.credentials.client.secret={SECRET}",
            "client.secret and clientSecret in sasl.jaas.config are both set",
        ),
        (
            BEARER | ENDPOINT | bearer(f'ssl.truststore.locaton="{SECRET}"'),
            "",
            "ssl.truststore.locaton is not a security setting .*; did you mean ssl.truststore.location",
        ),
        (
            BEARER | ENDPOINT | bearer(f'ssl.provider="{SECRET}"'),
            "",
            "ssl.provider is not supported: it names a part of Java",
        ),
        (
            BEARER | ENDPOINT | bearer(f'sasl.oauthbearer.scop="{SECRET}"'),
            "",
            "sasl.oauthbearer.scop is not supported; known are clientId, clientSecret, scope",
        ),
        (
            BEARER | ENDPOINT,
            "sasl.login.callback.handler.class=com.example.Handler",
            "names a class of Java",
        ),
        (
            BEARER | ENDPOINT | bearer(),
            "sasl.login.read.timeout.ms=soon",
            "soon is not a number of milliseconds",
        ),
        (SSL, "ssl.enabled.protocols=TLSv1.1,TLSv1.2", "TLSv1.1 is not supported"),
        (SSL, "ssl.enabled.protocols=TLSv1.3 ssl.protocol=TLSv1.2", "contradicts"),
        (SSL, "ssl.endpoint.identification.algorithm=ldap", "unknown: it is one of https, .empty."),
        (SSL, f"ssl.truststore.password={SECRET}", "is set without"),
        (SSL, f"ssl.key.password={SECRET}", "set without a key"),
        (SSL, "ssl.keystore.type=PKCS12", "needs ssl.keystore.location"),
        (SSL, "ssl.keystore.key=x", "belong together"),
        (SSL, "ssl.truststore.certificates=x", "has no certificate"),
        (TRUST, "ssl.truststore.certificates=x", "are both set: remove one"),
        (TRUST, f"ssl.truststore.password={SECRET}", "a PEM file has none"),
        (TRUST, "ssl.truststore.type=PKCS12", "type is PKCS12, but .* is PEM"),
        (SSL, "ssl.truststore.location=DIR/none.pem", "none.pem cannot be read: No such file"),
        (SSL, "ssl.truststore.location=DIR/empty.pem", "neither PEM nor PKCS12"),
        (SSL, "ssl.truststore.location=DIR/key.pem", "has no certificate"),
        (
            SSL,
            "ssl.truststore.location=DIR/java.jks",
            "JKS store, which only Java reads.*keytool -importkeystore",
        ),
        (SSL, "ssl.keystore.location=DIR/trust.pem", "has no private key"),
        (SSL, "ssl.keystore.location=DIR/key.pem", "has no certificate"),
        (SSL, "ssl.keystore.location=DIR/locked.pem", "encrypted key: set ssl.key.password"),
        (
            SSL,
            f"ssl.keystore.location=DIR/client.jks ssl.keystore.password=not-{SECRET}",
            "ssl.keystore.password is wrong",
        ),
        (STORE, "ssl.key.password=other", "PKCS12 has one for both"),
    ],
)
def test_a_mistake_is_a_sentence_without_secrets(base, line, sentence, stores):
    settings = base | dict(each.split("=", 1) for each in line.split())
    with pytest.raises(SecuritySettingsError, match=sentence) as told:
        Security.of(filled(settings, stores))
    assert SECRET not in str(told.value)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_not_supported_says_why(name):
    with pytest.raises(SecuritySettingsError, match=f"{name} is not supported: "):
        Security.of({name: SECRET})


# The names in SslConfigs, SaslConfigs and CommonClientConfigs of Apache Kafka 3.9.
KAFKAS = """
ssl.protocol ssl.provider ssl.cipher.suites ssl.enabled.protocols ssl.keystore.type ssl.keystore.key
ssl.keystore.certificate.chain ssl.truststore.certificates ssl.keystore.location ssl.keystore.password
ssl.key.password ssl.truststore.type ssl.truststore.location ssl.truststore.password
ssl.keymanager.algorithm ssl.trustmanager.algorithm ssl.endpoint.identification.algorithm
ssl.secure.random.implementation ssl.engine.factory.class security.protocol security.providers
sasl.mechanism sasl.jaas.config sasl.client.callback.handler.class sasl.login.callback.handler.class
sasl.login.class sasl.kerberos.service.name sasl.kerberos.kinit.cmd
sasl.kerberos.ticket.renew.window.factor sasl.kerberos.ticket.renew.jitter
sasl.kerberos.min.time.before.relogin sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.refresh.min.period.seconds
sasl.login.refresh.buffer.seconds sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.oauthbearer.scope.claim.name
sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
"""


def test_every_setting_of_kafkas_clients_is_known():
    unknown = set(KAFKAS.split()) - {*BY_NAME, *REFUSED, *WITHOUT_EFFECT}
    assert {name for name in unknown if not name.startswith("sasl.oauthbearer.")} == set()
    # What brokers alone use of OAUTHBEARER.
    assert {name.split(".")[2] for name in unknown} <= {"jwks", "clock", "expected"}


@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        PLAIN | login("SCRAM-SHA-512", "alice", SECRET),
        BEARER | token_login(f"abc.{SECRET}.def"),
        BEARER | ENDPOINT | bearer(),
        BEARER | {URL: "file:///DIR/token"},
        TRUST
        | {
            "security.protocol": "ssl",
            "ssl.keystore.location": "DIR/locked.pem",
            "ssl.key.password": SECRET,
            "ssl.protocol": "TLSv1.2",
        },
        STORE | {"ssl.keystore.type": "JKS"},  # what Kafka's default calls it
    ],
)
def test_what_is_made_shows_no_secret_and_travels(settings, stores):
    security = Security.of(filled(settings, stores))
    brokers = secured("a:9092,b:9092", security)
    for shown in (repr(security), f"{security}", repr(brokers), str(brokers), json.dumps(brokers)):
        assert SECRET not in shown
        assert "PRIVATE KEY" not in shown
    travelled = pickle.loads(pickle.dumps(brokers))
    assert travelled == "a:9092,b:9092"
    assert travelled.security == security
    assert access_to(travelled).tls is not None or security.tls is None


def test_a_wrong_password_of_a_key_is_a_sentence(stores):
    locked = {"ssl.keystore.location": str(stores / "locked.pem")}
    settings = SSL | locked | {"ssl.key.password": "not-" + SECRET}
    with pytest.raises(SecuritySettingsError, match=r"ssl\.key\.password is wrong") as told:
        access_to("a:1", Security.of(settings))
    assert SECRET not in str(told.value)


def test_a_trust_store_of_java_is_read(stores, tmp_path):
    """Keytool writes one without a key, and says JKS of it in its name."""
    made = tmp_path / "trust.jks"
    command = ["keytool", "-importcert", "-noprompt", "-alias", "ca", "-storetype", "PKCS12"]
    command += ["-file", str(stores / "ca.pem"), "-keystore", str(made), "-storepass", SECRET]
    text = (stores / "trust.pem").read_text()
    (stores / "ca.pem").write_text(text[text.index("-----") :])
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("no keytool: it is part of Java")
    given = {"ssl.truststore.location": str(made), "ssl.truststore.password": SECRET}
    security = Security.of(SSL | given)
    assert security.tls.trust.strip() == text[text.index("-----") :].strip()


def test_every_option_has_a_meaning_and_its_default_is_a_choice():
    for option in OPTIONS:
        assert option.meaning
        if option.choices and option.default != "found in the file":
            assert option.default in (*option.choices, "none")


def test_a_plaintext_client_imports_nothing_of_it():
    """Commands start with this import."""
    script = "import tidelog.client, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    imported = set(done.stdout.split())
    assert "tidelog.client.security.access" in imported
    wanted_later = {"ssl", "asyncio", "http.client", "cryptography", "concurrent.futures"}
    assert not imported & (
        wanted_later | {"tidelog.client.security.settings", "tidelog.client.security.scram"}
    )
