"""KIP-32's migration with clients of 0.9, of 0.10 and new ones; each step, a canary, and the way back.

The short form needs nothing but the development environment: kafka-python speaks the protocols of old
releases. `make test-clients` has the long form, with Java clients and librdkafka of those releases.
"""

from __future__ import annotations

import pytest

from tests.clients import clients, matrix
from tests.clients.migration import run, steps
from tests.tidelog.supervisor.test_supervisor import serving
from tidelog.config import load
from tidelog.supervisor.arrangement import files_of

MINUTES_MAX = 30


def migrate(directory, chosen, working, through, summarize):
    """Runs the steps, and checks what every form of the test demands."""
    config = directory / "cluster.properties"
    through[0].write(config)
    options = ("--listeners", "PLAINTEXT://127.0.0.1:0", "--http", "127.0.0.1:0")
    with serving(directory, *options, "--config", str(config)) as subject:
        cluster = run.Cluster(
            directory / "data", config, ",".join(subject.bootstrap), subject.said["http"].split(",")
        )
        counted, verdicts, report = run.run(cluster, through, chosen, working)
        assert subject.stop() == 0
    summarize(f"{len(chosen)} clients through the migration", run.table(counted))
    assert report.differences() == []
    assert {name: each.wrong for name, each in verdicts.items() if each.wrong} == {}
    seen = set()
    for step, found in zip(through, counted, strict=True):
        seen |= {step.magic(broker) for broker in steps.BROKERS}
        assert found.formats == seen, step.name
        converted = {int(magic) for magic, served in found.fetched if served == "converted"}
        # A reader is served a copy only where the disks have a newer format than it can read.
        assert converted <= {magic for magic in (0, 1) if magic < max(seen)}, step.name
    return counted, report


def test_a_step_is_what_its_files_say(tmp_path):
    """The expected format of each broker, against the settings that the broker would load."""
    file = tmp_path / "cluster.properties"
    for step in steps.LONG:
        step.write(file)
        for broker in steps.BROKERS:
            config = load(files_of([file], broker), {}, {})
            assert config.topic_defaults.target_magic == step.magic(broker) <= config.newest_magic
    assert {step.magic(steps.CANARY) for step in steps.LONG if step.canary_format} == {1}
    assert {step.magic(1) for step in steps.LONG if step.canary_format} == {0}


@pytest.mark.slow
def test_old_and_new_clients_read_each_record_once_in_every_step(tmp_path, summarize):
    chosen = (*clients.OLD_PROTOCOLS, clients.CONFLUENT, clients.QUICK[1])
    working = (clients.OLD_PROTOCOLS[0], clients.CONFLUENT)
    counted, report = migrate(tmp_path, chosen, working, steps.SHORT, summarize)
    assert report.skipped == {}
    served = {each.step: set(each.fetched) for each in counted}
    assert {how for _, how in served["phase 1"]} == {"as_stored"}
    assert ("0", "converted") in served["canary"] & served["phase 2"]
    assert ("1", "as_stored") in served["phase 2"]


@pytest.mark.clients
@pytest.mark.timeout(60 * MINUTES_MAX)
def test_clients_of_all_releases_go_through_the_migration_and_back(tmp_path, summarize):
    working = clients.MIGRATING_GROUPS
    counted, report = migrate(tmp_path, clients.MIGRATING, working, steps.LONG, summarize)
    assert matrix.unexpected_skips(report.skipped) == {}
    assert ("1", "converted") in counted[-1].fetched
