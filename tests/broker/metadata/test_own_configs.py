"""Settings of one broker alone: who can read them, and whose win."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidelog.broker.api.describe_configs import changes_of_one
from tidelog.broker.controller.topics.topic_admin import TopicAdmin
from tidelog.broker.metadata.brokers.records import RegistrationRecord, put_registration
from tidelog.broker.metadata.cluster import ClusterMetadata
from tidelog.broker.metadata.memory import MemoryStore
from tidelog.broker.metadata.records import put_own_configs
from tidelog.broker.settings import Settings
from tidelog.config import BrokerConfig
from tidelog.config.broker.cluster import ClusterConfig
from tidelog.config.setting import written
from tidelog.protocol.errors import InvalidConfig

RATE = "leader.replication.throttled.rate"


async def test_they_are_refused_while_an_older_broker_is_registered():
    metadata = ClusterMetadata(MemoryStore())
    await metadata.open()

    async def register(broker, protocol):
        put = put_registration(broker, RegistrationRecord("i", protocol=protocol))
        await metadata.transact((), (put,))

    config = BrokerConfig(cluster=ClusterConfig(metadata_store="sqlite:x"))
    admin = TopicAdmin(
        metadata, Settings(config), lambda _: frozenset(), lambda image: image, metadata.catch_up
    )
    for broker, protocol in ((1, "3.0-IV1"), (2, ""), (3, "3.0-IV1"), (4, "")):
        await register(broker, protocol)
    for validate_only in (True, False):
        with pytest.raises(InvalidConfig, match=r"older tidelog of broker 2, 4, which would not"):
            await admin.alter_broker({RATE: "5"}, of_one=True, validate_only=validate_only)
    assert metadata.image.own_configs == {}

    await metadata.transact((), (put_own_configs(1, {RATE: "7"}),))
    await admin.alter_broker({RATE: None}, of_one=True)
    assert metadata.image.own_configs == {}

    await register(2, "3.0-IV1")
    await register(4, "0.10.2")
    await admin.alter_broker({RATE: "5"}, of_one=True)
    assert metadata.image.own_configs == {1: {RATE: "5"}}
    await metadata.close()


@pytest.mark.parametrize(
    ("name", "for_all", "own"),
    [
        ("max.connections", "29", "25"),
        ("max.connections.per.ip", "29", "25"),
        ("max.connections.per.ip.overrides", "10.0.0.1:29", "10.0.0.1:25"),
        ("max.connection.creation.rate", "29", "25"),
    ],
)
async def test_the_limits_of_connections_of_one_broker_win(name, for_all, own):
    metadata = ClusterMetadata(MemoryStore())
    await metadata.open()
    config = BrokerConfig(
        cluster=ClusterConfig(metadata_store="sqlite:x", node_id=metadata.node_id)
    )
    settings = Settings(config)
    admin = TopicAdmin(
        metadata, settings, lambda _: frozenset(), lambda image: image, metadata.catch_up
    )
    await admin.alter_broker({name: for_all})
    node = SimpleNamespace(metadata=metadata)
    await admin.alter_broker(changes_of_one(node, "1", {name: own}), of_one=True)
    settings.use(metadata.image)
    assert written(getattr(settings.broker.connections, name.replace(".", "_"))) == own
    await admin.alter_broker({name: None}, of_one=True)
    settings.use(metadata.image)
    assert written(getattr(settings.broker.connections, name.replace(".", "_"))) == for_all
    await metadata.close()
