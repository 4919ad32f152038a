"""What only leaders know, asked of a broker that leads a third of a topic, or has no replica of it.

Every route below /v1 and every command that reads a log's state gives the same answer at each broker.
"""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.subject import eventually, json_at
from tidelog.broker.metadata.brokers.records import Endpoint, live_key, put_live
from tidelog.broker.metadata.local import local_metadata
from tidelog.cli.parser import main
from tidelog.cluster import BrokerCluster

pytestmark = pytest.mark.slow  # two clusters

START_MS = 1_767_225_600_000
HOUR_MS = 3_600_000
RECORDS = 6  # of each partition, each in a segment of its own
BROKERS = (1, 2, 3)
TOPICS = ("spread", "lone")  # with three replicas of each partition, and with one


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = {"clock.start.ms": START_MS, "log.retention.check.interval.ms": 10**12}
    with BrokerCluster(
        tmp_path_factory.mktemp("led") / "data", 3, settings, clock="manual"
    ) as made:
        for topic, replicas in zip(TOPICS, (3, 1), strict=True):
            fill(made, topic, replicas)
        yield made


def fill(cluster, topic, replicas):
    """Creates a topic with a partition on each broker, and appends records that are two hours old."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    configs = {"segment.bytes": "1024", "retention.ms": "-1"}
    admin.create_topics([NewTopic(topic, 3, replicas, config=configs)])[topic].result(30)
    leaders = {each.leader for each in admin.list_topics(topic).topics[topic].partitions.values()}
    assert leaders == set(BROKERS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(RECORDS):
        for partition in range(3):
            at = START_MS - 2 * HOUR_MS + number
            producer.produce(topic, b"v" * 800, partition=partition, timestamp=at)
        assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"of-{topic}"})
    read = [TopicPartition(topic, partition, 2) for partition in range(3)]
    consumer.commit(offsets=read, asynchronous=False)
    consumer.close()


def ask(broker, path):
    """Status and JSON of a path below /v1."""
    return json_at(broker.http, f"/v1{path}")


def run(capsys, broker, *command):
    """Exit status, what it printed, and what it complained of."""
    capsys.readouterr()
    status = main([*command, "--http", broker.http])
    return status, *capsys.readouterr()


ROUTES = (
    "/topics/{}/explain",
    "/topics/{}/explain?set=retention.ms=1h",
    "/topics/{}/explain?partition=1",
    "/topics/{}/offsets",
    "/topics/{}/offsets?isolation=read_committed",
    f"/topics/{{}}/offsets?at={START_MS - 2 * HOUR_MS + 3}",
    f"/topics/{{}}/offsets?at={START_MS - 2 * HOUR_MS + 3}&capped=true&partition=2",
    "/topics/{}/offsets?at=-1&shift=true",
    "/topics/{}/offsets?appended-at=-1h",
    "/topics/{}/clock",
    "/doctor?topic={}",
    "/doctor?topic={}&partition=0",
    *(f"/topics/{{}}/partitions/{number}/records/3/times" for number in range(3)),
    *(f"/topics/{{}}/partitions/{number}/records/3/times?next=true" for number in range(3)),
    *(f"/topics/{{}}/partitions/{number}/records/99/times" for number in range(3)),
)


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("route", ROUTES)
def test_every_broker_answers_as_the_leaders_do(cluster, route, topic):
    first, *others = (ask(cluster[broker], route.format(topic)) for broker in BROKERS)
    if "/clock" in route:
        asked = [answer.pop("broker") for _, answer in (first, *others)]
        assert asked == list(BROKERS)
    assert others == [first, first]
    status, answer = first
    assert status == (404 if "/99/" in route else 200)
    if "partitions" in answer:
        assert not any("error" in row for row in answer["partitions"])
        expected = [int(route[-1])] if "partition=" in route else [0, 1, 2]
        assert [row["partition"] for row in answer["partitions"]] == expected
    if "explain" in route:
        assert all(len(row["segments"]) >= RECORDS for row in answer["partitions"])


def test_a_diagnosis_examines_every_log_once(cluster):
    for broker in BROKERS:
        _, answer = ask(cluster[broker], "/doctor")
        offsets_topic = 50
        assert answer["partitions_examined"] == 6 + offsets_topic
        assert (answer["errors"], answer["findings"]) == ([], [])


COMMANDS = (  # those that ask over HTTP alone, of which some are enough, and those that ask both
    ("explain", "{}", "--why"),
    ("clock", "reset", "{}", "--dry-run"),
    ("delete-records", "{}", "--before", "-1h", "--dry-run"),
    ("delete-records", "{}", "--before", "-1h", "--appended", "--dry-run"),
    ("groups", "describe", "of-{}", "--json"),
    ("groups", "reset-offsets", "of-{}", "{}", "--to-time", "-1h", "--by", "append", "--dry-run"),
    ("consume", "{}", "--json"),
)


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("command", COMMANDS, ids="-".join)
def test_every_command_says_the_same_at_each_broker(cluster, command, topic, capsys):
    told = []
    for broker in BROKERS:
        given = [each.format(topic) for each in command]
        if command[0] not in ("explain", "clock"):
            given += ["--broker", cluster[broker].bootstrap]
        status, out, err = run(capsys, cluster[broker], *given)
        assert (status, err) == (0, "")
        told.append(sorted(out.splitlines()))  # records of several partitions come in any order
    assert told[1:] == [told[0], told[0]]
    assert "error" not in " ".join(told[0]).lower()


@pytest.mark.parametrize("topic", TOPICS)
def test_a_change_that_deletes_is_refused_at_every_broker_with_the_sum_of_all(
    cluster, topic, capsys
):
    refusals = set()
    for broker in BROKERS:
        change = ("configs", "set", topic, "retention.ms=1h", "--broker", cluster[broker].bootstrap)
        status, out, err = run(capsys, cluster[broker], *change)
        assert (status, out) == (2, "")
        refusals.add(err)
    (refusal,) = refusals
    assert f"{3 * RECORDS} records" in refusal
    assert "add --yes" in refusal


def test_a_clock_is_that_of_the_broker_that_is_asked(cluster, capsys):
    for broker in BROKERS:
        assert ask(cluster[broker], "/clock")[1]["broker"] == broker
        status, out, _ = run(capsys, cluster[broker], "clock")
        assert status == 0
        assert out.startswith(f"The clock of broker {broker} shows ")
        assert "tidelog doctor finds times that are ahead in what any of them leads" in out


def test_settings_of_a_broker_are_those_of_the_broker_that_is_named(cluster, capsys):
    for broker in BROKERS:
        address = cluster[broker].bootstrap
        show = (
            "configs",
            "show",
            "--of-broker",
            "advertised.listeners",
            "--json",
            "--broker",
            address,
        )
        status, out, _ = run(capsys, cluster[broker], *show)
        answer = json.loads(out)
        assert (status, answer["broker"]) == (0, broker)
        assert address in answer["settings"]["advertised.listeners"]["value"]


# --- leaders that cannot be asked ----------------------------------------------------------------


class Stranger(ThreadingHTTPServer):
    """A program at the address of a broker's HTTP port; it answers everything, and says that nothing goes."""

    def __init__(self, headers, status=200):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.headers, self.status, self.requests = headers, status, []

    @property
    def port(self):
        return self.server_address[1]


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append((self.path, dict(self.headers)))
        going = dict.fromkeys(("segments", "records", "bytes"), 0) | {"policies": []}
        row = {"going": going, "going_as_it_is": going, "segments": [], "reset": None}
        rows = [{"partition": number, **row} for number in range(3)]
        body = json.dumps(
            {"topic_id": "?", "partitions": rows, "findings": [], "errors": []}
        ).encode()
        self.send_response(self.server.status)
        for name, value in {**self.server.headers, "Content-Length": len(body)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        pass


async def set_http(cluster, broker, port):
    """Lets a broker's session name another HTTP port; none with None."""
    metadata = local_metadata(cluster.directory / "tidelog.sqlite", 99, is_shared=True)
    await metadata.open()
    try:
        live = metadata.image.brokers[broker]
        lease = next(pair.lease for pair in (await metadata.store.read(live_key(broker))).pairs)
        others = tuple(each for each in live.record.endpoints if each.listener != "HTTP")
        http = () if port is None else (Endpoint("HTTP", "127.0.0.1", port),)
        put = put_live(broker, live.record._replace(endpoints=others + http), lease)
        assert await metadata.transact((), (put,)) is not None
    finally:
        await metadata.close()


@pytest.fixture
def renamed(cluster):
    """A function that gives broker 3 another HTTP port, until the end of the test."""

    def rename(port):
        asyncio.run(set_http(cluster, 3, port))
        known = None if port is None else f"127.0.0.1:{port}"
        for broker in (1, 2):
            eventually(lambda broker=broker: http_of_3(cluster[broker]) == known)

    yield rename
    rename(int(cluster[3].http.rpartition(":")[2]))


def http_of_3(broker):
    _, answer = ask(broker, "/cluster")
    return answer["brokers"][2]["http"]


def led_by_3(cluster, topic):
    """The partition that broker 3 leads."""
    _, answer = ask(cluster[1], "/cluster")
    (found,) = [
        each["partition"]
        for each in answer["partitions"]
        if each["topic"] == topic and each["leader"] == 3
    ]
    return found


def stranger_of(cluster, case):
    headers = {
        "an older version": {},
        "another broker": {"Tidelog-Broker": f"{cluster.cluster_id}/2"},
        "another cluster": {"Tidelog-Broker": "AAAAAAAAAAAAAAAAAAAAAA/3"},
        "a redirect": {
            "Tidelog-Broker": f"{cluster.cluster_id}/3",
            "Location": f"http://{cluster[3].http}/v1/topics/lone/explain",
        },
    }[case]
    return Stranger(headers, 302 if case == "a redirect" else 200)


@pytest.mark.parametrize(
    "case", ["an older version", "another broker", "another cluster", "a redirect"]
)
def test_what_is_no_answer_of_the_leader_is_none(cluster, renamed, case, capsys):
    number = led_by_3(cluster, "lone")
    with stranger_of(cluster, case) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        renamed(stranger.port)
        check_unknown(cluster[1], number, capsys)
        stranger.shutdown()
    assert stranger.requests
    for path, headers in stranger.requests:
        assert path.startswith("/v1/")
        assert headers["Tidelog-Asked-By"] == "1"


@pytest.mark.parametrize("port", [None, 1])
def test_a_leader_without_an_http_port_is_named(cluster, renamed, port, capsys):
    renamed(port)
    check_unknown(cluster[1], led_by_3(cluster, "lone"), capsys)


def check_unknown(broker, number, capsys):
    """Checks that a broker names the partition of which broker 3 alone knows, in all that it answers."""
    for path in ("explain", "offsets", "offsets?at=now", "clock"):
        status, answer = ask(broker, f"/topics/lone/{path}")
        failed = [row["partition"] for row in answer["partitions"] if "error" in row]
        assert (status, failed) == (200, [number])
        assert "broker 3, which leads it, " in answer["partitions"][number]["message"]
        alone = f"{path}{'&' if '?' in path else '?'}partition={number}"
        status, answer = ask(broker, f"/topics/lone/{alone}")
        assert (status, answer["error"]) == (503, "LEADER_NOT_AVAILABLE")
    assert ask(broker, f"/topics/lone/partitions/{number}/records/0/times")[0] == 503
    for command in (("explain", "lone"), ("offsets", "lone"), ("offsets", "lone", "--at", "now")):
        status, out, _ = run(capsys, broker, *command)
        assert (status, "broker 3, which leads it, " in out) == (1, True)
        assert run(capsys, broker, *command, "--json")[0] == 1
    status, out, _ = run(capsys, broker, "doctor", "lone")
    assert status == 2
    assert "broker 3 could not be examined: broker 3 " in out
    status, out, err = run(
        capsys, broker, "configs", "set", "lone", "retention.ms=1h", "--broker", broker.bootstrap
    )
    assert (status, out) == (2, "")
    assert f"is unknown, because lone-{number}: broker 3, which leads it, " in err
    assert f"{2 * RECORDS} records" in err
    _, answer = ask(broker, "/topics/lone/explain")
    assert answer["settings"]["retention.ms"] == -1


def test_a_question_of_a_broker_is_passed_on_to_nobody(cluster):
    request = urllib.request.Request(
        f"http://{cluster[1].http}/v1/topics/lone/explain", headers={"Tidelog-Asked-By": "2"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        rows = json.load(answer)["partitions"]
    assert [row.get("error") for row in rows].count("NOT_LEADER_OR_FOLLOWER") == 2


def test_what_nobody_leads_is_unknown_and_changes_only_with_yes(tmp_path, capsys):
    with BrokerCluster(tmp_path / "data", 2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(30)
        at = cluster[1]
        _, answer = ask(at, "/cluster")
        number = next(each["partition"] for each in answer["partitions"] if each["leader"] == 2)
        cluster.kill(2)
        told = f"nobody leads t-{number}, which has replicas on 2"
        path = f"/topics/t/offsets?partition={number}"
        eventually(lambda: ask(at, path)[1].get("message") == told, 60)
        assert ask(at, path)[0] == 503
        assert run(capsys, at, "doctor")[0] == 2
        change = ("configs", "set", "t", "retention.ms=1h", "--broker", at.bootstrap)
        status, out, err = run(capsys, at, *change)
        assert (status, out) == (2, "")
        assert told in err
        status, out, err = run(capsys, at, *change, "--yes")
        assert (status, out) == (0, "Changed t: retention.ms=3600000.\n")
        cluster.restart(2)
