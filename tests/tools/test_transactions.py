"""kafka-transactions.sh of two Kafkas: what transactions are open, which of them hang, and ending those.

What hangs comes from a real Kafka: a broker is killed in the middle of transactions, and tidelog gets the
directories of the topics alone, without __transaction_state. No coordinator knows the producers there.
"""

from __future__ import annotations

import shutil

import pytest
from confluent_kafka import Producer

from tests.broker.asking import create, new_name
from tests.broker.conftest import healthy
from tests.broker.coordinators.transactions.requests import NONE, Transactional, committed
from tests.broker.subject import eventually
from tests.oracle import apache_kafka, wire
from tests.oracle.brokers import make_topics, wait_for_coordinators
from tests.tools.conftest import VERSIONS
from tidelog.cli.parser import main

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

KAFKA = "3.9.1"
DEADLINE_S = 120
OURS = "ours"
HANGING = [f"hanging-{each}" for each in (*VERSIONS, OURS)]


def tool(tools, broker, *arguments):
    """The lines that kafka-transactions.sh prints, without its head."""
    done = tools.run("kafka-transactions", "--bootstrap-server", broker.bootstrap, *arguments)
    assert done.status == 0, done
    return [line.split() for line in done.lines[1:]]


@pytest.fixture(scope="session")
def left(tmp_path_factory):
    """A broker with topics of a killed Kafka; each has a committed record, and then an open transaction."""
    apache_kafka.require(KAFKA)
    directory = tmp_path_factory.mktemp("left")
    with apache_kafka.ApacheKafka(KAFKA, directory / "kafka", jvm=apache_kafka.QUICK) as kafka:
        wait_for_coordinators(kafka.bootstrap)
        with wire.Connection(kafka.bootstrap, timeout_s=DEADLINE_S) as connection:
            make_topics(connection, dict.fromkeys(HANGING, 1))
        for topic in HANGING:
            settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": topic}
            producer = Producer({**settings, "transaction.timeout.ms": 600_000})
            producer.init_transactions(DEADLINE_S)
            producer.begin_transaction()
            producer.produce(topic, b"whole", partition=0)
            producer.commit_transaction(DEADLINE_S)
            producer.begin_transaction()
            producer.produce(topic, b"half", partition=0)
            assert producer.flush(DEADLINE_S) == 0
        kafka.kill()
        for topic in HANGING:
            shutil.copytree(kafka.log_dir / f"{topic}-0", directory / "data" / f"{topic}-0")
    with healthy(directory) as subject:
        yield subject


def test_what_is_open_is_listed_and_described(broker, tools):
    topic = new_name("txn")
    with broker.connect() as connection:
        create(connection, topic, partitions=2)
        producer = Transactional(connection, f"id-{topic}")
        assert producer.init() == NONE
        assert producer.add(topic, 0, 1) == [NONE, NONE]
        assert producer.send(topic, "one", partition=1) == NONE
        pid = str(producer.given.producer_id)
        rows = [row for row in tool(tools, broker, "list") if row[0] == producer.id]
        assert rows == [[producer.id, "1", pid, "Ongoing"]]
        (row,) = tool(tools, broker, "describe", "--transactional-id", producer.id)
        assert row[:6] == ["1", producer.id, pid, "0", "Ongoing", "60000"]
        assert set(row[-1].split(",")) == {f"{topic}-0", f"{topic}-1"}
        there = ("describe-producers", "--topic", topic, "--partition", "1")
        ((found, *_, start),) = tool(tools, broker, *there)
        assert (found, start) == (pid, "0")
        where = ("--topic", topic, "--max-transaction-timeout", "0")
        assert tool(tools, broker, "find-hanging", *where) == []
        assert producer.end(commit=True) == NONE
        eventually(lambda: producer.state == "CompleteCommit")
        (row,) = tool(tools, broker, "describe", "--transactional-id", producer.id)
        assert row[4] == "CompleteCommit"


def test_what_a_kafka_left_open_hangs_until_the_tool_aborts_it(left, tools):
    topic = f"hanging-{tools.version}"
    with left.connect() as connection:
        assert committed(connection, topic) == ["whole"]
        old = ("--max-transaction-timeout", "0")
        (row,) = tool(tools, left, "find-hanging", "--topic", topic, *old)
        assert row[:2] == [topic, "0"]
        assert "2" in row[2:], row  # the start offset: behind a record and its marker
        everywhere = tool(tools, left, "find-hanging", "--broker-id", "1", *old)
        assert topic in {each[0] for each in everywhere}
        tool(tools, left, "abort", "--topic", topic, "--partition", "0", "--start-offset", "2")
        assert tool(tools, left, "find-hanging", "--topic", topic, *old) == []
        assert committed(connection, topic) == ["whole"]


def test_what_a_kafka_left_open_hangs_until_tidelog_aborts_it(left, capsys):
    topic = f"hanging-{OURS}"
    where = ["--broker", left.bootstrap, "--http", left.http]
    assert main(["transactions", "find-hanging", topic, *where]) == 0
    told = capsys.readouterr().out
    assert f"tidelog transactions abort {topic} --partition 0 --start-offset 2" in told
    with left.connect() as connection:
        assert committed(connection, topic) == ["whole"]
        assert main(["transactions", "abort", topic, "--yes", *where]) == 0
        assert main(["transactions", "find-hanging", topic, *where]) == 0
        assert "nothing hangs" in capsys.readouterr().out
        assert committed(connection, topic) == ["whole"]
