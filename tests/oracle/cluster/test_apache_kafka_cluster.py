"""Apache Kafka with several brokers: all are named, one that is killed goes and comes back."""

from __future__ import annotations

import time

import pytest

from tests.oracle import apache_kafka as launcher
from tests.oracle.apache_kafka import ApacheKafkaError, named_brokers
from tests.oracle.apache_kafka_cluster import ApacheKafkaCluster


@pytest.mark.oracle
@pytest.mark.timeout(900)
def test_three_brokers_of_which_one_is_killed_and_comes_back(tmp_path):
    launcher.require("3.9.1")
    # A session shorter than Kafka's 9 s, only to have the killed broker forgotten sooner.
    properties = {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
    with ApacheKafkaCluster("3.9.1", tmp_path, 3, properties, jvm=launcher.QUICK) as kafka:
        assert sorted(kafka.ports) == sorted(kafka.pids) == [1, 2, 3]
        assert [named_brokers(port) for port in kafka.ports.values()] == [3, 3, 3]
        with pytest.raises(ApacheKafkaError, match="running already"):
            kafka.start()
        with pytest.raises(ApacheKafkaError, match="broker 2 is not killed"):
            kafka.restart(2)
        kafka.kill(2)
        assert sorted(kafka.pids) == [1, 3]
        with pytest.raises(ApacheKafkaError, match="broker 2 is not running"):
            kafka.kill(2)
        deadline = time.monotonic() + 60
        while [named_brokers(port) for port in kafka.ports.values()] != [2, 0, 2]:
            assert time.monotonic() < deadline, kafka.log_tail()
            time.sleep(0.1)
        kafka.restart(2)
        assert [named_brokers(port) for port in kafka.ports.values()] == [3, 3, 3]
    assert not kafka.pids
