"""A broker as the controller: it writes what the product's pure functions say of its image.

Every broker would be the controller. One that takes itself for it (`is_impostor`) writes as if it
were, with the controller epoch that it has heard of: two controllers at once must be harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.replication.cluster.coordinator import LEASE_ENDED, UNKNOWN
from tidelog.broker.membership.sessions import Sessions
from tidelog.broker.replication.controller import controller
from tidelog.broker.replication.controller.controller import TopicRules

if TYPE_CHECKING:
    from tests.simulation.replication.cluster.broker import Broker
    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.replication.transactions import Transaction

TIMEOUT_MS = 2_000
LEASE_MS = 3_000


def rules_of(topic: Topic) -> TopicRules:
    """Returns what elections obey, from a topic's settings."""
    configs = topic.configs
    return TopicRules(
        int(configs.get("min.insync.replicas", "1")),
        configs.get("unclean.leader.election.enable") == "true",
    )


class Governing:
    """The controller's part of one process."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.world = broker.world
        self.is_asking = False
        self.limit = controller.MOST_OPERATIONS
        lease_ms = 0 if self.world.has_locks else LEASE_MS
        self.sessions = Sessions(lease_ms=lease_ms, settle_ms=self.world.settle_ms)

    def look(self) -> None:
        """Does what the image asks for."""
        broker, image = self.broker, self.broker.image
        if image is None:
            return
        self.sessions.observe(image, broker.now_ms)
        if broker.epoch < 0 or self.is_asking:
            return
        if image.controller is None:
            lease_id = broker.session.lease_id
            claim = controller.claim(image, broker.id, broker.epoch, lease_id)
            if claim is not None:
                self._send([claim])
            return
        if image.controller.broker == broker.id or broker.id == self.world.impostor:
            found = controller.transactions(
                image,
                image.controller.epoch,
                rules_of,
                settled=self.sessions.settled(broker.now_ms),
                awaited=self.sessions.awaited(broker.now_ms),
                limit=self.limit,
            )
            self._send(found)

    def _send(self, found: list[Transaction]) -> None:
        if not found:
            return
        self.is_asking = True
        first, *others = found
        life = self.broker.life

        def take(result: Any) -> None:
            self.is_asking = False
            if result is None:
                self.limit = max(1, self.limit // 2)
            elif result not in (UNKNOWN, LEASE_ENDED):
                self.limit = controller.MOST_OPERATIONS
            if others and result not in (UNKNOWN, LEASE_ENDED):
                self._send(others)

        self.world.say("govern", self.broker, first.why)
        self.world.coordinator.ask(
            self.broker.id,
            lambda store: store.transact(first.compares, first.operations),
            lambda result: self.broker.run(life, take, result),
            TIMEOUT_MS,
        )
