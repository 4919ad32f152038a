"""How long brokers have had their sessions, or have lost them: the controller waits for both.

- A broker that has just come back does not get its partitions at once: some clients hang when
  leadership goes away and returns quickly (librdkafka#4976). It must be unfenced for a while first.
  One that the cluster has never had before has led nothing that could return.
- When many sessions end together, the brokers may all be alive: a coordinator that was stuck has
  ended their leases (etcd#15247). The controller waits for them for the time of one lease.

Times are milliseconds of a monotonic clock. A controller that begins knows no session yet. It
elects leaders at once, but waits before it moves leadership to preferred replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.broker.metadata.image import Image

_TOGETHER_MS = 1_000  # etcd ends leases twice a second


class Sessions:
    """What a controller has seen of the brokers' sessions."""

    def __init__(self, *, lease_ms: int, settle_ms: int | None) -> None:
        """`lease_ms` is how long to wait for many; 0 where an ended session proves an end.

        After `settle_ms` a broker that came back may take partitions over; None: never by itself.
        """
        self._lease_ms, self._settle_ms = lease_ms, settle_ms
        self._epochs: dict[int, int] = {}  # the sessions in the last image
        self._unfenced_ms: dict[tuple[int, int], int] = {}  # by broker and epoch
        self._first: frozenset[int] = frozenset()  # in their first session
        self._gone_ms: dict[int, int] = {}  # since when brokers have had no session
        self._awaited_ms: dict[int, int] = {}  # those of them that went with many others

    def observe(self, image: Image, now_ms: int) -> None:
        """Notes which sessions have begun or ended in a newer image."""
        gone = [broker for broker in self._epochs if broker not in image.brokers]
        self._gone_ms.update(dict.fromkeys(gone, now_ms))
        for broker in image.brokers:
            self._gone_ms.pop(broker, None)
            self._awaited_ms.pop(broker, None)
        together = [b for b, since in self._gone_ms.items() if now_ms - since <= _TOGETHER_MS]
        if gone and len(together) > 1 and len(together) >= len(image.brokers):
            self._awaited_ms.update(dict.fromkeys(together, now_ms))
        self._epochs = {broker: live.epoch for broker, live in image.brokers.items()}
        registered = image.registrations
        self._first = frozenset(
            broker
            for broker, live in image.brokers.items()
            if broker in registered
            and registered[broker].is_first
            and registered[broker].epoch == live.epoch
        )
        unfenced = {
            (broker, live.epoch): now_ms
            for broker, live in image.brokers.items()
            if not live.record.is_fenced
        }
        self._unfenced_ms = {
            session: self._unfenced_ms.get(session, since) for session, since in unfenced.items()
        }

    def settled(self, now_ms: int) -> frozenset[int]:
        """Returns the brokers that have been unfenced for long enough to take partitions over."""
        settle_ms = self._settle_ms
        if settle_ms is None:
            return frozenset()
        return frozenset(
            broker
            for (broker, _), since in self._unfenced_ms.items()
            if now_ms - since >= settle_ms or broker in self._first
        )

    def awaited(self, now_ms: int) -> frozenset[int]:
        """Returns the brokers whose sessions ended with many others, less than a lease time ago."""
        return frozenset(
            broker for broker, since in self._awaited_ms.items() if now_ms - since < self._lease_ms
        )
