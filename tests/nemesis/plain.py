"""The load without transactions: idempotent producers, a reader that is alone, and a group that commits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from tests.nemesis.checker import has_got_everything, problems
from tests.nemesis.consumers import Alone, Member, read_everything
from tests.nemesis.load import STAMPED, Load
from tests.nemesis.producers import KafkaPython, Librdkafka

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.nemesis.checker import Problem
    from tests.nemesis.clients import Client
    from tidelog.cluster import BrokerCluster

GROUP = "group"
MEMBERS = 0.2  # of the rounds have a member that leaves and another that joins
_DRAINED_AFTER_S = 60


class Plain(Load):
    """Clients that neither begin transactions nor end them."""

    topics: ClassVar = {
        "created": {"message.timestamp.type": "CreateTime", "segment.bytes": "300000"},
        "flushed": {"message.timestamp.type": "CreateTime", "flush.messages": "1"},
        "stamped": {"message.timestamp.type": STAMPED, "segment.bytes": "300000"},
    }
    well_within_s = 60.0
    more = 10
    verb = "acknowledged"

    def __init__(self, cluster: BrokerCluster, directory: Path, chance: random.Random) -> None:
        """Makes the clients."""
        super().__init__(cluster, directory, chance)
        self._members = 0
        self._left: list[Client] = []  # members that were told to leave, and may not have yet
        to = self.history, cluster.bootstrap
        self.writers = [
            Librdkafka("plain", *to, self.places, **{"max.in.flight": 1}),
            Librdkafka("packed", *to, self.places[-1:], **{"compression.type": "lz4"}),
            KafkaPython("python", *to, self.places),
        ]
        self.readers = [
            Alone("alone", *to, self.places),
            self._next_member(),
            self._next_member(),
        ]

    def _next_member(self) -> Member:
        self._members += 1
        return Member(
            GROUP, str(self._members), self.history, self.cluster.bootstrap, list(self.topics)
        )

    def finish(self, *, abandon: bool) -> None:
        """Ends the clients."""
        super().finish(abandon=abandon)
        for member in self._left:
            member.finish(abandon=abandon)

    def disturb(self) -> str:
        """Lets the group's oldest member leave now and then, and another one join."""
        if self.random.random() > MEMBERS:
            return ""
        leaves = next(each for each in self.readers if isinstance(each, Member))
        leaves.is_over.set()
        self.readers.remove(leaves)
        self._left.append(leaves)
        joins = self._next_member()
        self.readers.append(joins)
        joins.start()
        return "a member leaves and another joins"

    @property
    def count(self) -> int:
        """How many records are acknowledged."""
        return sum(self.history.acknowledged.values())

    def progress(self) -> dict[str, int]:
        """Returns how many records each producer, the lone reader and the group have got through."""
        polled = dict(self.history.polled)
        return {
            **{each.name: self.history.acknowledged[each.name] for each in self.writers},
            "alone": polled.get("alone", 0),
            GROUP: sum(many for who, many in polled.items() if who.startswith(f"{GROUP}/")),
        }

    def read_back(self) -> None:
        """Reads everything, and waits until the group has got it, or nothing more for a minute.

        A member that is gone is missed after its session; until then the others get nothing.
        """
        read_everything(self.history, self.cluster.bootstrap, self.places)
        got, until_s = -1, 0.0
        while not has_got_everything(self.history, GROUP):
            if (now := self.progress()[GROUP]) != got:
                got, until_s = now, time.monotonic() + _DRAINED_AFTER_S
            elif time.monotonic() > until_s:
                return
            time.sleep(1)

    def problems(self) -> list[Problem]:
        """Returns what is wrong with the history."""
        return problems(self.history, groups=[GROUP])
