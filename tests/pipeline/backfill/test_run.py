"""What a backfill knows before it reads a row: its topic; and what it says of the table: no password."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidelog.client import Client
from tidelog.pipeline.backfill import run, tables
from tidelog.pipeline.errors import UsageError
from tidelog.process import BrokerProcess
from tidelog.storage.time.retention import oldest_kept

HOUR_MS = 3_600_000
NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:postgresql://h:5432/d?user=u&password=pw&ssl=true", "?user=u&password=***&ssl=true"),
        ("jdbc:sqlserver://h;user=u;Password=pw;encrypt=true", ";Password=***;encrypt=true"),
        ("jdbc:some://h/d?uid=u&pwd=pw", "?uid=u&pwd=***"),
        ("jdbc:mysql://u:p/w@h/d", "jdbc:mysql://u:***@h/d"),
        ("jdbc:oracle:thin:u/pw@//h:1521/d", "jdbc:oracle:thin:u/***@//h:1521/d"),
        ("jdbc:oracle:thin:@//h:1521/d", "jdbc:oracle:thin:@//h:1521/d"),
        ("jdbc:derby:/tmp/db;create=true", "jdbc:derby:/tmp/db;create=true"),
    ],
)
def test_passwords_are_hidden(url, shown):
    option = [("password", "pw"), ("fetchsize", "10")]
    given = SimpleNamespace(table="t", input=None, jdbc=url, option=option)
    said = run.table_arguments(given)
    assert said["jdbc"].endswith(shown)
    assert "pw" not in said["jdbc"].replace("pwd", "")
    assert said["option"] == [("fetchsize", "10"), ("password", "***")]


def test_a_sentence_hides_the_password_in_its_url():
    said = "the schema registry http://u:pw@h:8081: [Errno 111] Connection refused"
    shown = "the schema registry http://u:***@h:8081: [Errno 111] Connection refused"
    assert tables.without_password(said) == shown


@pytest.mark.slow
@pytest.mark.parametrize("retention_ms", [HOUR_MS, -1])
def test_a_topic_that_is_created_has_the_defaults_of_its_cluster(tmp_path, retention_ms):
    defaults = {"log.retention.ms": retention_ms, "log.message.timestamp.after.max.ms": 5}
    options = SimpleNamespace(topic="t", partitions=2, create=True, set=[])
    with (
        BrokerProcess(tmp_path / "data", defaults) as broker,
        Client(broker.bootstrap) as client,
    ):
        target = run.target_of(client, options)
        assert run.limits_of(target, NOW)[1:3] == (NOW + 5, oldest_kept(retention_ms, NOW))
        options.set = [("retention.ms", "7")]
        assert run.limits_of(run.target_of(client, options), NOW)[2] == oldest_kept(7, NOW)
        options.set = [("retention.ms", "soon")]
        with pytest.raises(UsageError, match=r"retention\.ms"):
            run.target_of(client, options)
        assert not client.has_topic("t")
        # A cluster that does not tell: Apache Kafka keeps records for seven days.
        untold = run.targets.as_made("t", 2, {})
        assert run.limits_of(untold, NOW)[2] == oldest_kept(7 * 24 * HOUR_MS, NOW)
