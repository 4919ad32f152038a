"""`tidelog transactions` against a broker: what it lists, finds and ends, and what it refuses."""

from __future__ import annotations

import functools
import json
import shutil

import pytest

from tests.broker import asking
from tests.broker.conftest import healthy
from tests.broker.coordinators.transactions.requests import NONE, Transactional, committed
from tests.broker.subject import eventually
from tests.tidelog.cli.conftest import SETTINGS
from tidelog.cli.transactions import hanging
from tidelog.cli.transactions.asking import DescribedTransaction
from tidelog.cli.transactions.diagnosis import HANGS, LATE, findings
from tidelog.client.calls.transactions import ProducerTransaction

NEW_YEAR_MS = 1_767_225_600_000


@pytest.fixture
def run(run):
    return functools.partial(run, "transactions")


@pytest.fixture
def told(run):
    """The JSON of an action that must succeed."""

    def told(*arguments, **where):
        status, out, err = run(*arguments, "--json", **where)
        assert (status, err) == (0, "")
        return json.loads(out)

    return told


@pytest.fixture
def topic(connection):
    name = asking.new_name("txn")
    asking.create(connection, name, partitions=2)
    return name


@pytest.fixture
def producer(broker, connection, topic):
    """One that has a record in partition 0, and partition 1 in its transaction."""
    made = Transactional(connection, asking.new_name("id"))
    assert made.init() == NONE
    assert made.add(topic, 0, 1) == [NONE, NONE]
    assert made.send(topic, "first") == NONE
    broker.clock.step("30s")
    yield made
    eventually(lambda: made.state != "PrepareAbort")


def test_an_open_transaction_is_listed_and_described(run, told, topic, producer):
    (found,) = [each for each in told() if each["transactional_id"] == producer.id]
    partitions = [{"topic": topic, "partition": number} for number in (0, 1)]
    assert found == {
        "transactional_id": producer.id,
        "state": "Ongoing",
        "coordinator": 1,
        "producer_id": producer.given.producer_id,
        "producer_epoch": 0,
        "timeout_ms": 60_000,
        "start_ms": NEW_YEAR_MS,
        "start": "2026-01-01T00:00:00.000Z",
        "open_for_ms": 30_000,
        "partitions": partitions,
    }
    starts = [one | {"start_offset": at} for one, at in zip(partitions, (0, None), strict=True)]
    assert told("describe", producer.id) == [found | {"partitions": starts}]
    status, table, _ = run("list", "--matching", producer.id)
    assert status == 0
    assert table.splitlines()[-1].split() == [
        *(producer.id, "Ongoing", str(producer.given.producer_id), "0", "1", "30", "s"),
        "2026-01-01T00:00:00Z",
    ]
    _, text, _ = run("describe", producer.id)
    assert text.splitlines()[0] == (
        f"{producer.id}: Ongoing, producer id {producer.given.producer_id}, epoch 0, coordinator 1"
    )
    assert "transaction.timeout.ms 1m 0s, open for 30 s, since 2026-01-01T00:00:00Z" in text
    assert [line.split() for line in text.splitlines()[-2:]] == [
        [topic, "0", "0"],
        [topic, "1", "-"],
    ]


def test_filters_leave_out_what_does_not_match(run, told, producer):
    def names(*filters):
        return [each["transactional_id"] for each in told("list", *filters)]

    here = ("--matching", producer.id)
    assert names(*here) == [producer.id]
    assert names("--matching", producer.id[:-1]) == []
    assert names(*here, "--state", "Empty", "--state", "Ongoing") == [producer.id]
    assert names(*here, "--state", "CompleteAbort") == []
    assert names("--producer-id", str(producer.given.producer_id)) == [producer.id]
    assert names("--producer-id", "987654321") == []
    assert names(*here, "--open-for", "29s") == [producer.id]
    assert names(*here, "--open-for", "31s") == []
    for wrong, sentence in (
        (("--state", "Asleep"), "there is no state Asleep (choose from Empty, Ongoing, "),
        (("--matching", "("), "not a regular expression"),
        (("--open-for", "soon"), "--open-for"),
        (("--producer-id", "x"), "expected a number"),
    ):
        status, _, err = run("list", *wrong)
        assert status in (1, 2), wrong
        assert sentence in err


def test_what_an_id_has_open_is_aborted_and_its_producer_fenced(
    run, told, connection, topic, producer
):
    status, _, err = run("abort", "--id", producer.id)
    assert status == 2
    assert "add --yes" in err
    assert producer.state == "Ongoing"
    assert told("abort", "--id", producer.id, "--yes") == {
        "transactional_id": producer.id,
        "aborted": True,
    }
    assert producer.send(topic, "late") == 47
    assert producer.end(commit=True) == 90
    assert committed(connection, topic) == []
    status, _, err = run("abort", "--id", producer.id, "--yes")
    assert status == 1
    assert "has nothing open" in err


def test_what_a_coordinator_will_end_does_not_hang(run, told, topic, producer):
    assert told("find-hanging", topic, "--older-than", "0s") == []
    assert "2 partitions examined: nothing hangs." in run("find-hanging", topic)[1]
    status, _, err = run("abort", topic, "--partition", "0", "--start-offset", "0", "--yes")
    assert status == 1
    assert "no transaction hangs" in err
    assert producer.state == "Ongoing"


def test_mistakes_are_sentences(run, topic):
    for arguments, sentence in (
        (("describe", "nobody"), "there is no transactional id nobody"),
        (("abort",), "expected TOPIC or --id ID"),
        (("abort", topic, "--id", "x"), "expected TOPIC or --id ID"),
        (("abort", "--id", "x", "--partition", "0"), "leave out the others"),
        (("abort", topic, "--start-offset", "-1"), "expected a number"),
        (("find-hanging", "--partition", "0"), "--partition needs a TOPIC"),
        (("find-hanging", topic, "--partition", "7"), f"there is no partition {topic}-7"),
        (("find-hanging", "nowhere"), "there is no topic nowhere"),
        (("find-hanging", topic, "--older-than", "x"), "--older-than"),
    ):
        status, _, err = run(*arguments)
        assert status in (1, 2), arguments
        assert sentence in err, arguments


@pytest.fixture
def orphan(broker, connection, topic, producer, tmp_path):
    """A broker with a copy of the topic alone: nobody there knows its open transaction."""
    assert producer.send(topic, "second", partition=1) == NONE
    assert asking.produce(connection, topic, asking.batch_of("after"))["error_code"] == NONE
    data = tmp_path / "data"
    for number in (0, 1):
        shutil.copytree(broker.log_dir / f"{topic}-{number}", data / f"{topic}-{number}")
    with healthy(tmp_path, SETTINGS) as subject:
        subject.clock.freeze("2026-01-01T00:01Z")
        yield subject


def test_a_transaction_of_a_copied_directory_hangs_until_it_is_aborted(
    orphan, run, told, topic, producer
):
    with orphan.connect() as connection:
        assert committed(connection, topic) == []
        first, second = told("find-hanging", at=orphan)
        assert (first["topic"], first["partition"], first["start_offset"]) == (topic, 0, 0)
        assert (second["topic"], second["partition"], second["start_offset"]) == (topic, 1, 0)
        assert first["producer_id"] == producer.given.producer_id
        assert first["transactional_id"] is None
        assert first["age_ms"] == 60_000
        status, text, _ = run("find-hanging", at=orphan)
        assert status == 0
        assert f"tidelog transactions abort {topic} --partition 0 --start-offset 0" in text
        assert "2 partitions examined: 2 transactions hang." in text
        status, _, err = run("abort", topic, "--partition", "0", at=orphan)
        assert (status, "add --yes" in err) == (2, True)
        narrow = ("abort", topic, "--partition", "0", "--start-offset", "0", "--yes")
        assert [each["aborted"] for each in told(*narrow, at=orphan)] == [True]
        assert committed(connection, topic) == ["after"]
        (left,) = told("find-hanging", at=orphan)
        assert left["partition"] == 1
        assert run("abort", topic, "--yes", at=orphan)[:2] == (
            0,
            f"Aborted: {topic}-1 from offset 0 on (producer id {producer.given.producer_id}).\n",
        )
        assert told("find-hanging", at=orphan) == []


def test_what_hangs_is_late_once_no_transaction_may_be_open_so_long(orphan, run, topic):
    late = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    with orphan.connect() as connection:
        assert [committed(connection, topic, number) for number in (0, 1)] == [[], []]
    orphan.clock.step("13m")
    assert orphan.metric(late) == 0
    orphan.clock.step("2m")
    assert orphan.metric(late) == 2
    status, out, _ = run.func("cluster", "doctor", "--json", at=orphan)
    (found,) = json.loads(out)["findings"]
    assert status == 1
    assert (found["finding"], found["brokers"]) == ("transactions hang", [1])
    assert found["partitions"] == [f"{topic}-0", f"{topic}-1"]
    assert "2 transactions are open" in found["sentence"]
    assert "`tidelog transactions find-hanging`" in found["help"]
    assert run("abort", topic, "--yes", at=orphan)[0] == 0
    assert orphan.metric(late) == 0
    assert run.func("cluster", "doctor", at=orphan)[0] == 0


def test_what_clients_choose_is_escaped(run, connection, topic):
    wild = Transactional(connection, "\x1b[31mred\x9b2J\nmore")
    assert wild.init() == NONE
    assert wild.add(topic, 0) == [NONE]
    shown = r"\x1b[31mred\x9b2J\nmore"
    for arguments in (("list",), ("describe", wild.id), ("abort", "--id", wild.id, "--yes")):
        status, out, _ = run(*arguments)
        assert status == 0
        assert shown in out
        assert all(line.isprintable() for line in out.splitlines())
    _, _, err = run("abort", "--id", wild.id, "--yes")
    assert shown in err


class TestJudged:
    """Which open transactions hang, by what coordinators know."""

    PLACE = ("t", 0)
    OPEN = hanging.Opened(PLACE, ProducerTransaction(7, 0, -1, 5, 1_000))

    def known(self, *partitions):
        owner = DescribedTransaction("id", "Ongoing", 1, 7, 0, 60_000, 0, partitions)
        return {7: owner}

    def test_one_that_its_coordinator_has_does_not(self):
        assert hanging.judged([self.OPEN], self.known(self.PLACE), 0, 10**9) == []

    def test_one_that_its_coordinator_lacks_does_after_the_longest_time_out(self):
        known = self.known(("t", 1))
        assert hanging.judged([self.OPEN], known, 500, 1_500) == []
        (found,) = hanging.judged([self.OPEN], known, 500, 1_501)
        assert (found.transactional_id, found.age_ms) == ("id", 501)

    def test_one_whose_producer_nobody_knows_does_at_once(self):
        (found,) = hanging.judged([self.OPEN], {}, 10**9, 1_000)
        assert found.transactional_id is None


class TestDiagnosis:
    """What `tidelog cluster doctor` says, by what the brokers say."""

    def found(self, idle_ms, *coordinated):
        """One transaction that broker 1 leads, and what each broker coordinates."""
        opened = {"topic": "t", "partition": 0, "producer_id": 7, "idle_ms": idle_ms}
        brokers = [
            {
                "broker": number,
                "own": own
                and {
                    "transaction_max_timeout_ms": 900_000,
                    "open_transactions": [opened] if number == 1 else [],
                    "open_producers": own["ids"],
                },
            }
            for number, own in enumerate(coordinated, start=1)
        ]
        return [(each.finding, each.partitions) for each in findings({"brokers": brokers})]

    def test_what_no_coordinator_has_hangs(self):
        nobody, others = {"ids": [1]}, {"ids": [8]}
        assert self.found(61_000, nobody, others) == [(HANGS, ["t-0"])]
        assert self.found(61_000, nobody, {"ids": [7]}) == []

    def test_of_a_broker_that_was_not_asked_nothing_is_known(self):
        for unknown in (None, {"ids": None}):
            assert self.found(61_000, {"ids": []}, unknown) == []
            assert self.found(900_001, {"ids": []}, unknown) == [(HANGS, ["t-0"])]

    def test_what_a_coordinator_does_not_end_in_time_is_late(self):
        has = {"ids": [7]}
        assert self.found(900_000, has) == []
        assert self.found(900_001, has) == [(LATE, ["t-0"])]
