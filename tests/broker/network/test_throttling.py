"""A client over its quota: told so, and held, on its own connections alone.

Times are lower bounds, measured from before the request that exceeds the quota: a busy machine may make a
client wait longer than it was told. Sizes are such that it does not matter how long the requests take.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from tests.broker import asking
from tests.broker.api.test_alter_client_quotas import alter, described, entity, removal, setting
from tests.broker.asking import create, fetch_fields, new_name, new_topic, produce_fields
from tests.broker.conftest import healthy
from tests.broker.network.accepting.test_admission import seconds_to_serve
from tests.broker.raw import Pipe
from tests.oracle import recordset

THROTTLING_QUOTA_EXCEEDED = 89
SESSIONS = "kafka_server_fetchsessioncache_numincrementalfetchsessions"
UNTHROTTLED = "somebody else"
NOISE = "n" * 10_000
HELD_MS = 300


@pytest.fixture(scope="module")
def limiting(tmp_path_factory):
    with healthy(tmp_path_factory.mktemp("quotas")) as subject, subject.connect() as connection:
        # The fast paths have to look for the quota of everybody while anybody has one.
        assert alter(connection, (entity(client_id="nobody"), setting())) == [0]
        yield subject


@pytest.fixture
def others(limiting):
    with limiting.connect() as connection:
        connection.client_id = UNTHROTTLED
        yield connection


@pytest.fixture
def topic(others):
    return new_topic(others)


def batch(size):
    """A record set of about so many bytes."""
    return recordset.batch(asking.values("v" * size))


class Client(Pipe):
    """A connection with a client id of its own that has these quotas."""

    def __init__(self, broker, others, **quotas):
        super().__init__(broker)
        self.client_id = new_name("client")
        ops = [setting(key, value) for key, value in quotas.items()]
        assert alter(others, (entity(client_id=self.client_id), *ops)) == [0]


@pytest.fixture
def client(limiting, others):
    with ExitStack() as stack:
        yield lambda **quotas: stack.enter_context(Client(limiting, others, **quotas))


def passed_ms(begun_s):
    return (time.monotonic() - begun_s) * 1000


class TestProduce:
    @pytest.mark.parametrize("version", [1, 8, 9])
    def test_is_answered_at_once_and_then_held(self, client, topic, version):
        producer = client(producer_byte_rate=1000.0)
        records = batch(10_000) if version > 2 else asking.records_for(version, NOISE)
        fields = produce_fields(topic, records)
        begun = time.monotonic()
        answer = producer.ask("Produce", version, **fields)
        told_ms = answer["throttle_time_ms"]
        (result,) = answer["responses"][0]["partition_responses"]
        assert (result["error_code"], result["base_offset"]) == (0, 0)
        assert 0 < told_ms < 5000
        producer.ask("ApiVersions", 0)
        assert passed_ms(begun) >= told_ms

    def test_without_acknowledgements_it_is_held_as_well(self, client, topic):
        producer = client(producer_byte_rate=1000.0)
        fields = produce_fields(topic, batch(11_500), acks=0)
        begun = time.monotonic()
        producer.ask("Produce", 9, answered=False, **fields)
        producer.ask("ApiVersions", 0)
        assert passed_ms(begun) >= 1500

    def test_what_was_sent_meanwhile_is_served_afterwards_in_order(self, limiting, others, topic):
        raw = entity(client_id="raw")
        assert alter(others, (raw, setting(value=1000.0))) == [0]
        begun = time.monotonic()
        with Pipe(limiting) as pipe:
            for number in range(3):
                pipe.push("Produce", 9, **produce_fields(topic, batch(5_600 + number)))
            answers = [pipe.pull()[1] for _ in range(3)]
            took_ms = passed_ms(begun)
        parts = [each["responses"][0]["partition_responses"][0] for each in answers]
        assert [part["base_offset"] for part in parts] == [0, 1, 2]
        waits = [each["throttle_time_ms"] for each in answers]
        assert waits[0] == 0
        assert min(waits[1:]) > 0
        assert took_ms >= waits[1]  # the third was served after that time
        assert alter(others, (raw, removal())) == [0]


class TestFetch:
    @pytest.fixture
    def filled(self, others, topic):
        for _ in range(4):
            asking.produce(others, topic, batch(4_000))
        return topic

    def ask(self, consumer, topic, offset, version=12, **more):
        limits = {"partition_max_bytes": 4_500, **more}
        return consumer.ask("Fetch", version, **fetch_fields(topic, offset, **limits))

    @pytest.mark.parametrize("version", [3, 12])
    def test_an_answer_over_the_quota_is_empty_and_comes_later(
        self, limiting, client, filled, version
    ):
        consumer = client(consumer_byte_rate=1150.0)
        for offset in range(2):
            answer = self.ask(consumer, filled, offset, version)
            assert (answer["throttle_time_ms"], len(answer["responses"])) == (0, 1)
        begun = time.monotonic()
        answer = self.ask(consumer, filled, 2, version)
        told_ms = answer["throttle_time_ms"]
        assert answer["responses"] == []
        assert 0 < told_ms < 2_000
        rate = limiting.metric("kafka_server_fetch_byte_rate", client_id=consumer.client_id)
        assert 300 < rate <= 1150  # what it has not got does not count
        self.ask(consumer, filled, 2, version)
        assert passed_ms(begun) >= told_ms

    def test_who_claims_to_be_a_broker_gets_no_records_and_is_held_back(self, client, filled):
        consumer = client(request_percentage=1e-6)
        first, second = (self.ask(consumer, filled, 0, replica_id=7) for _ in range(2))
        assert first["error_code"] == second["error_code"] == 31
        assert first["responses"][0]["partitions"][0]["records"] in (None, b"")
        assert second["throttle_time_ms"] > 0

    def test_one_larger_than_the_quota_ever_allows_comes_alone(self, client, filled):
        consumer = client(consumer_byte_rate=100.0)  # 1,000 bytes in ten seconds
        answer = self.ask(consumer, filled, 0)
        assert answer["throttle_time_ms"] > 10_000
        (partition,) = answer["responses"][0]["partitions"]
        assert partition["records"]

    def test_no_fetch_asks_for_more_than_the_quota_allows_at_once(self, client, filled):
        consumer = client(consumer_byte_rate=500.0)  # 5,000 bytes in ten seconds: one batch
        fields = fetch_fields(filled, 0, min_bytes=1 << 20, max_wait_ms=60_000)
        answer = consumer.ask("Fetch", 12, **fields)
        (partition,) = answer["responses"][0]["partitions"]
        assert len(recordset.parse(partition["records"])[0]) == 1
        assert answer["throttle_time_ms"] == 0

    def test_a_session_goes_on_after_it(self, client, filled):
        consumer = client(consumer_byte_rate=700.0)
        first = self.ask(consumer, filled, 0, session_epoch=0)
        assert first["session_id"] > 0
        later = {"session_id": first["session_id"], "partition_max_bytes": 4_500}
        held = consumer.ask("Fetch", 12, **fetch_fields(filled, 1, session_epoch=1, **later))
        assert (held["session_id"], held["responses"]) == (first["session_id"], [])
        assert held["throttle_time_ms"] > 0
        assert held["error_code"] == 0

    def test_a_session_is_not_begun_by_an_answer_that_is_held_back(self, limiting, client, filled):
        before = limiting.metric(SESSIONS)
        consumer = client(consumer_byte_rate=1000.0)
        for _ in range(2):
            self.ask(consumer, filled, 0)
        held = self.ask(consumer, filled, 0, session_epoch=0)
        assert (held["session_id"], held["responses"]) == (0, [])
        assert limiting.metric(SESSIONS) == before
        assert held["throttle_time_ms"] > 0


class TestRequests:
    def test_the_time_of_requests_is_held_for_one_window_at_most(self, client):
        asker = client(request_percentage=1e-6)
        begun = time.monotonic()
        assert asker.ask("ListGroups", 1)["throttle_time_ms"] == 1000
        asker.ask("ListGroups", 1)
        assert passed_ms(begun) >= 1000


class TestChanges:
    def new(self, client, version, partitions):
        named = {"name": new_name(), "num_partitions": partitions, "replication_factor": 1}
        topics = [{**named, "configs": [], "assignments": []}]
        answer = client.ask(
            "CreateTopics", version, topics=topics, timeout_ms=9_000, validate_only=False
        )
        (result,) = answer["topics"]
        return result["error_code"], answer["throttle_time_ms"], named["name"]

    def test_newer_clients_are_refused(self, client):
        admin = client(controller_mutation_rate=1.0)
        code, wait_ms, name = self.new(admin, 7, 14)  # 11 are there at first
        assert (code, wait_ms) == (0, 0)
        code, wait_ms, _ = self.new(admin, 7, 1)
        assert code == THROTTLING_QUOTA_EXCEEDED
        assert 0 < wait_ms <= 3000
        code, wait_ms, _ = self.new(admin, 7, 12)  # after that time
        assert (code, wait_ms) == (0, 0)
        deleted = admin.ask("DeleteTopics", 5, topic_names=[name], timeout_ms=9_000)
        assert deleted["responses"][0]["error_code"] == THROTTLING_QUOTA_EXCEEDED
        assert deleted["throttle_time_ms"] > 5_000

    def test_older_clients_are_held(self, client):
        admin, begun = client(controller_mutation_rate=1.0), time.monotonic()
        assert self.new(admin, 5, 12)[:2] == (0, 1000)
        assert self.new(admin, 5, 1)[0] == 0
        assert passed_ms(begun) >= 1000

    def test_more_partitions(self, client, others):
        admin, name = client(controller_mutation_rate=1.0), new_name()
        create(others, name)
        for count, code in ((16, 0), (17, THROTTLING_QUOTA_EXCEEDED)):
            topics = [{"name": name, "count": count, "assignments": None}]
            answer = admin.ask(
                "CreatePartitions", 3, topics=topics, timeout_ms=9_000, validate_only=False
            )
            assert answer["results"][0]["error_code"] == code


class TestConnections:
    def test_the_rate_of_an_address(self, start):
        broker = start()
        with broker.connect() as connection:
            local = entity(ip="127.0.0.1")
            assert alter(connection, (local, setting("connection_creation_rate", 4.0))) == [0]
            assert described(connection)
        assert seconds_to_serve(broker, 8) >= 0.75
        assert broker.metric("tidelog_connections_delayed_total") >= 1

    def test_a_muted_connection_is_served_when_it_has_waited(self, start):
        broker = start({"connections.max.idle.ms": HELD_MS})
        with broker.connect() as connection, Pipe(broker) as held:
            held.client_id = "held"
            create(connection, "t")
            assert alter(connection, (entity(client_id="held"), setting(value=1.0))) == [0]
            begun = time.monotonic()
            answer = held.ask("Produce", 9, **produce_fields("t", batch(10)))
            assert answer["throttle_time_ms"] > HELD_MS
            # It is muted for connections.max.idle.ms at most.
            assert held.ask("ApiVersions", 0) is not None
            assert passed_ms(begun) >= HELD_MS
