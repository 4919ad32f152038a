"""What is said of the metadata store that a broker's settings name."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("aetcd", reason="aetcd is not installed (make setup)")

from tidelog.broker.metadata.local import metadata_of, places_of
from tidelog.config import BrokerConfig
from tidelog.config.broker.cluster import ClusterConfig


@pytest.mark.parametrize(
    ("settings", "is_warned"),
    [
        ({"metadata_store_user": "broker", "metadata_store_password_file": "p"}, True),
        (
            {
                "metadata_store_user": "broker",
                "metadata_store_password_file": "p",
                "metadata_store_ca_file": "ca.pem",
            },
            False,
        ),
        ({}, False),
    ],
)
def test_a_password_without_tls_is_warned_of(settings, is_warned, caplog):
    metadata_of(BrokerConfig(cluster=ClusterConfig(metadata_store="etcd://h:1", **settings)))
    logged = [(each.getMessage(), each.user) for each in caplog.records]
    assert logged == [("etcd password sent without TLS", "broker")] * is_warned


@pytest.mark.parametrize(
    ("store", "directories", "found"),
    [
        ("", ["d", "e"], ["d", "e"]),
        ("etcd://h:1", ["d"], ["d"]),
        ("sqlite:d/tidelog.sqlite", ["d"], ["d"]),
        ("sqlite:d/tidelog.sqlite", ["d/brokers/2"], ["d/brokers/2"]),
        ("sqlite:m/tidelog.sqlite", ["d"], ["d", "m"]),
    ],
)
def test_metadata_that_are_apart_have_a_place_of_their_own(store, directories, found):
    cluster = ClusterConfig(metadata_store=store)
    assert places_of(BrokerConfig(log_dirs=tuple(directories), cluster=cluster)) == [
        Path(each) for each in found
    ]
