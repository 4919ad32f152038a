"""The commands against brokers with TLS and SASL, by a file of settings."""

from __future__ import annotations

import io
import re
import sys

import pytest

from tests.secured_kafka import PASSWORD, login, properties
from tidelog.cli.parser import main

SECRET = "hunter2"
FOREIGN = re.compile(r"%\d\|[\d.]+\|\w+\|rdkafka#")  # a line of the log of librdkafka


@pytest.fixture
def run(capfd, monkeypatch):
    """Run a command: exit status, what it printed, what it complained of."""

    def run(*arguments, stdin=""):
        capfd.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        try:
            status = main([*arguments])
        except SystemExit as left:
            status = left.code
        out, err = capfd.readouterr()
        # Clients of other tests may still be looking for brokers that are gone.
        own = [line for line in err.splitlines(keepends=True) if not FOREIGN.match(line)]
        return status, out, "".join(own)

    return run


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("security.protocol=TLS", "security.protocol=TLS is unknown"),
        (f"sasl.password={SECRET}", "sasl.password is not supported: it is a name of librdkafka"),
        (
            f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=a password={SECRET};",
            "sasl.jaas.config cannot be read",
        ),
        (f"ssl.keystore.password={SECRET}", "has no effect with security.protocol=PLAINTEXT"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence_without_secrets(run, tmp_path, text, sentence):
    file = tmp_path / "client.properties"
    file.write_text(text)
    status, out, err = run("topics", "list", "--command-config", str(file))
    assert (status, out) == (2, "")
    assert err.startswith(f"tidelog topics list: --command-config {file}: ")
    assert sentence in err
    assert err.count("\n") == 1
    assert SECRET not in err


def test_a_file_that_is_not_there(run, tmp_path):
    status, _, err = run("groups", "list", "--command-config", str(tmp_path / "none"))
    assert (status, err.count("\n")) == (2, 1)
    assert f"--command-config {tmp_path}/none cannot be read: No such file" in err


@pytest.mark.oracle
class TestAgainstKafka:
    """Apache Kafka 3.9.1 with SASL_SSL."""

    @pytest.fixture
    def config(self, secured, tmp_path):
        settings = secured.settings("SASLTLS") | login("SCRAM-SHA-256")
        return properties(tmp_path / "client.properties", settings)

    def test_records_go_and_come_and_groups_are_reset(self, run, secured, config):
        where = ["--broker", secured.address("SASLTLS"), "--command-config", config]
        assert run("topics", "create", "moon", "--partitions", "2", *where)[0] == 0
        sent = "".join(f"line {number}\n" for number in range(50))
        made = run("produce", "moon", "--partition", "1", *where, stdin=sent)
        assert made == (0, "Produced 50 records to moon.\n", "")
        status, out, err = run("consume", "moon", "--format", "%s\\n", *where)
        assert (status, out, err) == (0, sent, "")
        status, out, err = run("topics", "describe", "moon", *where)
        assert (status, err) == (0, "")
        assert run("configs", "show", "moon", *where)[0] == 0
        wanted = ["readers", "moon", "--to-latest", "--yes", *where]
        status, out, err = run("groups", "reset-offsets", *wanted)
        assert status == 0
        assert err.endswith("warning: there is no group readers yet\n")
        assert "50" in out
        assert run("groups", "list", *where)[0] == 0

    def test_a_wrong_password_is_the_brokers_sentence(self, run, secured, tmp_path):
        settings = secured.settings("SASLTLS") | login("PLAIN", password=SECRET)
        file = properties(tmp_path / "wrong.properties", settings)
        where = ["--broker", secured.address("SASLTLS"), "--command-config", file]
        status, out, err = run("topics", "list", *where)
        assert (status, out) == (1, "")
        assert "refuses the login by PLAIN: Authentication failed: Invalid username" in err
        assert err.count("\n") == 1
        assert SECRET not in err
        assert PASSWORD not in err

    @pytest.mark.parametrize("listener", ["TLS", "MUTUAL"])
    def test_without_settings_the_sentence_names_the_option(self, run, secured, listener):
        status, out, err = run("topics", "list", "--broker", secured.address(listener))
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert "security.protocol" in err
        assert "--command-config FILE" in err
