"""Apache Kafka's command line tools against the broker: exit status and output.

Two versions of Kafka, one Java process each. What a tool says is compared where it is the broker's doing, not
the tool's.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.broker.asking import new_name, produce
from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tests.tools import java_tools

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

BASE_MS = 1_600_000_000_000


class TestTopics:
    def test_from_creation_to_deletion(self, run):
        name = new_name("made")
        made = run(
            "kafka-topics",
            "--create",
            "--topic",
            name,
            "--partitions",
            "2",
            "--config",
            "retention.ms=77",
        )
        assert f"Created topic {name}." in made.out
        run("kafka-topics", "--alter", "--topic", name, "--partitions", "5")
        head, *partitions = run("kafka-topics", "--describe", "--topic", name).lines
        assert "PartitionCount: 5\tReplicationFactor: 1\tConfigs: retention.ms=77" in head
        assert len(partitions) == 5
        for i, line in enumerate(partitions):
            assert f"Partition: {i}\tLeader: 1\tReplicas: 1\tIsr: 1" in line
        assert name in run("kafka-topics", "--list").lines
        run("kafka-topics", "--delete", "--topic", name)
        assert name not in run("kafka-topics", "--list").lines

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (("--create", "--topic", "KNOWN"), "KNOWN"),
            (("--create", "--topic", "new", "--replication-factor", "3"), "one broker"),
            (("--create", "--topic", "new", "--config", "retention.ms=soon"), "retention.ms"),
            (("--alter", "--topic", "KNOWN", "--partitions", "1"), "would be fewer"),
            (("--alter", "--topic", "nowhere", "--partitions", "9"), "nowhere"),
            (("--describe", "--topic", "nowhere"), "nowhere"),
            (("--delete", "--topic", "nowhere"), "nowhere"),
        ],
    )
    def test_mistakes(self, run, topic, arguments, sentence):
        given = [topic if each == "KNOWN" else each for each in arguments]
        done = run("kafka-topics", *given, status=1)
        assert sentence.replace("KNOWN", topic) in done.out + done.err


class TestConfigs:
    def test_a_topic(self, run, topic):
        where = ("--entity-type", "topics", "--entity-name", topic)
        changes = "retention.ms=5000,cleanup.policy=[compact,delete]"
        run("kafka-configs", *where, "--alter", "--add-config", changes)
        own = run("kafka-configs", *where, "--describe").out
        assert "cleanup.policy=compact,delete sensitive=false" in own
        assert "STATIC_BROKER_CONFIG:log.retention.ms=-1" in own
        assert "segment.bytes" not in own
        everything = run("kafka-configs", *where, "--describe", "--all").out
        assert "segment.bytes=1073741824 sensitive=false" in everything
        run("kafka-configs", *where, "--alter", "--delete-config", "cleanup.policy,retention.ms")
        assert len(run("kafka-configs", *where, "--describe").lines) == 1

    @pytest.mark.parametrize("whose", [("--entity-name", "1"), ("--entity-default",)])
    def test_the_broker(self, run, whose):
        where = ("--entity-type", "brokers", *whose)
        run("kafka-configs", *where, "--alter", "--add-config", "log.segment.delete.delay.ms=5000")
        told = run("kafka-configs", *where, "--describe").out
        assert "log.segment.delete.delay.ms=5000 sensitive=false" in told
        run("kafka-configs", *where, "--alter", "--delete-config", "log.segment.delete.delay.ms")
        assert "5000" not in run("kafka-configs", *where, "--describe").out

    def test_users(self, run):
        where = ("--entity-type", "users", "--describe")
        assert run("kafka-configs", *where).out == ""
        assert run("kafka-configs", *where, "--entity-name", "anna").out == ""

    @pytest.mark.parametrize(
        ("whose", "quota", "said"),
        [
            (
                ("users", "--entity-name", "ben", "--entity-type", "clients", "--entity-default"),
                "producer_byte_rate=1024,request_percentage=90.5",
                (
                    "Quota configs for user-principal 'ben', the default client-id are "
                    "request_percentage=90.5, producer_byte_rate=1024.0"
                ),
            ),
            (
                ("clients", "--entity-name", "a b&c"),
                "consumer_byte_rate=1048576",
                "Quota configs for client-id 'a b&c' are consumer_byte_rate=1048576.0",
            ),
            (
                ("ips", "--entity-name", "192.0.2.7"),
                "connection_creation_rate=20",
                "Quota configs for ip '192.0.2.7' are connection_creation_rate=20.0",
            ),
        ],
    )
    def test_quotas(self, run, whose, quota, said):
        where = ("--entity-type", *whose)
        run("kafka-configs", *where, "--alter", "--add-config", quota)
        assert run("kafka-configs", *where, "--describe").lines == [said]
        names = ",".join(each.partition("=")[0] for each in quota.split(","))
        run("kafka-configs", *where, "--alter", "--delete-config", names)
        assert run("kafka-configs", *where, "--describe").out == ""

    def test_a_quota_that_nobody_can_have(self, run):
        where = ("--entity-type", "clients", "--entity-name", "c", "--alter", "--add-config")
        done = run("kafka-configs", *where, "producer_byte_rate=0", status=1)
        assert "producer_byte_rate must be greater than 0" in done.err

    def test_everything_of_the_broker(self, run):
        told = run(
            "kafka-configs", "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"
        )
        assert re.search(r"^  log\.dirs=/\S+ sensitive=false", told.out, re.MULTILINE)
        assert "auto.create.topics.enable=false sensitive=false" in told.out

    def test_mistakes(self, run, topic):
        where = ("--entity-type", "topics", "--entity-name", topic, "--alter")
        done = run("kafka-configs", *where, "--add-config", "retention.ms=soon", status=1)
        assert "retention.ms=soon: expected an integer" in done.err
        done = run("kafka-configs", *where, "--delete-config", "retention.ms", status=1)
        assert "Invalid config(s): retention.ms" in done.err


def read(run, broker, topic, *properties):
    """The lines of all that a topic's two partitions hold."""
    shown = [word for each in properties for word in ("--property", f"print.{each}=true")]
    return [
        line
        for partition in (0, 1)
        for line in run(
            "kafka-console-consumer", *java_tools.reading(broker, topic, partition), *shown
        ).lines
    ]


class TestRecords:
    def test_from_the_console_to_the_console(self, run, broker, topic):
        text = "".join(f"key{i}:value{i}\n" for i in range(20))
        keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
        run("kafka-console-producer", "--topic", topic, *keyed, stdin=text)
        lines = read(run, broker, topic, "key")
        assert sorted(lines) == sorted(f"key{i}\tvalue{i}" for i in range(20))

    def test_everything_a_record_has(self, run, broker, topic):
        """Written by the console producer with headers, printed with all there is to print."""
        properties = ("parse.key=true", "parse.headers=true", "key.separator=:")
        run(
            "kafka-console-producer",
            *("--topic", topic, "--compression-codec", "lz4"),
            *(word for each in properties for word in ("--property", each)),
            stdin="a:1,b:2\tkey:value\n",
        )
        with broker.connect() as connection:
            records = recordset.batch(
                [Rec(-14_182_940_000, b"moon", b"key"), Rec(-1, None, b"key")]
            )
            assert produce(connection, topic, records, partition=0)["error_code"] == 0
            assert produce(connection, topic, records, partition=1)["error_code"] == 0
        shown = ("timestamp", "partition", "offset", "headers", "key")
        lines = read(run, broker, topic, *shown)
        written = [line for line in lines if line.endswith("value")]
        assert re.fullmatch(
            r"CreateTime:\d{13}\tPartition:[01]\tOffset:0\ta:1,b:2\tkey\tvalue", written[0]
        )
        assert len(written) == 1
        rest = sorted(re.sub(r"\d\tOffset:\d", "_", line) for line in lines if line not in written)
        assert rest == sorted(
            2 * ["CreateTime:-14182940000\tPartition:_\tNO_HEADERS\tkey\tmoon"]
            + 2 * ["CreateTime:-1\tPartition:_\tNO_HEADERS\tkey\tnull"]
        )

    def test_stamped_by_the_broker(self, run, broker, topic):
        where = ("--entity-type", "topics", "--entity-name", topic, "--alter")
        run("kafka-configs", *where, "--add-config", "message.timestamp.type=LogAppendTime")
        run("kafka-console-producer", "--topic", topic, stdin="x\n")
        (line,) = read(run, broker, topic, "timestamp")
        assert re.fullmatch(r"LogAppendTime:\d{13}\tx", line)

    def test_offsets_by_time(self, run, broker, topic):
        times = (BASE_MS, BASE_MS + 5_000, BASE_MS + 2_000)
        with broker.connect() as connection:
            for time_ms in times:
                records = recordset.batch([Rec(time_ms, b"x")])
                assert produce(connection, topic, records)["error_code"] == 0

        def offsets(time):
            done = run("kafka-get-offsets", "--topic", topic, "--time", str(time))
            return {line.removeprefix(f"{topic}:") for line in done.lines}

        assert offsets("earliest") == offsets(-2) == {"0:0", "1:0"}
        assert offsets("latest") == offsets(-1) == {"0:3", "1:0"}
        assert offsets("max-timestamp") == offsets(-3) == {"0:1"}
        assert offsets(BASE_MS) == {"0:0"}
        assert offsets(BASE_MS + 1) == offsets(BASE_MS + 5_000) == {"0:1"}
        assert offsets(BASE_MS + 5_001) == set()

    def test_deleted(self, run, broker, topic, tmp_path):
        run("kafka-console-producer", "--topic", topic, stdin="a\nb\nc\n")
        ends = dict(
            line.removeprefix(f"{topic}:").split(":")
            for line in run("kafka-get-offsets", "--topic", topic).lines
        )
        asked = [{"topic": topic, "partition": int(each), "offset": -1} for each in ends]
        path = tmp_path / "delete.json"
        path.write_text(json.dumps({"partitions": asked, "version": 1}))
        done = run("kafka-delete-records", "--offset-json-file", str(path))
        for each, end in ends.items():
            assert f"partition: {topic}-{each}\tlow_watermark: {end}" in done.out
        assert read(run, broker, topic) == []

    def test_before_1970(self, run, broker, topic):
        """A time is looked up below zero too; Kafka refuses what it takes for an unknown sentinel."""
        with broker.connect() as connection:
            for at in (-14_182_940_000, -1_000, 0):
                assert produce(connection, topic, recordset.batch([Rec(at)]))["error_code"] == 0
        for at, offset in ((-(10**12), 0), (-14_182_939_999, 1), (-1_000, 1), (-999, 2)):
            done = run("kafka-get-offsets", "--topic-partitions", f"{topic}:0", "--time", str(at))
            assert done.lines == [f"{topic}:0:{offset}"]

    def test_performance(self, broker, tools, run, topic):
        done = tools.run(
            "kafka-producer-perf-test",
            *("--topic", topic, "--num-records", "5000", "--record-size", "100"),
            *("--throughput", "-1", "--producer-props", f"bootstrap.servers={broker.bootstrap}"),
        )
        assert done.status == 0, done
        assert "5000 records sent" in done.out
        ends = [
            int(line.rsplit(":", 1)[1]) for line in run("kafka-get-offsets", "--topic", topic).lines
        ]
        assert sum(ends) == 5_000
        consumed = run(
            "kafka-consumer-perf-test", "--topic", topic, "--messages", "5000", "--timeout", "90000"
        )
        names, values = (line.split(", ") for line in consumed.lines)
        assert dict(zip(names, values, strict=True))["data.consumed.in.nMsg"] == "5000"

    def test_from_one_end_to_the_other(self, broker, tools, topic):
        done = tools.run("kafka-e2e-latency", broker.bootstrap, topic, "20", "all", "64")
        assert done.status == 0, done
        assert re.search(r"Avg latency: [\d.]+ ms", done.out)

    def test_verified(self, broker, tools, run, topic, tmp_path):
        """What the verifiable producer says it has written is what the verifiable consumer reads."""
        producer = java_tools.start(
            tools.version,
            "kafka-verifiable-producer",
            *("--bootstrap-server", broker.bootstrap, "--topic", topic),
            *("--max-messages", "500", "--acks", "-1", "--value-prefix", "7"),
            *("--message-create-time", str(BASE_MS)),
            directory=tmp_path,
        )
        assert producer.process.wait(120) == 0
        said = java_tools.json_lines(producer.out.read_text())
        written = {
            (each["partition"], each["offset"]): each["value"]
            for each in said
            if each["name"] == "producer_send_success"
        }
        assert sorted(written.values()) == sorted(f"7.{i}" for i in range(500))
        done = tools.run(
            "kafka-verifiable-consumer",
            *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--verbose"),
            *("--group-id", topic, "--max-messages", "500", "--reset-policy", "earliest"),
        )
        assert done.status == 0, done
        told = java_tools.json_lines(done.out)
        read_again = {
            (each["partition"], each["offset"]): each["value"]
            for each in told
            if each["name"] == "record_data"
        }
        assert read_again == written
        commits = [each for each in told if each["name"] == "offsets_committed"]
        assert commits
        assert all(each["success"] for each in commits)
        at_once = run("kafka-get-offsets", "--topic", topic, "--time", str(BASE_MS)).lines
        assert set(at_once) == {f"{topic}:{partition}:0" for partition, _ in written}
        much_later = str(BASE_MS + 3_600_000)  # its times go on from the one it was given
        assert run("kafka-get-offsets", "--topic", topic, "--time", much_later).lines == []


class TestTheCluster:
    def test_its_id(self, broker, tools):
        at = ("--bootstrap-server", broker.bootstrap)
        done = tools.run("kafka-cluster", "cluster-id", *at)
        assert (done.status, done.out) == (0, f"Cluster ID: {broker.cluster_id}\n")
        if tools.version == "3.9.1":
            return  # which has no more to ask
        done = tools.run("kafka-cluster", "list-endpoints", *at)
        assert done.lines[1].split()[:3] == ["1", "127.0.0.1", str(broker.port)]

    def test_versions(self, run, patient_client):
        done = run("kafka-broker-api-versions", *patient_client)
        for line in ("Produce(0): 0 to 13", "Metadata(3): 0 to 13", "DescribeLogDirs(35): 0 to 4"):
            assert line in done.out

    def test_log_directories(self, run, broker, topic):
        run("kafka-console-producer", "--topic", topic, stdin="some bytes\n" * 10)
        done = run("kafka-log-dirs", "--describe", "--broker-list", "1", "--topic-list", topic)
        (told,) = json.loads(done.lines[-1])["brokers"]
        (directory,) = told["logDirs"]
        assert (told["broker"], directory["error"]) == (1, None)
        assert directory["logDir"] == str(broker.log_dir)
        found = {each["partition"]: each["size"] for each in directory["partitions"]}
        assert found == {
            f"{topic}-{i}": sum(
                p.stat().st_size for p in (broker.log_dir / f"{topic}-{i}").glob("*.log")
            )
            for i in (0, 1)
        }
        assert sum(found.values()) > 100

    def test_leaders(self, run, topic):
        elect = ("kafka-leader-election", "--election-type", "preferred")
        run(*elect, "--all-topic-partitions")
        done = run(*elect, "--topic", topic, "--partition", "1")
        assert f"Valid replica already elected for partitions {topic}-1" in done.out
        done = run(*elect, "--topic", "nowhere", "--partition", "0", status=1)
        assert "nowhere" in done.out + done.err

    def test_reassignments(self, run, topic, tmp_path):
        assert "No partition reassignments found." in run("kafka-reassign-partitions", "--list").out
        plan = tmp_path / "plan.json"
        moved = {"topic": topic, "partition": 0, "replicas": [7]}
        plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
        done = run(
            "kafka-reassign-partitions",
            "--reassignment-json-file",
            str(plan),
            "--execute",
            status=1,
        )
        assert "7" in done.out + done.err

    def test_producers_and_transactions(self, run, topic):
        head, *ids = run("kafka-transactions", "list").lines  # other tests have ids here, too
        assert head.split()[0] == "TransactionalId"
        assert all(line.split()[-1].startswith("Complete") for line in ids), ids
        run("kafka-console-producer", "--topic", topic, stdin="x\n")
        ids = [
            line
            for i in (0, 1)
            for line in run(
                "kafka-transactions", "describe-producers", "--topic", topic, "--partition", str(i)
            ).lines[1:]
        ]
        assert len(ids) == 1

    def test_access_rules(self, run):
        done = run("kafka-acls", "--list", status=1)
        assert "SecurityDisabledException" in done.out + done.err


def test_a_failure_is_seen(broker, tools):
    """A wrong command is not taken for a right one, and the next is not invalidated."""
    done = tools.run("kafka-topics", "--bootstrap-server", broker.bootstrap, "--nonsense")
    assert done.status == 1
    assert "nonsense" in done.out + done.err
    done = tools.run("kafka-topics", "--bootstrap-server", broker.bootstrap, "--list")
    assert done.status == 0
