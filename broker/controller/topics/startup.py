"""The start of the topics: settings, logs and metadata, in the order of their dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.metadata.local import are_beside_logs

if TYPE_CHECKING:
    from tidelog.broker.controller.topics.services import Services


async def open_topics(services: Services) -> None:
    """Opens the log store, and makes logs and metadata match.

    What becomes of logs without a topic, and of what brokers have left that are gone, depends on who
    else may know of them: `Membership` does it. After a crash each log is recovered when it begins to
    lead or follow, because other brokers may lead meanwhile. But if the metadata lie beside the logs,
    all logs are recovered at once: they are, or were, the only replicas.

    The metadata must be open, and the log directories locked if another process might use them.
    Raises InvalidConfig if the broker's settings are inconsistent, LogDirectoryError, and
    KafkaStorageError. The caller closes the store in any case.
    """
    await services.topics.store_implied_basis()
    image = services.metadata.image
    services.settings.use(image)
    services.store.default_config = services.config.topic_defaults
    services.store.open(
        services.clock.now_ms(),
        services.settings.served_topics(image),
        recovers_later=not are_beside_logs(services.config),
    )
    await services.cluster.take_over(services)
    await services.topics.start()
    await services.cluster.adopt_logs(services)
