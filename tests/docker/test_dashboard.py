"""The dashboard of docker/grafana: sound as a file, and every panel's query answered by a real Prometheus.

The Prometheus scrapes a real broker, under a load that has something for every panel: late records,
expired ones, refused ones, times in another unit, a clock that leaps. Grafana itself is not run.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, OffsetOutOfRangeError
from kafka.structs import OffsetAndMetadata

from tests.broker.subject import eventually
from tidelog.broker.http.metrics.collector import FAMILIES
from tidelog.process import BrokerProcess

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "docker" / "grafana"
BOARD = json.loads((GRAFANA / "dashboards" / "tidelog.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = [
    pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}".replace(" ", "-"))
    for panel in PANELS
    for target in panel["targets"]
]
PROMETHEUS = shutil.which("prometheus")
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
PATIENCE_S = 60
SHOWN = "1h"  # the stretch that rates are of: the load must lie in it, however slow the machine is

needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None, reason="prometheus is not here (on Debian: apt install prometheus)"
)


def declared():
    """Every name that /metrics may show."""
    names = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total"}
    for family in FAMILIES:
        names.add(family.name + {"counter": "_total", "histogram": "_bucket"}.get(family.kind, ""))
    return names


def named_in(expr):
    return set(re.findall(r"\b((?:kafka|tidelog|process)_\w+|up)\b(?=\{)", expr))


# --- the files -----------------------------------------------------------------------------------


def test_every_metric_of_a_panel_or_an_alert_is_declared():
    asked = set().union(*(named_in(param.values[0]) for param in QUERIES))
    assert len(asked) > 20
    assert asked - declared() == set()
    alerts = (ROOT / "docker" / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
    names = set(re.findall(r"\b(?:kafka|tidelog)_\w+", alerts))
    assert len(names) > 6
    assert names - declared() == set()


def test_every_panel_says_what_it_shows_and_in_which_unit():
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        assert panel["description"].endswith((".", "in.")), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0


def test_panels_lie_side_by_side():
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken = {}
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                other = taken.setdefault((x, y), panel["title"])
                assert other == panel["title"], f"{panel['title']} covers {other}"


def test_the_data_source_is_the_provisioned_one():
    provisioned = (GRAFANA / "provisioning/datasources/prometheus.yaml").read_text(encoding="utf-8")
    (uid,) = re.findall(r"uid: (\S+)", provisioned)
    told = {panel["datasource"]["uid"] for panel in PANELS}
    told |= {target["datasource"]["uid"] for panel in PANELS for target in panel["targets"]}
    told |= {variable["datasource"]["uid"] for variable in BOARD["templating"]["list"]}
    assert told == {uid}


def test_compose_mounts_what_is_provisioned():
    compose = (ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8")
    provider = (GRAFANA / "provisioning/dashboards/tidelog.yaml").read_text(encoding="utf-8")
    (path,) = re.findall(r"path: (\S+)", provider)
    assert f"./grafana/dashboards:{path}:ro" in compose
    assert f"DASHBOARD_PATH: {path}/tidelog.json" in compose
    assert "./grafana/provisioning:/etc/grafana/provisioning:ro" in compose


@pytest.mark.parametrize("name", ["compose.yaml", "compose.cluster.yaml"])
def test_every_service_is_limited_and_watched_and_grafana_has_no_default_password(name):
    stack = yaml.safe_load((ROOT / "docker" / name).read_text(encoding="utf-8"))
    for service, given in stack["services"].items():
        assert given["security_opt"] == ["no-new-privileges:true"], service
        assert given["mem_limit"], service
        assert given["pids_limit"] > 0, service
        assert given["ulimits"]["nofile"] > 0, service
        assert given["logging"]["options"] == {"max-size": "10m", "max-file": "3"}, service
        if "build" in given:  # the image's own is not replaced
            assert "healthcheck" not in given, service
            continue
        check = given["healthcheck"]
        assert check["test"][0] == "CMD", service
        assert {"interval", "timeout", "retries", "start_period"} < set(check), service
    grafana = stack["services"]["grafana"]["environment"]
    assert grafana["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert grafana["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert grafana["GF_AUTH_BASIC_ENABLED"] == "false"


# --- the queries ---------------------------------------------------------------------------------


class Prometheus:
    """A Prometheus that scrapes one broker, often."""

    def __init__(self, directory, broker_http):
        config = directory / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\n"  # and as long may a scrape take: the machine may be busy
            "scrape_configs:\n"
            "  - {job_name: tidelog, static_configs: [{targets: ['" + broker_http + "']}]}\n"
        )
        self.log = directory / "prometheus.log"
        with self.log.open("wb") as log:
            self.process = self._started(config, directory / "data", log)
        try:
            self.address = eventually(self._listens_on, PATIENCE_S, "Prometheus to listen")
        except BaseException:
            self.stop()
            raise

    @staticmethod
    def _started(config, data, log):
        """On a port that the system gives it."""
        command = [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={data}"]
        command.append("--web.listen-address=127.0.0.1:0")
        return subprocess.Popen(command, stdout=log, stderr=log)

    def _listens_on(self):
        told = self.log.read_text()
        assert self.process.poll() is None, told
        found = re.search(r"Listening on.*address=(127\.0\.0\.1:[1-9]\d*)\s", told)
        return found and found[1]

    def ask(self, expr):
        """The samples of an instant query, as (labels, value)."""
        query = urllib.parse.urlencode({"query": expr})
        url = f"http://{self.address}/api/v1/query?{query}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            told = json.load(answer)
        assert told["status"] == "success"
        return [(each["metric"], float(each["value"][1])) for each in told["data"]["result"]]

    def until(self, expr, *, within_s=PATIENCE_S):
        """Ask until there is a sample that is a number."""
        samples = []

        def answered():
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(urllib.error.URLError):  # it starts
                samples[:] = self.ask(expr)
            return any(math.isfinite(value) for _, value in samples)

        eventually(answered, within_s, f"an answer to {expr}")
        return samples

    def seen_all_so_far(self):
        """Wait for a scrape that began after this call: what was done before is then in the answers.

        Prometheus moves the time of a scrape by up to 2 ms, to have them lie evenly.
        """
        up = 'up{job="tidelog"}'  # alone: what is computed of it has the time of the question
        self.until(f"timestamp({up}) > {time.time() + 0.01} and {up} == 1")

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE_S)


TOPICS = {
    "steady": {},
    "expired": {"retention.ms": str(HOUR_MS)},
    "window": {"message.timestamp.difference.max.ms": str(HOUR_MS)},
    "unknown": {},
}


def produce(broker, sends):
    """Send (topic, time) one batch each; a refused one is what was asked for."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=False)
    for topic, time_ms in sends:
        try:
            producer.send(topic, b"v" * 100, timestamp_ms=time_ms).get(PATIENCE_S)
        except KafkaError:
            assert topic == "window"
    producer.close()


def lag(broker):
    """A group that has read all but two records of "steady", an hour apart by their own times."""
    partition = TopicPartition("steady", 0)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id="readers", enable_auto_commit=False
    )
    consumer.assign([partition])
    end = consumer.end_offsets([partition])[partition]
    consumer.commit({partition: OffsetAndMetadata(end, "", -1)})
    consumer.close()
    now_ms = broker.clock.now_ms()
    produce(broker, [("steady", now_ms - HOUR_MS), ("steady", now_ms)])


def consume(broker):
    """Read what is there, then beyond it, which is refused."""
    partition = TopicPartition("steady", 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="none")
    consumer.assign([partition])
    consumer.seek_to_beginning()
    assert consumer.poll(PATIENCE_S * 1_000)
    consumer.seek(partition, 10**9)
    with pytest.raises(OffsetOutOfRangeError):
        eventually(lambda: consumer.poll(1_000) and False, PATIENCE_S)
    consumer.close()


def load(broker):
    """A bit of everything the panels show."""
    now_ms = broker.clock.now_ms()
    produce(broker, [("steady", now_ms), ("steady", now_ms - DAY_MS), ("steady", now_ms)])
    produce(broker, [("expired", now_ms - DAY_MS), ("window", now_ms - DAY_MS)])
    produce(broker, [("steady", now_ms // 1000)])  # seconds
    consume(broker)
    lag(broker)


def forget_append_times(broker, topic):
    """As if another broker had written that log."""
    broker.stop()
    (directory,) = broker.log_dir.glob(f"{topic}-0")
    for file in (*directory.glob("*.appendtimes"), directory / "partition.times"):
        file.unlink()
    broker.restart()
    broker.clock.run(1)
    produce(broker, [(topic, broker.clock.now_ms())])


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dashboard")
    with BrokerProcess(directory / "logs", clock="manual") as broker:
        broker.clock.run(1)
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics(
            {
                name: {"num_partitions": 1, "replication_factor": 1, "configs": configs}
                for name, configs in TOPICS.items()
            }
        )
        admin.close()
        now_ms = broker.clock.now_ms()
        produce(broker, [("unknown", now_ms)])
        forget_append_times(broker, "unknown")
        began_s = time.monotonic()
        load(broker)
        prometheus = Prometheus(directory, broker.http)
        prometheus.began_s = began_s
        prometheus.clock = broker.clock
        try:
            prometheus.until("tidelog_late_records_total")
            load(broker)  # between two scrapes: rates want a difference
            prometheus.seen_all_so_far()
            for counter in (
                'tidelog_late_records_total{topic="steady"}',
                "kafka_server_brokertopicmetrics_failedfetchrequests_total",
            ):
                prometheus.until(f"rate({counter}[{SHOWN}]) > 0")
            yield prometheus
        finally:
            prometheus.stop()


def as_grafana_asks(expr):
    """With Grafana's variables filled in."""
    for name in ("instance", "topic", "group"):
        expr = expr.replace(f"${name}", ".*")
    return expr.replace("$__rate_interval", SHOWN)


@pytest.mark.slow
@needs_prometheus
@pytest.mark.parametrize("expr", QUERIES)
def test_the_query_answers(prometheus, expr):
    asked = as_grafana_asks(expr)
    assert "$" not in asked
    assert prometheus.until(asked)


@pytest.mark.slow
@needs_prometheus
def test_the_variables_have_values(prometheus):
    names = [variable["name"] for variable in BOARD["templating"]["list"]]
    assert names == ["instance", "topic", "group"]
    groups = {
        labels["group"] for labels, _ in prometheus.until('tidelog_group_members{job="tidelog"}')
    }
    assert groups == {"readers"}
    topics = {
        labels["topic"] for labels, _ in prometheus.until('kafka_log_log_size{job="tidelog"}')
    }
    assert topics == {*TOPICS, "__consumer_offsets"}
