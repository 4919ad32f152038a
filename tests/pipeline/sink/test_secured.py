"""A DataFrame goes to secured brokers, and nothing that is staged for it is secret."""

from __future__ import annotations

import pytest

from tests.certificates import Authority
from tests.secured_kafka import PASSWORD, login
from tidelog.client import Client
from tidelog.client.security import Security
from tidelog.pipeline.sink import staging
from tidelog.pipeline.sink.sink_options import SinkOptions
from tidelog.pipeline.timelog.names import OptionError
from tidelog.protocol.records.batch import records, scan

COUNT = 200
SECRETS = (PASSWORD.encode(), b"alice-s", b"LoginModule", b"PRIVATE KEY")


def test_a_mistake_is_a_sentence_without_secrets():
    options = {"kafka.bootstrap.servers": "h:1", "kafka.ssl.key.password": "hunter2", "topic": "t"}
    with pytest.raises(OptionError, match=r"ssl\.key\.password has no effect") as told:
        print(SinkOptions(options).brokers)
    assert "hunter2" not in str(told.value)


@pytest.mark.spark
def test_a_worker_needs_no_files(tmp_path, monkeypatch):
    """It parses the options too, and gets what the driver has read."""
    types = pytest.importorskip("pyspark.sql.types", reason="PySpark is not installed")
    from tidelog.pipeline.timelog.data_source import TimelogDataSource

    monkeypatch.setattr(staging, "check_target", lambda _: None)  # nobody listens at h:1
    trust, file = tmp_path / "trust.pem", tmp_path / "client.properties"
    trust.write_text(Authority("tests").pem)
    file.write_text(f"security.protocol=SSL\nssl.truststore.location={trust}\n")
    options = {"kafka.bootstrap.servers": "h:1", "commandConfig": str(file), "topic": "t"}
    columns = types.StructType().add("value", types.BinaryType())
    writer = TimelogDataSource(options | {"staging": str(tmp_path)}).writer(columns, False)
    trust.unlink()
    file.unlink()
    assert writer._options().brokers.security.tls.trust.startswith("-----BEGIN CERTIFICATE")
    with pytest.raises(OptionError, match=r"client\.properties cannot be read"):
        TimelogDataSource(options | {"staging": str(tmp_path)}).writer(columns, False)


@pytest.mark.oracle
@pytest.mark.spark
@pytest.mark.parametrize("way", ["options", "file"])
def test_rows_arrive_with_their_times(spark, secured, tmp_path, way):
    settings = secured.settings("SASLTLS") | login("SCRAM-SHA-256")
    topic = f"sink-{way}"
    with Client(secured.address("SASLTLS"), security=Security.of(settings)) as client:
        client.create_topic(topic, 1, {"retention.ms": "-1"})
    if way == "options":
        listener, given = "SASLTLS", {f"kafka.{key}": value for key, value in settings.items()}
    else:
        file = tmp_path / "client.properties"
        lines = secured.settings("MUTUAL") | secured.identity
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        listener, given = "MUTUAL", {"commandConfig": str(file)}
    frame = spark.range(COUNT).selectExpr(
        "cast(id as string) value", "1600000000000 + id timestamp_ms"
    )
    staging = tmp_path / "staging"
    writer = frame.write.format("timelog").mode("append").options(**given)
    writer = writer.option("kafka.bootstrap.servers", secured.address(listener))
    writer.option("topic", topic).option("run", "one").option("staging", str(staging)).save()
    with Client(secured.address("SASLTLS"), security=Security.of(settings)) as client:
        data = client.fetch(topic, 0, 0).records
    found = {
        (one.timestamp, one.value)
        for batch in scan(data)
        if not batch.is_control
        for one in records(data, batch)
    }
    assert found == {(1_600_000_000_000 + n, b"%d" % n) for n in range(COUNT)}
    for path in staging.rglob("*"):
        if path.is_file():
            assert not [each for each in SECRETS if each in path.read_bytes()], path
