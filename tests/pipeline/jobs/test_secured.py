"""Jobs between secured listeners of Apache Kafka: what arrives, and that nothing written is secret."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.secured_kafka import PASSWORD, login, properties, token, token_login
from tidelog.client import Client, GroupOffset
from tidelog.client.security import Security
from tidelog.pipeline import cli
from tidelog.pipeline.errors import FAILED, FINDINGS, OK, USAGE
from tidelog.protocol.records.batch import Record, build, records, scan

COUNT = 500
GROUP = "moving"  # a failover takes all topics of a group: no other test may use this one
SECRET = "hunter2"
SECRETS = (PASSWORD, "alice-s", "PRIVATE KEY", "LoginModule", SECRET)


def shows_no_secret(directory, *texts):
    """Whether no file below shows one; returns how many were looked at."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    for path in files:
        content = path.read_bytes()
        assert not [each for each in SECRETS if each.encode() in content], path
    for text in texts:
        assert not [each for each in SECRETS if each in text]
    return len(files)


def contents(secured, topic, settings, listener="SASLTLS"):
    """The records of a topic's first partition: time, key, value."""
    with Client(secured.address(listener), security=Security.of(settings)) as client:
        end = client.end_offset(topic, 0)
        found, offset = [], 0
        while offset < end:
            data = client.fetch(topic, 0, offset).records
            for batch in scan(data):
                if not batch.is_control:  # markers of transactions
                    found += [(one.timestamp, one.key, one.value) for one in records(data, batch)]
                offset = batch.last_offset + 1
        return found


@pytest.fixture(scope="module")
def scram(secured):
    return secured.settings("SASLTLS") | login("SCRAM-SHA-512")


@pytest.fixture(scope="module")
def orders(secured, scram):
    """A topic with some records."""
    with Client(secured.address("SASLTLS"), security=Security.of(scram)) as client:
        client.create_topic("orders", 1, {"retention.ms": "-1"})
        for start in range(0, COUNT, 100):
            batch = [
                Record(n - start, 1_600_000_000_000 + n, b"k%d" % n, b"v%d" % n, ())
                for n in range(start, start + 100)
            ]
            client.produce("orders", 0, build(batch))
    return "orders"


@pytest.fixture
def ways(secured, scram, tmp_path):
    """Files of settings, kept apart from what jobs write."""
    directory = tmp_path / "settings"
    directory.mkdir()
    return {
        "source": properties(directory / "source.properties", scram),
        "target": properties(
            directory / "target.properties", secured.settings("MUTUAL") | secured.identity
        ),
        "token": properties(
            directory / "token.properties", secured.settings("SASLPLAIN") | token_login(token())
        ),
        "wrong": properties(
            directory / "wrong.properties",
            secured.settings("SASLTLS") | login("PLAIN", password=SECRET),
        ),
    }


def arguments_of_mirror(secured, ways, out, name):
    return [
        "mirror",
        *("--brokers", secured.address("SASLTLS"), "--command-config", ways["source"]),
        *("--to-brokers", secured.address("MUTUAL"), "--to-command-config", ways["target"]),
        *("--topics", "orders", "--rename", f"orders={name}", "--create", "--run", "first"),
        *("--out", str(out)),
    ]


@pytest.mark.oracle
class TestAgainstKafka:
    """Apache Kafka 3.9.1, read by SASL_SSL and written by a client certificate."""

    def test_an_audit_reads_by_a_password_and_by_a_token(
        self, secured, orders, ways, tmp_path, capsys
    ):
        for listener, way in (("SASLTLS", "source"), ("SASLPLAIN", "token")):
            out = tmp_path / listener
            where = ["--brokers", secured.address(listener), "--command-config", ways[way]]
            run = ["--topics", orders, "--master", "inline", "--run", "one", "--out", str(out)]
            status = cli.main(["audit", *where, *run])
            printed = capsys.readouterr()
            assert status in (OK, FINDINGS), printed
            assert f'"done": {COUNT}, "total": {COUNT}' in printed.err
            assert shows_no_secret(out, printed.out, printed.err) >= 2

    def test_a_mirror_an_archive_and_a_restore(
        self, secured, orders, scram, ways, tmp_path, capsys
    ):
        out = tmp_path / "runs"
        mirror = arguments_of_mirror(secured, ways, out, "copied")
        assert cli.main([*mirror, "--master", "inline"]) in (OK, FINDINGS), capsys.readouterr()
        expected = contents(secured, orders, scram)
        assert len(expected) == COUNT
        assert contents(secured, "copied", scram) == expected
        archive = str(tmp_path / "archive")
        where = ["--brokers", secured.address("SASLTLS"), "--command-config", ways["source"]]
        run = ["--topics", orders, "--to", archive, "--run", "a", "--out", str(out)]
        run += ["--master", "inline"]
        assert cli.main(["archive", *where, *run]) in (OK, FINDINGS), capsys.readouterr()
        where = ["--to-brokers", secured.address("MUTUAL"), "--to-command-config", ways["target"]]
        run = ["--rename", "orders=again", "--create", "--run", "b", "--out", str(out)]
        restore = ["restore", archive, "--topics", orders, *where, *run, "--master", "inline"]
        assert cli.main(restore) in (OK, FINDINGS), capsys.readouterr()
        assert contents(secured, "again", scram) == expected
        printed = capsys.readouterr()
        assert shows_no_secret(out, printed.out, printed.err) >= 2
        assert shows_no_secret(tmp_path / "archive") >= 2

    def test_a_what_if_and_a_failover(self, secured, orders, scram, ways, tmp_path, capsys):
        out = tmp_path / "runs"
        mirror = arguments_of_mirror(secured, ways, out, "moved")
        assert cli.main([*mirror, "--master", "inline"]) in (OK, FINDINGS), capsys.readouterr()
        source = ["--brokers", secured.address("SASLTLS"), "--command-config", ways["source"]]
        how = ["--run", "w", "--out", str(out), "--policy", "short:retention.ms=1d"]
        what_if = ["whatif", *source, "--topics", orders, *how, "--master", "inline"]
        assert cli.main(what_if) in (OK, FINDINGS), capsys.readouterr()
        with Client(secured.address("SASLTLS"), security=Security.of(scram)) as client:
            client.offset_commit(GROUP, {(orders, 0): GroupOffset(100)})
        where = ["--from", secured.address("SASLTLS"), "--command-config", ways["source"]]
        where += ["--to", secured.address("MUTUAL"), "--to-command-config", ways["target"]]
        how = ["--group", GROUP, "--map", str(out / "first"), "--run", "f", "--out", str(out)]
        failover = ["failover", *where, *how, "--apply"]
        assert cli.main(failover) == OK, capsys.readouterr()
        with Client(secured.address("SASLTLS"), security=Security.of(scram)) as client:
            assert client.offset_fetch(GROUP)["moved", 0].offset == 100
        printed = capsys.readouterr()
        assert shows_no_secret(out, printed.out, printed.err) >= 4

    def test_a_wrong_password_is_the_brokers_sentence(
        self, secured, orders, ways, tmp_path, capsys
    ):
        where = ["--brokers", secured.address("SASLTLS"), "--command-config", ways["wrong"]]
        run = ["--topics", orders, "--master", "inline", "--out", str(tmp_path / "out")]
        assert cli.main(["audit", *where, *run]) == FAILED
        error = capsys.readouterr().err
        assert "refuses the login by PLAIN: Authentication failed: Invalid username" in error
        assert SECRET not in error

    @pytest.mark.spark
    @pytest.mark.timeout(300)
    def test_a_mirror_on_spark_carries_the_settings_to_its_workers(
        self, secured, orders, scram, ways, tmp_path
    ):
        pytest.importorskip("pyspark", reason="PySpark is not installed: make test-spark")
        out = tmp_path / "runs"
        mirror = arguments_of_mirror(secured, ways, out, "sparked")
        how = ["--master", "local[2]", "--verbose"]  # Spark's own log must be without secrets too
        done = subprocess.run(
            [sys.executable, "-m", "tidelog", "pipeline", *mirror, *how],
            capture_output=True,
            text=True,
            timeout=240,
            env=os.environ,
            check=False,
        )
        assert done.returncode in (OK, FINDINGS), done.stderr
        assert contents(secured, "sparked", scram) == contents(secured, orders, scram)
        assert shows_no_secret(out, done.stdout, done.stderr) >= 2


def test_a_mistake_in_a_file_is_one_sentence(tmp_path, capsys):
    file = properties(tmp_path / "client.properties", {"sasl.password": SECRET})
    run = ["--brokers", "127.0.0.1:1", "--command-config", file, "--out", str(tmp_path / "out")]
    assert cli.main(["audit", *run]) == USAGE
    printed = capsys.readouterr().err
    assert f"--command-config {file}: sasl.password is not supported" in printed
    assert printed.count("\n") == 1
    assert SECRET not in printed


def test_settings_for_no_brokers_are_a_mistake(tmp_path, capsys):
    run = ["--logs", str(tmp_path), "--command-config", "none.properties"]
    assert cli.main(["audit", *run, "--out", str(tmp_path / "out")]) == USAGE
    assert "--command-config has the settings for brokers, and none" in capsys.readouterr().err
