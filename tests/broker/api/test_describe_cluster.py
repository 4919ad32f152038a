"""DescribeCluster: the one broker, by the address it was asked at."""

from __future__ import annotations

import pytest

from tests.broker.asking import all_versions

MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE = 114, 115


def ask(connection, version=2, *, operations=False, endpoint_type=1):
    return connection.ask(
        "DescribeCluster",
        version,
        include_cluster_authorized_operations=operations,
        endpoint_type=endpoint_type,
        include_fenced_brokers=True,
    )


@pytest.mark.parametrize("version", all_versions("DescribeCluster"))
def test_every_version(broker, connection, version):
    answer = ask(connection, version)
    (described,) = answer["brokers"]
    assert (answer["error_code"], answer["controller_id"]) == (0, 1)
    assert (described["broker_id"], described["host"]) == (1, "127.0.0.1")
    assert described["port"] == broker.port
    metadata = connection.ask("Metadata", 9, topics=[])
    assert answer["cluster_id"] == metadata["cluster_id"]


def test_operations_only_if_asked_for(connection):
    assert ask(connection)["authorized_operations"] is None
    told = ask(connection, operations=True)["authorized_operations"]
    assert set(told) == {5, 7, 8, 9, 10, 11, 12}


@pytest.mark.parametrize(
    ("kind", "code"),
    [(2, MISMATCHED_ENDPOINT_TYPE), (0, UNSUPPORTED_ENDPOINT_TYPE), (9, UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_other_endpoints(connection, kind, code):
    answer = ask(connection, 1, endpoint_type=kind)
    assert (answer["error_code"], answer["brokers"]) == (code, [])
    assert len(answer["error_message"]) > 10
