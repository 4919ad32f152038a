"""Invariants of the metadata: what the coordinator holds, checked after each of its revisions.

The keys are read here, from their JSON, and not by the product's records.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.replication.checking.ledger import BrokenInvariantError, Ledger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.replication.brokers.machine import Machine
    from tests.simulation.replication.timeline import Timeline
    from tidelog.broker.metadata.memory import MemoryState
    from tidelog.broker.metadata.store import Change

DEFAULT_MIN_ISR = 1
FORMATS = {"0.9.0": 0, "0.10.2": 1}  # by message.format.version; all others are 2
STALE_MS = (
    10_000  # for so long a broker may not have heard of a change: a member of etcd lags for 8 s
)


class Part(NamedTuple):
    """The stored state of one partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    last_leader: int


class Topic(NamedTuple):
    """The stored settings of a topic that the invariants depend on."""

    name: str
    min_isr: int
    is_unclean_allowed: bool
    is_flushed: bool  # every append is durable before it is acknowledged
    min_isr_until: tuple[tuple[int, int], ...]  # earlier ones, and until when
    is_compacted: bool
    format: int  # of records

    def known_min_isrs(self, now_ms: int) -> list[int]:
        """Returns what brokers may take min.insync.replicas for: the one before, and those of lately."""
        before = [each for each, _ in self.min_isr_until[-1:]]
        lately = [each for each, until_ms in self.min_isr_until if until_ms + STALE_MS >= now_ms]
        return [self.min_isr, *before, *lately]


class Stored:
    """The metadata as it is in truth, whatever brokers have heard of it."""

    def __init__(
        self, store: MemoryState, brokers: Mapping[int, Machine], timeline: Timeline
    ) -> None:
        self.store = store
        self.brokers = brokers
        self.timeline = timeline
        self.revision = 0
        self.parts: dict[str, Part] = {}
        self.topics: dict[str, Topic] = {}
        self.live: dict[int, tuple[int, dict[str, Any]]] = {}  # epoch and value
        self.registered: dict[int, int] = {}
        self.ledgers: dict[str, Ledger] = {}
        self.leaders: dict[tuple[str, int], int] = {}  # by leader epoch
        self.changed: list[str] = []  # partitions that the checker has to look at

    def follow(self) -> None:
        """Takes the changes since the last call, and checks each."""
        changes = [change for change in self.store._changes if change.revision > self.revision]
        self.revision = self.store.revision
        for change in sorted(changes, key=lambda each: each.key.startswith("partition/")):
            self._take(change)

    def _take(self, change: Change) -> None:
        kind, _, rest = change.key.partition("/")
        value = json.loads(change.value) if change.value else None  # etcd's barrier is empty
        if kind == "topic" and value is not None:
            self._take_topic(value)
        elif kind == "live":
            self._take_live(int(rest), change.revision, value)
        elif kind == "broker" and value is not None:
            self._take_registration(self.brokers[int(rest)], value)
        elif kind == "partition":
            self._take_partition(rest, value)

    def _take_topic(self, value: dict[str, Any]) -> None:
        configs = value["configs"]
        min_isr = int(configs.get("min.insync.replicas", DEFAULT_MIN_ISR))
        before = self.topics.get(value["id"])
        until = () if before is None else before.min_isr_until
        if before is not None and before.min_isr != min_isr:
            until = (*until, (before.min_isr, self.timeline.now_ms))
        is_unclean = configs.get("unclean.leader.election.enable") == "true"
        is_flushed = configs.get("flush.messages") == "1"
        is_compacted = configs.get("cleanup.policy") == "compact"
        self.topics[value["id"]] = Topic(
            value["name"],
            min_isr,
            is_unclean,
            is_flushed,
            until,
            is_compacted,
            FORMATS.get(configs.get("message.format.version"), 2),
        )
        for key, ledger in self.ledgers.items():
            if key.startswith(value["id"] + "/"):
                ledger.min_isr = min(ledger.min_isr, self.full(key))
                self.changed.append(key)

    def _take_live(self, broker: int, revision: int, value: dict[str, Any] | None) -> None:
        if value is None:
            self.live.pop(broker, None)
            return
        epoch = self.live[broker][0] if broker in self.live else revision
        if broker not in self.live and epoch <= self.registered.get(broker, -1):
            raise BrokenInvariantError(f"invariant 5: broker {broker} has epoch {epoch} again")
        self.registered[broker] = epoch
        self.live[broker] = epoch, value

    def _take_registration(self, broker: Machine, value: dict[str, Any]) -> None:
        life = broker.life_of(value["incarnation"])
        if value["is_clean"] and broker.is_lossy and life > broker.lossy_life:
            raise BrokenInvariantError(
                f"invariant 2: {broker} registers as clean, and has lost data"
            )
        broker.registered_life = life

    def topic_of(self, key: str) -> Topic:
        """Returns the topic of a partition."""
        return self.topics[key.partition("/")[0]]

    def full(self, key: str) -> int:
        """Returns how many in-sync replicas a partition needs before anything is committed."""
        return min(self.topic_of(key).min_isr, len(self.parts[key].replicas))

    def _take_partition(self, key: str, value: dict[str, Any] | None) -> None:
        before = self.parts.get(key)
        if value is None:
            self.parts.pop(key, None)
            self.ledgers.pop(key, None)
            return
        part = Part(
            tuple(value["replicas"]),
            tuple(value["isr"]),
            tuple(value.get("elr", ())),
            value["leader"],
            value["leader_epoch"],
            value["partition_epoch"],
            value.get("last_leader", -1),
        )
        self.parts[key] = part
        if before is None:
            topic = self.topic_of(key)
            ledger = self.ledgers[key] = Ledger(f"{topic.name}-{key.partition('/')[2]}")
            ledger.min_isr, ledger.is_compacted = self.full(key), topic.is_compacted
            before = part
        self._check_shape(key, before, part)
        self._check_step(key, before, part)
        self._settle(key, before, part)
        self.changed.append(key)

    def _check_shape(self, key: str, before: Part, part: Part) -> None:
        """Invariants 5 and 6 of one record."""
        ledger = self.ledgers[key]
        isr, elr = set(part.isr), set(part.elr)
        if part.leader >= 0 and part.leader not in isr:
            raise ledger.broken(6, f"the leader is not in sync: {part}")
        if not isr | elr <= set(part.replicas) or isr & elr:
            raise ledger.broken(6, f"the sets do not fit: {before} was followed by {part}")
        topic = self.topic_of(key)
        least = min(max(topic.known_min_isrs(self.timeline.now_ms)), len(part.replicas))
        is_other = (part.isr, part.elr) != (before.isr, before.elr)
        if elr and is_other and len(isr) >= least:
            raise ledger.broken(
                6, f"there are eligible replicas beside enough in-sync ones: {part}"
            )
        if part.leader >= 0:
            known = self.leaders.setdefault((key, part.leader_epoch), part.leader)
            if known != part.leader:
                raise ledger.broken(5, f"epoch {part.leader_epoch} has leaders {known} and {part}")

    def _check_step(self, key: str, before: Part, part: Part) -> None:
        """Invariants 5 and 6 of a change: epochs grow, and nobody comes in who may not."""
        ledger = self.ledgers[key]
        if part.leader_epoch < before.leader_epoch or (
            part is not before and part.partition_epoch <= before.partition_epoch
        ):
            raise ledger.broken(5, f"{before} was followed by {part}")
        if part.leader not in (before.leader, -1) and part.leader_epoch == before.leader_epoch:
            raise ledger.broken(5, f"{part} has a new leader in the epoch of {before}")
        topic = self.topic_of(key)
        least = min(*topic.known_min_isrs(self.timeline.now_ms), len(part.replicas))
        if len(part.replicas) < len(before.replicas) and len(part.isr) < least:
            raise ledger.broken(6, f"too few are in sync without the others: {before}, then {part}")
        new = [each for each in part.isr if each not in before.isr]
        if part.leader >= 0 and part.leader_epoch > before.leader_epoch:
            new.append(part.leader)
        for broker in new:
            live = self.live.get(broker)
            if live is None or live[1].get("is_fenced") or live[1].get("is_stopping"):
                raise ledger.broken(6, f"{broker} came in although it is {live}: {part}")

    def _settle(self, key: str, before: Part, part: Part) -> None:
        """Decides whether an election was clean, and who has everything now."""
        ledger = self.ledgers[key]
        is_election = part.leader >= 0 and part.leader_epoch > before.leader_epoch
        if is_election and part.leader not in (*before.isr, *before.elr):
            is_last_one = not before.isr and not before.elr and part.leader == before.last_leader
            if not is_last_one and not self.topic_of(key).is_unclean_allowed:
                raise ledger.broken(2, f"{before} was followed by {part}")
            if not is_last_one or ledger.is_excused:
                # A broker that is paused may still have the log of a reassignment that was cancelled.
                having = {broker.id for broker in self.brokers.values() if key in broker.disk.logs}
                having |= {*part.replicas, *before.replicas}
                ledger.begin_anew(part.leader_epoch, sorted(having))
        for broker in part.isr:
            if broker not in before.isr:
                if self.brokers[broker].is_lossy:
                    ledger.wounded.add(broker)
                elif not is_election:
                    ledger.wounded.discard(broker)
                    ledger.restarted.discard(broker)
            if part.leader_epoch >= ledger.unclean_epoch:
                ledger.unjudged.discard(broker)
        if is_election:
            ledger.unjudged.discard(part.leader)
        ledger.settle(set(part.isr), self.full(key))
