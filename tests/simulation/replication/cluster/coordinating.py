"""A broker as the coordinator of groups: committed offsets are records with acks=all.

The leader of the partition of `TOPIC` coordinates all groups. The product's `Ownership` says when
the partition is read, and whether its groups are served; what is read and kept is modelled here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.replication.cluster.requests import Produce
from tidelog.broker.coordination.ownership import Load, Ownership
from tidelog.protocol.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulation.replication.cluster.broker import Broker
    from tests.simulation.replication.cluster.replica import Replica
    from tidelog.broker.coordination.ownership import Action

TOPIC = "groups"
NO_PRODUCER = -1


class Coordinating:
    """The coordinator's part of one process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._world = broker.world
        self._ownership = Ownership(is_alone=False)
        self._offsets: dict[int, int] = {}  # by group

    # --- what it coordinates ----------------------------------------------------------------------

    def on_image(self) -> None:
        """Takes what the image says of the partition."""
        image = self._broker.image
        topic = None if image is None else image.topics.get(TOPIC)
        led = {}
        for index, record in enumerate(() if topic is None else topic.assignments):
            if record.leader == self._broker.id:
                led[index] = record.leader_epoch
        self._do(self._ownership.on_image(None if topic is None else topic.topic_id, led))

    def on_led(self, replica: Replica) -> None:
        """A replica leads from now on."""
        topic_id, index = self._world.ids[replica.key]
        if topic_id == self._world.administrators.groups_id:
            self._do(self._ownership.on_led(topic_id, index, replica.epoch))

    def on_stopped(self, replica: Replica) -> None:
        """A replica leads no more."""
        topic_id, index = self._world.ids[replica.key]
        self._do(self._ownership.on_stopped(topic_id, index))

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Load):
                delay_ms = self._world.timeline.random.randint(0, self._world.load_ms)
                self._world.after(self._broker, delay_ms, self._loaded, action, self._read(action))
            else:
                self._offsets.clear()

    def _read(self, load: Load) -> dict[int, int]:
        """Returns what a log has, up to its end."""
        key = self._world.key_of(load.topic_id, load.partition)
        commits = self._world.commits
        batches = self._broker.replicas[key].log.batches
        return dict(commits[batch.value] for batch in batches)

    def _loaded(self, load: Load, found: dict[int, int]) -> None:
        if self._ownership.on_loaded(load):
            self._world.say("loaded", self._broker, load.epoch, len(found))
            self._offsets = found

    # --- what members ask -------------------------------------------------------------------------

    def coordinate(
        self, key: str, group: int, offset: int | None, reply: Callable[..., None]
    ) -> None:
        """Commits an offset, or answers what is committed if it is None."""
        replica = self._broker.replicas.get(key)
        _, index = self._world.ids[key]
        try:
            epoch = self._ownership.check(index)
            if replica is None or replica.leader is None:
                reply(ErrorCode.NOT_COORDINATOR, None)
                return
            replica.leader.check_leading(self._broker.now_ms)
        except BrokerError as error:
            reply(error.code, None)
            return
        if offset is None:
            self._world.checker.answers_as_leader(self._broker)
            self._world.checker.cut_off.check(self._broker, key, replica.leader)
            reply(ErrorCode.NONE, self._offsets.get(group, -1))
            return

        def take(error: ErrorCode) -> None:
            reply(self._committed(epoch, index, group, offset, error), None)

        replica.produce(self._record(key, group, offset), take)

    def _committed(
        self, epoch: int, index: int, group: int, offset: int, error: ErrorCode
    ) -> ErrorCode:
        if error != ErrorCode.NONE:
            return error
        try:
            if self._ownership.check(index) != epoch:
                return ErrorCode.NOT_COORDINATOR
        except BrokerError as refused:
            return refused.code
        self._offsets[group] = offset
        return ErrorCode.NONE

    def _record(self, key: str, group: int, offset: int) -> Any:
        value = self._world.next_value()
        self._world.commits[value] = group, offset
        time_ms = self._world.true_ms
        return Produce(key, value, 1, -1, time_ms, NO_PRODUCER, 0, 0)
