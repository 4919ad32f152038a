"""`timelog` and secured brokers: by options of Spark's Kafka source, and by a file."""

from __future__ import annotations

import contextlib
import io

import pytest

from tests.pipeline.streams import available_now
from tests.secured_kafka import PASSWORD, login
from tidelog.client import Client
from tidelog.client.security import Security
from tidelog.pipeline.timelog.names import OptionError
from tidelog.pipeline.timelog.options import TimelogOptions
from tidelog.protocol.records.batch import Record, build

COUNT = 300
SECRET = "hunter2"
BROKERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
JAAS = "kafka.sasl.jaas.config"


def of_spark(settings):
    return {f"kafka.{name}": value for name, value in settings.items()}


PLAIN = of_spark({"security.protocol": "SASL_PLAINTEXT"} | login("PLAIN", "alice", SECRET))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka.security.protocol": "TLS"}, "security.protocol=TLS is unknown"),
        ({"kafka.ssl.truststore.locations": "x"}, "did you mean ssl.truststore.location"),
        ({"kafka.ssl.keystore.password": SECRET}, "has no effect with security.protocol=PLAINTEXT"),
        (PLAIN | {JAAS: f"a.B password={SECRET};"}, "sasl.jaas.config cannot be read"),
        (PLAIN | {"provider": "timelog"}, "stored in Spark's catalog: give commandConfig"),
        (
            {f"option.{name}": value for name, value in PLAIN.items()} | {"provider": "timelog"},
            "stored in Spark's catalog: give commandConfig",
        ),
        ({"commandConfig": "DIR/none"}, "none cannot be read: No such file"),
        (
            PLAIN | {"commandConfig": "DIR/other"},
            "kafka.sasl.mechanism differs from sasl.mechanism",
        ),
    ],
)
def test_a_mistake_is_a_sentence_without_secrets(tmp_path, options, sentence):
    (tmp_path / "other").write_text("sasl.mechanism=SCRAM-SHA-256\n")
    options = {name: value.replace("DIR", str(tmp_path)) for name, value in options.items()}
    with pytest.raises(OptionError, match=sentence) as told:
        print(TimelogOptions(BROKERS | options, 0).brokers)
    assert SECRET not in str(told.value)


def test_files_are_read_where_the_query_is_planned(tmp_path):
    """A worker parses the options too, and has no such files."""
    options = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/none"}
    parsed = TimelogOptions(BROKERS | options, 0)
    with pytest.raises(OptionError, match="/none cannot be read"):
        print(parsed.brokers)


def test_plaintext_is_no_more_than_the_default():
    parsed = TimelogOptions(BROKERS | {"kafka.security.protocol": "PLAINTEXT"}, 0)
    assert parsed.brokers == "127.0.0.1:1"
    assert parsed.brokers.security.tls is None


@pytest.fixture(scope="module")
def topic(secured):
    settings = secured.settings("SASLTLS") | login("SCRAM-SHA-256")
    with Client(secured.address("SASLTLS"), security=Security.of(settings)) as client:
        client.create_topic("source", 1, {"retention.ms": "-1"})
        batch = [Record(n, 1_600_000_000_000 + n, None, b"v%d" % n, ()) for n in range(COUNT)]
        client.produce("source", 0, build(batch))
    return "source"


@pytest.mark.oracle
@pytest.mark.spark
class TestOnSpark:
    """Spark reads Apache Kafka 3.9.1."""

    def frame(self, spark, secured, topic, listener, options):
        reader = spark.read.format("timelog").option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", secured.address(listener))
        return reader.options(**options).load()

    def test_options_of_sparks_source_and_no_secret_in_the_plan(self, spark, secured, topic):
        options = of_spark(secured.settings("SASLTLS") | login("SCRAM-SHA-512"))
        frame = self.frame(spark, secured, topic, "SASLTLS", options)
        assert frame.count() == COUNT
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            frame.explain(extended=True)
        plan = shown.getvalue() + frame._jdf.queryExecution().toString() + frame.schema.json()
        assert "timelog" in plan
        for secret in (PASSWORD, "alice-s", "LoginModule", "PRIVATE KEY"):
            assert secret not in plan

    def test_a_file_and_a_client_certificate(self, spark, secured, topic, tmp_path):
        file = tmp_path / "client.properties"
        settings = secured.settings("MUTUAL") | secured.identity
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        frame = self.frame(spark, secured, topic, "MUTUAL", {"commandConfig": str(file)})
        assert frame.selectExpr("max(timestamp_ms)").first()[0] == 1_600_000_000_000 + COUNT - 1

    def test_a_stream(self, spark, secured, topic, tmp_path):
        reader = spark.readStream.format("timelog").option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", secured.address("SASLPLAIN"))
        reader = reader.option("startingOffsets", "earliest")
        settings = of_spark(secured.settings("SASLPLAIN") | login("PLAIN"))
        frame = reader.options(**settings).load()
        writer = frame.writeStream.format("memory").queryName("secured")
        available_now(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
        assert spark.sql("select count(*) from secured").first()[0] == COUNT
        for path in (tmp_path / "checkpoint").rglob("*"):
            if path.is_file():
                assert b"alice-s" not in path.read_bytes()

    def test_a_wrong_password_is_the_brokers_sentence(self, spark, secured, topic):
        settings = secured.settings("SASLTLS") | login("SCRAM-SHA-256", password=SECRET)
        with pytest.raises(Exception, match="refuses the login by SCRAM-SHA-256") as told:
            self.frame(spark, secured, topic, "SASLTLS", of_spark(settings)).count()
        assert SECRET not in str(told.value)

    def test_a_table_names_a_file_and_its_catalog_has_no_secret(
        self, spark, secured, topic, tmp_path
    ):
        file = tmp_path / "client.properties"
        settings = secured.settings("MUTUAL") | secured.identity
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        where = f"'kafka.bootstrap.servers' '{secured.address('MUTUAL')}', 'subscribe' '{topic}'"
        spark.sql(
            f"create table secured_table using timelog options ({where}, 'commandConfig' '{file}')"
        )
        try:
            assert spark.sql("select count(*) from secured_table").first()[0] == COUNT
        finally:
            spark.sql("drop table secured_table")
        jaas = login("PLAIN", "a", SECRET)["sasl.jaas.config"].replace("'", "")
        with pytest.raises(Exception, match="give commandConfig") as told:
            spark.sql(f"create table leaking using timelog options ({where}, '{JAAS}' '{jaas}')")
        assert SECRET not in str(told.value)
        assert not spark.catalog.tableExists("leaking")
