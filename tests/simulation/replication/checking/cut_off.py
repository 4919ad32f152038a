"""Invariant 14: who is cut off from the coordinator does not answer for long beside another leader.

When a newer leader epoch is stored, the leader of an older one answers clients no later than two lease
times after its last renewal. It may go on while an in-sync replica follows it in its epoch, because
that one has not heard of the next leader either; and while nobody but itself could be elected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.replication.brokers.machine import Machine
    from tests.simulation.replication.checking.stored import Part, Stored
    from tests.simulation.replication.timeline import Timeline
    from tidelog.broker.partitions.replication.leader import Leader

NOBODY = -1
LEASE_MS = 3_000  # of the sessions of brokers
MOST_MS = 2 * LEASE_MS
MOST_AFTER_FETCH_MS = (
    LEASE_MS + LEASE_MS // 2
)  # the leader looks at the time every third of a lease


class CutOff:
    """Looks at leaders that answer although a newer epoch is stored."""

    def __init__(self, stored: Stored, timeline: Timeline) -> None:
        self._stored, self._timeline = stored, timeline
        self._followed_ms: dict[tuple[str, int, int], int] = {}

    def follows(self, key: str, leader_epoch: int, broker: int) -> None:
        """A replica follows in a leader epoch now, in truth."""
        self._followed_ms[key, leader_epoch, broker] = self._timeline.now_ms

    def check(self, broker: Machine, key: str, leader: Leader) -> None:
        """A leader answers a client."""
        part, epoch, now_ms = (
            self._stored.parts.get(key),
            leader.leader_epoch,
            self._timeline.now_ms,
        )
        if part is None or part.leader_epoch <= epoch or not _has_rival(part, broker.id, leader):
            return
        latest_ms = broker.lease._ends_ms - LEASE_MS + MOST_MS
        for remote in leader.followers:
            if remote.broker in leader.maximal_isr:
                followed_ms = self._followed_ms.get((key, epoch, remote.broker), 0)
                asked_ms = max(followed_ms, remote._last_fetch_ms)
                latest_ms = max(latest_ms, asked_ms + MOST_AFTER_FETCH_MS)
        if now_ms > latest_ms:
            cut = f"was to be suspended at {latest_ms}, and answers in epoch {epoch}"
            raise self._stored.ledgers[key].broken(14, f"{broker} {cut}; {part} is stored")


def _has_rival(part: Part, broker: int, leader: Leader) -> bool:
    """Returns whether another broker leads or may be elected, in truth or as the leader knows.

    A newer epoch may be stored in which nobody leads: the session of the only member of the ISR has
    ended, and only it is in the ELR. It then goes on beside no other leader, and the documentation
    promises that it does (docs/cluster.md, "Cut off from the metadata").
    """
    able = {part.leader, *part.isr, *part.elr, *leader.maximal_isr, *leader.record.elr}
    if leader.rules.allows_unclean:
        able.update(part.replicas)
    return not able <= {NOBODY, broker}
