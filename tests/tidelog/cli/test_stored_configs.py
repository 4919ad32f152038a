"""What is stored can be listed and removed without a broker: in its file, and in etcd."""

from __future__ import annotations

import json
import re

import pytest

from tests.broker.conftest import healthy
from tests.broker.start.test_locked_out import is_served, store
from tidelog.broker.metadata import client_quotas, records
from tidelog.broker.metadata.cluster import ClusterMetadata
from tidelog.cli import main

SECRET = "hunter2"
PUT = {"max.connections": "0", "confluent.key": SECRET, "log.retention.ms": "7200000"}


@pytest.fixture
def run(capsys):
    """Runs `tidelog configs`; returns its status and what it prints."""

    def run_one(*arguments):
        status = main(["configs", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run_one


@pytest.fixture
def locked(tmp_path):
    """A broker that is stopped, with what an older release took, and refuses no start."""
    with healthy(tmp_path) as subject:
        subject.stop()
        quota = {"connection_creation_rate": 1e-7}
        store(
            subject,
            {"config/broker": PUT, "quota/ip": quota, "config/broker/1": {"max.connections": "0"}},
        )
        yield subject


def test_a_file(locked, run):
    directory = ("--directory", locked.log_dir)
    status, out, _ = run(*directory, "list", "--json")
    assert status == 0
    listed = {(each["of"], each["name"]): each["value"] for each in json.loads(out)["stored"]}
    assert listed == {
        ("brokers", "max.connections"): "0",
        ("brokers", "confluent.key"): "(hidden)",
        ("brokers", "log.retention.ms"): "7200000",
        ("broker:1", "max.connections"): "0",
        ("quota:ip", "connection_creation_rate"): "1e-07",
    }
    status, out, err = run("remove", "max.connections", "confluent.key", *directory)
    assert (status, out, err) == (0, "Removed max.connections, confluent.key of brokers.\n", "")
    assert run("remove", "connection_creation_rate", "--of", "quota:ip", *directory)[0] == 0
    assert run("remove", "max.connections", "--of", "broker:1", *directory)[0] == 0
    status, out, _ = run("list", *directory)
    assert "log.retention.ms" in out
    assert "connection" not in out
    assert SECRET not in out
    locked.restart()
    assert is_served(locked)
    assert not locked.lines("stored broker setting invalid")


@pytest.mark.slow
def test_what_is_not_used_is_shown_and_unset_by_a_broker_too(locked, run):
    locked.restart()
    of_broker = ("--of-broker", "--broker", locked.bootstrap, "--http", locked.http)
    status, out, _ = run("show", *of_broker, "--changed")
    assert status == 0
    assert re.search(r"^confluent.key +\(hidden\)", out, re.MULTILINE)
    assert SECRET not in out
    assert (
        run("unset", "confluent.key", *of_broker)[1]
        == "Changed the broker: confluent.key removed.\n"
    )
    assert "confluent.key" not in run("show", *of_broker)[1]


@pytest.mark.slow
def test_a_topics_settings(tmp_path, run):
    with healthy(tmp_path) as subject:
        made = ["topics", "create", "t", "--broker", subject.bootstrap]
        assert main([*made, "--set", "retention.ms=7000", "--set", "segment.bytes=5000"]) == 0
        subject.stop()
        of = ("--of", "topic:t", "--directory", subject.log_dir)
        assert run("remove", "retention.ms", *of)[0] == 2  # asks, and there is no terminal
        assert run("remove", "retention.ms", *of, "--yes")[0] == 0
        _, out, _ = run("list", "--directory", subject.log_dir, "--json")
        stored = [each for each in json.loads(out)["stored"] if each["of"] == "topic:t"]
        assert stored == [{"of": "topic:t", "name": "segment.bytes", "value": "5000"}]
        subject.restart()
        assert is_served(subject)


@pytest.mark.slow
def test_mistakes_are_sentences(locked, run, tmp_path):
    directory = ("--directory", locked.log_dir)
    for arguments, said in (
        (
            ("remove", "segment.bytes", *directory),
            "nothing is stored of brokers under segment.bytes",
        ),
        (("remove", "x", "--of", "topic:no", *directory), "nothing is stored of topic:no"),
        (("list", "--directory", tmp_path / "no"), "there is no metadata in"),
        (("list",), "--directory names the first log directory"),
        (("list", *directory, "--set", "node.id=1"), "not both"),
        (("list", "--set", f"metadata.store=sqlite:{tmp_path}/no"), "there is no metadata in"),
        ((*directory, "show", "--of-broker"), "--directory is for list and remove"),
    ):
        status, out, err = run(*arguments)
        assert (status in (1, 2), out) == (True, "")
        assert said in err
    assert not (tmp_path / "no").exists()
    locked.restart()
    for action in (("list",), ("remove", "max.connections")):
        status, _, err = run(*action, *directory)
        assert status == 1
        assert "is in use: another broker holds .lock there: stop it first" in err


async def _begun(url):
    """Metadata in etcd with a limit that locks out, and a quota."""
    from tidelog.broker.metadata.etcd.store import EtcdStore
    from tidelog.config.broker.etcd_address import parse_etcd

    metadata = ClusterMetadata(EtcdStore(parse_etcd(url)), is_new=lambda found: not found.pairs)
    await metadata.open()
    await metadata.alter_broker_configs({"max.connections": "0"})
    await metadata.transact((), (records.put_own_configs(2, {"max.connections": "0"}),))
    await client_quotas.alter(metadata, {(("ip", None),): {"connection_creation_rate": 1e-7}})
    return metadata


async def test_etcd_is_named_as_serve_is_told_of_it(run, tmp_path):
    import asyncio

    from tests.broker.metadata.etcd.server import running_etcd

    with running_etcd() as etcd:
        metadata = await _begun(etcd.url(tmp_path.name))
        given = ("--set", f"metadata.store={etcd.url(tmp_path.name)}")
        status, out, _ = await asyncio.to_thread(run, "list", *given, "--json")
        assert status == 0
        assert {each["of"] for each in json.loads(out)["stored"]} == {
            "brokers",
            "broker:2",
            "quota:ip",
        }
        for of in ("brokers", "broker:2"):
            gone = ("remove", "max.connections", "--of", of, *given)
            assert (await asyncio.to_thread(run, *gone))[0] == 0
        # A broker that runs has it from its watch.
        while metadata.image.broker_configs or metadata.image.own_configs:
            await asyncio.wait_for(metadata.newer_image(metadata.image.revision), 60)
        assert metadata.image.quotas
        await metadata.close()
