"""The load of transactions: producers that append and copy, of our own and of librdkafka, and readers.

In each round one client is killed or paused at a step of the protocol. The round is over when that has come
about, and what was paused has ended.

A process of librdkafka that does not go on while the brokers are well is killed and counted; more than
`_MOST_HUNG` in a run are a problem.
"""

from __future__ import annotations

import time
from itertools import cycle
from typing import TYPE_CHECKING, ClassVar

from tests.nemesis.consumers import read_everything
from tests.nemesis.history import Ends, Failed, Place, Told
from tests.nemesis.load import PARTITIONS, Load
from tests.nemesis.request_faults import PAST_TIMEOUT_MS, RequestFaults
from tests.nemesis.transactions.asking import Brokers
from tests.nemesis.transactions.checker import problems
from tests.nemesis.transactions.children import ChildWorker
from tests.nemesis.transactions.raw import Interruption
from tests.nemesis.transactions.raw_worker import RawWorker
from tests.nemesis.transactions.readers import Asking, CommittedOnly
from tests.nemesis.transactions.workers import Copying

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping
    from pathlib import Path

    from tests.nemesis.checker import Problem
    from tests.nemesis.faults import Kinds
    from tests.nemesis.transactions.workers import Worker
    from tidelog.cluster import BrokerCluster

GROUPS = {"copy-0": "out-copy-0", "copy-2": "out-copy-2", "team": "out-team"}
INPUT = "in"
_MOST_HUNG = 2
_STABLE_WITHIN_S = 60.0
_POLL_S = 0.05


class Transactions(Load):
    """Transactional clients, and readers of committed data."""

    topics: ClassVar = {
        "ledger": {"segment.bytes": "40000"},
        INPUT: {"flush.messages": "1"},
        **{topic: {"segment.bytes": "100000"} for topic in GROUPS.values()},
    }
    settings: ClassVar = {
        "transaction.state.log.num.partitions": 3,
        "group.min.session.timeout.ms": 1_000,
    }
    well_within_s = 180.0
    more = 1
    verb = "committed"
    planned: ClassVar[Mapping[str, Interruption]] = {}  # by workers, in turn; or any

    def __init__(self, cluster: BrokerCluster, directory: Path, chance: random.Random) -> None:
        """Makes the clients."""
        super().__init__(cluster, directory, chance)
        to = self.history, cluster.bootstrap
        written = self.places_of("ledger", INPUT)
        copying = {group: Copying(group, INPUT, into, PARTITIONS) for group, into in GROUPS.items()}
        self.workers: list[Worker] = [
            RawWorker("raw-0", *to, written, is_new=False),
            RawWorker("raw-2", *to, written, is_new=True),
            RawWorker("copy-0", *to, [], is_new=False, copying=copying["copy-0"]),
            RawWorker("copy-2", *to, [], is_new=True, copying=copying["copy-2"]),
            ChildWorker("child", *to, written, directory),
            ChildWorker("team-1", *to, written, directory, copying=copying["team"]),
            ChildWorker("team-2", *to, written, directory, copying=copying["team"]),
        ]
        self.writers = self.workers
        self.readers = [
            CommittedOnly("reader", *to, self.places),
            Asking(*to, GROUPS, self.places_of(INPUT)),
        ]
        self._struck: dict[Worker, int] = {}  # who is interrupted, and how often it has been then
        self._planned = cycle(self.planned.items())

    @property
    def kinds(self) -> Kinds:
        """Faults that strike the steps of transactions."""
        raw = [each for each in self.workers if isinstance(each, RawWorker)]
        return RequestFaults(self.cluster, raw, self.random).kinds

    def disturb(self) -> str:
        """Interrupts a worker: as planned, or anybody at any step."""
        if self.planned:
            name, due = next(self._planned)
            worker = next(each for each in self.workers if each.name == name)
        else:
            worker = self.random.choice(self.workers)
            due = Interruption(self.random.choice(worker.steps), self.random.choice(worker.hows))
        self._struck = {worker: worker.struck + 1}
        worker.interrupt(due)
        return f"{worker.name} is {due}"

    @property
    def count(self) -> int:
        """How many transactions are committed."""
        return sum(each.committed for each in self.workers)

    def progress(self) -> dict[str, int]:
        """Returns how much each client has committed or read; members of the group together."""
        progress = {each.name: each.committed for each in self.workers}
        progress["team"] = progress.pop("team-1") + progress.pop("team-2")
        return {**progress, "reader": self.history.polled["reader"]}

    def awaited(self) -> list[str]:
        """Returns who is not interrupted yet, and who has more than one incarnation."""
        slow = [f"{w.name} was not interrupted" for w, n in self._struck.items() if w.struck < n]
        return slow + [f"{each.name} has zombies" for each in self.workers if not each.is_one]

    def kill_hung(self, before: Mapping[str, int]) -> list[str]:
        """Kills the processes that have not gone on."""
        now = self.progress()
        killed = []
        for each in self.workers:
            progress = "team" if each.name.startswith("team") else each.name
            if now[progress] <= before[progress] and isinstance(each, ChildWorker):
                killed.append(
                    f"{each.name} hangs after the step {each.kill_hung()!r}, and is killed"
                )
        return killed

    # --- judgement --------------------------------------------------------------------------------

    def read_back(self) -> None:
        """Adds the committed logs, their ends, and the committed offsets of groups."""
        history = self.history
        hung = sum(each.hung for each in self.workers if isinstance(each, ChildWorker))
        if hung > _MOST_HUNG:
            history.add(Failed("clients", f"{hung} hung"))
        for broker in range(1, len(self.cluster) + 1):  # what dead clients left open is aborted
            self.cluster.clock(broker).step(PAST_TIMEOUT_MS)
        brokers = Brokers(self.cluster.bootstrap, lambda: False)
        for place in self.places:
            history.add(_ends(brokers, place))
        for group in GROUPS:
            for place in self.places_of(INPUT):
                began_s = time.monotonic()
                told = brokers.told(group, place)
                history.add(Told(group, place, told, began_s, time.monotonic()))
        brokers.close()
        read_everything(history, self.cluster.bootstrap, self.places)

    def problems(self) -> list[Problem]:
        """Returns what is wrong with the history."""
        return problems(self.history.events, GROUPS)


def _ends(brokers: Brokers, place: Place) -> Ends:
    """Waits until a partition is stable up to its end, for a while at most."""
    deadline_s = time.monotonic() + _STABLE_WITHIN_S
    while True:
        ends = Ends(place, *brokers.ends(place))
        if ends.last_stable_offset == ends.high_watermark or time.monotonic() > deadline_s:
            return ends
        time.sleep(_POLL_S)
