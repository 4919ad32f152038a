"""Foreign clients over TCP: what each writes, every other reads; their groups, commits, administration.

`test_quick` needs nothing but the development environment and runs with all tests; `test_every_client`
(`make test-clients`) sets up the others, prints the whole matrix, and fails when a client is
skipped that expected_skips.txt does not name. The injected differences show that a broker that
did otherwise would be caught by the same run.
"""

from __future__ import annotations

import os

import pytest

from tests.broker.subject import json_at
from tests.clients import clients, matrix, topics
from tests.clients import expectations as rules
from tests.clients.coordination import grouping
from tests.clients.coordination import run as coordination
from tests.clients.rolling import run as rolling
from tests.clients.transactions.expectations import ABILITIES, ISOLATIONS
from tests.sampling import sampled

MINUTES_MAX = 10
ALONE = clients.CONFLUENT._replace(codecs=("none", "gzip"), idempotence="never")


@pytest.fixture
def broker(tidelog_broker_factory):
    return tidelog_broker_factory()


def check_replicas(cluster):
    """What the matrix has written has three replicas, all in sync, and every broker leads some of it."""
    rolling.wait_in_sync(cluster)
    found = json_at(cluster[1].http, "/v1/cluster")[1]["partitions"]
    # Those that a client has created itself have one.
    written = [each for each in found if not each["topic"].startswith("administered-by-")]
    assert {len(each["replicas"]) for each in written} == {3}
    assert {each["leader"] for each in written if each["topic"].startswith("format")} == {1, 2, 3}
    groups = [each for each in written if each["topic"] == "__consumer_offsets"]
    assert {each["leader"] for each in groups} == {1, 2, 3}


def check_formats_on_disk(directory, chosen):
    """The matrix saw the right records; here, that they lie in the format that was asked for."""
    wanted = {
        rules.topic_of(client, magic, kind).name: {magic}
        for client in chosen
        for magic in (0, 1, 2)
        for kind in rules.TIMESTAMP_TYPES
    }
    for client in chosen:
        wanted[rules.mixed_topic_of(client, rules.BROKERS["tidelog"])[0].name] = {0, 1, 2}
    assert topics.stored_formats(directory, wanted) == wanted


def check_coordination(report, chosen):
    """Every group, commit and call that there must be is in the report, and went well."""
    groups = [coordination.name_of(group) for group in coordination.groups_of(chosen)]
    assert sorted(report.groups) == sorted(groups)
    handed = grouping.PARTITIONS * grouping.WAVE * 4
    assert all(count >= handed for count in report.groups.values())
    committers = [client.name for client in chosen if not client.no_commits]
    assert set(report.commits) == {(w, r) for w in committers for r in committers}
    calls = {(client.name, call): "ok" for client in chosen for call in client.admin}
    assert report.administered == calls


def check_transactions(report, chosen):
    """Every client that can has written in transactions, and each has read what all wrote."""
    writers = [client.name for client in chosen if not ABILITIES[client.name].no_writing]
    assert sorted(report.transactions) == sorted(writers)
    for name in writers:
        assert set(report.transactions[name]["fenced"].split(", ")) <= set(ABILITIES[name].fenced)
        copies = None if ABILITIES[name].no_offsets else "ok"
        assert report.transactions[name].get("copies") == copies
    for client in chosen:
        able = ABILITIES[client.name]
        asked = ISOLATIONS[1:] if able.no_isolation else ISOLATIONS
        assert {one for name, one in report.isolated if name == client.name} == set(asked)
        counts = [report.isolated[client.name, one] for one in asked]
        assert 0 < counts[0] <= counts[-1]


@pytest.mark.timeout(900)
def test_quick(broker):
    report = matrix.run_matrix(broker.bootstrap, clients.QUICK)
    assert report.differences() == []
    assert report.skipped == {}
    names = [client.name for client in clients.QUICK]
    assert list(report.versions) == names
    groups = rules.BROKERS["tidelog"].groups()
    cells = {(w, r.name, g) for w in names for r in clients.QUICK for g in groups}
    assert set(report.good) == cells
    assert set(report.found) == {(name, group) for name in names for group in groups}
    check_formats_on_disk(broker.log_dir, clients.QUICK)
    check_coordination(report, clients.QUICK)
    check_transactions(report, clients.QUICK)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("believed", "created"),
    [(0, "0.10.2"), (1, "0.9.0"), (1, "3.0"), (2, "0.10.2")],
)
def test_a_broker_that_stored_another_format_would_be_caught(broker, believed, created):
    injected = rules.Rules({believed: created}, zstd_for_all=True, names_refusals=True)
    report = matrix.run_matrix(broker.bootstrap, [ALONE], broker=injected, parts=["records"])
    assert report.differences() != []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", rules.TIMESTAMP_TYPES)
def test_a_broker_that_stamped_otherwise_would_be_caught(broker, kind, monkeypatch):
    def create_all_alike(server, topics, broker):
        create(server, [topic._replace(timestamp_type=kind) for topic in topics], broker)

    create = topics.create_topics
    monkeypatch.setattr(topics, "create_topics", create_all_alike)
    report = matrix.run_matrix(broker.bootstrap, [ALONE], parts=["records"])
    wrong = [reasons for reasons in report.bad.values() if reasons]
    assert len(wrong) == 2  # formats 1 and 2; format 0 has no times to be wrong
    word = "create" if kind == "LogAppendTime" else "append"
    assert all(f"-{word}-" in reason for reasons in wrong for reason in reasons)


@pytest.mark.clients
@pytest.mark.timeout(60 * MINUTES_MAX + 1200)
def test_on_the_pure_twin(tidelog_broker_factory, monkeypatch):
    """A short form: a client of every second family, with the Python kernels in the broker.

    All of them take part in the long profile (TIDELOG_EVERY_CASE=1).
    """
    monkeypatch.setenv("TIDELOG_KERNELS", "py")
    broker = tidelog_broker_factory()
    assert "using slower Python kernels" in broker.log()
    report = matrix.run_matrix(broker.bootstrap, sampled(clients.SHORT, 2))
    assert report.differences() == []
    assert matrix.unexpected_skips(report.skipped) == {}


@pytest.mark.clients
@pytest.mark.timeout(60 * MINUTES_MAX + 1200)
def test_on_three_brokers(tidelog_cluster_factory, summarize):
    """A short form: one client of each family; every topic has three replicas, led by all brokers."""
    # No broker of a busy machine may take another for dead: who is not idempotent would write twice.
    cluster = tidelog_cluster_factory(brokers=3, settings={"broker.session.timeout.ms": 30_000})
    broker = rules.BROKERS["tidelog-cluster"]
    report = matrix.run_matrix(cluster.bootstrap, clients.ON_THREE_BROKERS, broker=broker)
    summarize("clients on three brokers", matrix.render(report, broker))
    assert report.differences() == []
    assert matrix.unexpected_skips(report.skipped) == {}
    present = [client for client in clients.ON_THREE_BROKERS if client.name in report.versions]
    check_formats_on_disk(cluster.directory, present)
    check_coordination(report, present)
    check_transactions(report, present)
    check_replicas(cluster)


@pytest.mark.clients
@pytest.mark.timeout(60 * MINUTES_MAX + 1200)
def test_every_client(broker, summarize):
    report = matrix.run_matrix(broker.bootstrap)
    summarize("every client", matrix.render(report, rules.BROKERS["tidelog"]))
    assert report.differences() == []
    assert matrix.unexpected_skips(report.skipped) == {}
    present = [client for client in clients.CLIENTS if client.name in report.versions]
    check_formats_on_disk(broker.log_dir, present)
    check_coordination(report, present)
    check_transactions(report, present)
    if page := os.environ.get("TIDELOG_CLIENTS_PAGE"):
        matrix.write_between_markers(
            matrix.Path(page), matrix.render(report, rules.BROKERS["tidelog"])
        )
