"""Unregisters a broker that an operator knows to be gone for good (UnregisterBroker, KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.brokers.records import live_key, offline_key, registration_key
from tidelog.broker.metadata.records import BROKER_CONFIGS, own_configs_key, put_broker_configs
from tidelog.broker.metadata.store import Delete, unchanged_since
from tidelog.broker.metadata.transactions import Transaction, unmodified
from tidelog.protocol.errors import BrokerIdNotRegistered, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metadata.store import Compare, Operation


def unregister(image: Image, me: int, broker: int, configs: Mapping[str, str]) -> Transaction:
    """Returns the transaction that removes the registration of a broker.

    `me` is the broker that got the request, `configs` are the settings of all brokers but the one that
    is removed. Raises BrokerIdNotRegistered, and InvalidRequest if the broker is there or has
    replicas.
    """
    registered = image.registrations.get(broker)
    if registered is None:
        raise BrokerIdNotRegistered(f"broker {broker} is not registered")
    if broker == me or broker in image.brokers:
        raise InvalidRequest(f"broker {broker} is running: stop it first")
    replicas = sum(
        broker in record.replicas for topic in image.topics.values() for record in topic.assignments
    )
    if replicas:
        raise InvalidRequest(
            f"broker {broker} still has replicas of {replicas} "
            f"partition{'s' if replicas > 1 else ''}: move them first (tidelog broker remove {broker})"
        )
    compares: tuple[Compare, ...] = (
        unmodified(live_key(broker), 0),
        unmodified(registration_key(broker), registered.epoch),
    )
    operations: tuple[Operation, ...] = (Delete(registration_key(broker)),)
    if broker in image.offline:
        operations += (Delete(offline_key(broker)),)
    if broker in image.own_configs:
        operations += (Delete(own_configs_key(broker)),)
    if configs != image.broker_configs:
        compares += unchanged_since(BROKER_CONFIGS, image.revision)
        operations += (put_broker_configs(configs),)
    return Transaction(compares, operations, "unregistration")
