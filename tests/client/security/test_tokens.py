"""Tokens: from a file, and from an https endpoint that really serves."""

from __future__ import annotations

import base64
import contextlib
import time

import pytest

from tests.certificates import Authority
from tests.token_endpoint import CLIENT, SECRET, token_endpoint
from tidelog.client.errors import AuthenticationFailed, ConnectionBroken
from tidelog.client.security import Security
from tidelog.client.security.tokens import GivenToken, TokenFile

JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.fixture
def endpoint(tmp_path):
    authority = Authority("tests")
    (tmp_path / "trust.pem").write_text(authority.pem)
    store = authority.issue("id", hosts=["127.0.0.1"]).write_pem(tmp_path / "server.pem")
    with token_endpoint(store) as server:
        yield server


def source(endpoint, tmp_path, secret=SECRET, **more):
    """What the settings make of the endpoint."""
    security = Security.of(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"https://127.0.0.1:{endpoint.server_port}/token",
            "sasl.jaas.config": f'{JAAS} clientId="{CLIENT}" clientSecret="{secret}" scope="logs"'
            f' ssl.truststore.location="{tmp_path}/trust.pem" extension_tenant="a";',
        }
        | more
    )
    assert security.sasl.extensions == {"tenant": "a"}
    return security.sasl.tokens.source()


def test_an_endpoint_gives_a_token_that_is_used_again(endpoint, tmp_path):
    get = source(endpoint, tmp_path)
    assert [get().reveal(), get().reveal()] == ["t1", "t1"]
    (asked,) = endpoint.asked
    assert asked["form"] == {"grant_type": ["client_credentials"], "scope": ["logs"]}


def test_a_token_that_ends_soon_is_replaced(endpoint, tmp_path):
    endpoint.expires_in = 0.5
    get = source(endpoint, tmp_path)
    assert get().reveal() == "t1"
    time.sleep(0.45)
    assert get().reveal() == "t2"


def test_a_refusal_has_the_endpoints_words_and_not_the_secret(endpoint, tmp_path):
    with pytest.raises(AuthenticationFailed, match="status 401 invalid_client who are you") as told:
        source(endpoint, tmp_path, secret="wrong-secret")()
    assert "wrong-secret" not in str(told.value)
    endpoint.answer = 400, {"error": f"bad secret {SECRET}"}
    with pytest.raises(AuthenticationFailed, match=r"bad secret \(hidden\)"):
        source(endpoint, tmp_path)()


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        ((302, b""), AuthenticationFailed, "HTTP status 302$"),  # not followed
        ((503, b"later"), ConnectionBroken, "HTTP status 503"),
        ((200, b"no json"), AuthenticationFailed, "has no token"),
        ((200, {"access_token": "two words"}), AuthenticationFailed, "has no token"),
        ((200, {"token": "t"}), AuthenticationFailed, "has no token"),
        ((200, [1]), AuthenticationFailed, "has no token"),
    ],
)
def test_an_answer_without_a_token(endpoint, tmp_path, answer, error, sentence):
    endpoint.answer = answer
    with pytest.raises(error, match=sentence):
        source(endpoint, tmp_path)()


def test_the_secret_is_urlencoded_only_if_asked_for(endpoint, tmp_path):
    with contextlib.suppress(AuthenticationFailed):
        source(endpoint, tmp_path, **{"sasl.oauthbearer.header.urlencode": "true"})()
    sent = base64.b64decode(endpoint.asked[0]["authorization"].split()[1]).decode()
    assert sent == "tide:hunter2%2F%2B"


def test_an_endpoint_that_is_not_trusted_gets_no_secret(endpoint, tmp_path):
    (tmp_path / "trust.pem").write_text(Authority("another").pem)
    with pytest.raises(AuthenticationFailed, match="the certificate is not accepted"):
        source(endpoint, tmp_path)()
    assert endpoint.asked == []


def test_an_endpoint_that_is_not_there(tmp_path, endpoint):
    get = source(
        endpoint, tmp_path, **{"sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/"}
    )
    with pytest.raises(ConnectionBroken, match=r"token endpoint https://127\.0\.0\.1:1/"):
        get()


def test_a_file_is_read_each_time(tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    get = TokenFile(str(file)).source()
    assert get().reveal() == "one"
    file.write_text("two\n")
    assert get().reveal() == "two"
    file.write_text("")
    with pytest.raises(AuthenticationFailed, match="has no token"):
        get()
    file.unlink()
    with pytest.raises(AuthenticationFailed, match="cannot be read: No such file"):
        get()


def test_a_given_token_is_given():
    from tidelog.client.security.secret import HiddenValue

    assert GivenToken(HiddenValue("t")).source()().reveal() == "t"
