"""One life of brokers: a load, rounds of faults, and the judgement of the history.

After each fault all has to become well: every broker serves, every partition has all its replicas in
sync, and every client goes on. A round that does not end so is a problem like a lost record, and the
last one.

A client that does not go on while the brokers are well may hang by a fault of its own: the load may kill it,
once in a round.
"""

from __future__ import annotations

import random
import time
from itertools import chain
from typing import TYPE_CHECKING

from tests.nemesis import view
from tests.nemesis.brokers import Unhealthy, end, started, stop
from tests.nemesis.checker import Kind, Problem
from tests.nemesis.etcd_faults import EtcdFaults
from tests.nemesis.faults import Faults
from tests.nemesis.forger import Forger, topic_ids
from tests.nemesis.history import Failed
from tests.nemesis.load import PARTITIONS
from tests.nemesis.plain import Plain
from tests.nemesis.staying import ASKED
from tests.nemesis.stored import findings, wrong_files
from tests.nemesis.transactions.asking import OverTime
from tidelog.process import BrokerFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from tests.broker.metadata.etcd.server import Etcd
    from tests.nemesis.load import Load

SESSION_S = 3
SETTINGS = {
    "broker.session.timeout.ms": SESSION_S * 1000,
    "replica.lag.time.max.ms": 2_000,
    "offsets.topic.num.partitions": 3,
    "log.retention.ms": -1,
}
READY_WITHIN_S = 180.0
_POLL_S = 0.05


class Life:
    """Brokers under a load, for a `with` block."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        load: type[Load] = Plain,
        brokers: int = 3,
        say: Callable[[str], None] = print,
        *,
        etcd: Etcd | None = None,
        well_within_s: float | None = None,
        hung_after_s: float | None = None,
    ) -> None:
        """Starts the brokers; their clocks run with the machine's until a fault moves them.

        Their metadata are in `etcd`, which has faults too then, or without one in a file. A client
        hangs that has not gone on for `hung_after_s`, by default for half of `well_within_s`.
        """
        self._etcd = etcd
        self._well_within_s = well_within_s or load.well_within_s
        self._hung_after_s = hung_after_s or self._well_within_s / 2
        self.seed = seed
        self._say = say
        self._random = random.Random(seed)
        self._is_ill = False
        settings = {**SETTINGS, **load.settings}
        topics = dict(load.topics)
        if brokers == 1:
            settings["metadata.store"] = ""  # a broker that is alone, not a cluster of one
        else:
            settings["min.insync.replicas"] = 2
        if etcd is not None:
            settings["metadata.store"] = etcd.url()
            topics[ASKED.topic] = {}
        self.cluster = started(
            directory / "data", brokers, settings, topics, PARTITIONS, ready_within_s=READY_WITHIN_S
        )
        self.load = load(self.cluster, directory, self._random)
        self.history = self.load.history
        self._forger = Forger(
            self.history,
            [broker.bootstrap for broker in self.cluster],
            self.load.places,
            topic_ids(self.cluster.bootstrap, list(load.topics)),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        is_broken = self._is_ill or error is not None
        self.load.finish(abandon=is_broken)
        self._forger.finish(abandon=is_broken)
        end(self.cluster, is_broken=is_broken)

    # --- rounds -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the clients."""
        self.load.start()
        self._forger.start()

    def play(self, rounds: int, kinds: Sequence[str] = ()) -> list[Problem]:
        """Plays rounds of these faults, or of all, under load; returns what is wrong afterwards."""
        self.start()
        faults = Faults(self.cluster, self.load.places, self._random)
        faults.kinds |= self.load.kinds
        if self._etcd is not None:
            of_etcd = EtcdFaults(self._etcd, self.cluster, SESSION_S, self.history, self._random)
            faults.kinds |= of_etcd.kinds
        try:
            self.wait_until_well()
            for number, kind in enumerate(faults.order(rounds, kinds), 1):
                name = f"seed {self.seed}, {len(self.cluster)} brokers, round {number}/{rounds}"
                self._round(name, faults, kind)
        except Unhealthy as ill:
            self._is_ill = True
            return self._judge_the_ill(ill)
        return self.judge()

    def _round(self, name: str, faults: Faults, kind: str) -> None:
        """Plays one fault; a client is invalidated before it, or while it lasts."""
        lasts_s = faults.lasts_s()
        before, began_s = self.load.count, time.monotonic()
        is_early = self._random.random() < 0.5
        did = [self.load.disturb()] if is_early else []
        with faults.kinds[kind]() as what:
            time.sleep(lasts_s / 2)
            if not is_early:
                did.append(self.load.disturb())
            time.sleep(lasts_s / 2)
            during, ended_s = self.load.count - before, time.monotonic()
        healed_s = time.monotonic()
        name = f"{name}: {'; '.join(filter(None, [what, *did]))}"
        try:
            took_s = self.wait_until_well()
        except Unhealthy as ill:
            self._say(f"{name}: {ill}")
            raise
        self._say(
            f"{name}: {ended_s - began_s:.1f} s, {during} {self.load.verb} meanwhile; "
            f"over after {healed_s - ended_s:.1f} s, well after {took_s:.1f} s; "
            f"{self.load.count} {self.load.verb}"
        )

    def wait_until_well(self) -> float:
        """Waits until all is well and goes on; returns how long that took. Raises Unhealthy."""
        began_s, load = time.monotonic(), self.load
        deadline_s = began_s + self._well_within_s
        while len(self.cluster) > 1 and (ill := list(view.illnesses(self.cluster, load.places))):
            self._look_at_the_time(deadline_s, ill)
        before = load.progress()
        hung_s = time.monotonic() + self._hung_after_s
        while (
            slow := [
                f"{who} is at {now}, after {before[who]} when the brokers were well"
                for who, now in load.progress().items()
                if now < before[who] + load.more
            ]
            + load.awaited()
        ):
            if time.monotonic() > hung_s:
                hung_s = deadline_s
                for killed in load.kill_hung(before):
                    self._say(killed)
            self._look_at_the_time(deadline_s, slow)
        return time.monotonic() - began_s

    def _look_at_the_time(self, deadline_s: float, reasons: list[str]) -> None:
        failed = list(map(str, self.history.failed))
        if failed or time.monotonic() > deadline_s:
            raise Unhealthy("; ".join((failed + reasons)[:5]))
        time.sleep(_POLL_S)

    # --- judgement --------------------------------------------------------------------------------

    def judge(self) -> list[Problem]:
        """Ends the load, reads everything back, stops the brokers and returns what is wrong."""
        for client in (*self.load.writers, self._forger):
            client.finish()
        self.load.read_back()
        self.load.finish(abandon=False)
        for failed in stop(self.cluster):
            self.history.add(failed)
        for what in self._wrong_files():
            self.history.add(Failed("files", what))
        return self.load.problems()

    def _judge_the_ill(self, ill: Unhealthy) -> list[Problem]:
        """Returns what is wrong beside what is not well, as far as everything can be read back."""
        for client in (*self.load.writers, self._forger):
            client.finish(abandon=True)
        try:
            self.load.read_back()
            found = self.load.problems()
        except (OverTime, OSError, ValueError, BrokerFailed) as error:
            found = [Problem(Kind.FAILED, f"it cannot be read back: {error}")]
        return [Problem(Kind.FAILED, f"it did not become well: {ill}"), *found]

    def _wrong_files(self) -> Iterable[str]:
        """Returns what is wrong with the files of stopped brokers.

        The clock of a broker that is alone is corrected when it steps back, and append times with it.
        """
        log_dirs, places = [broker.log_dir for broker in self.cluster], self.load.places
        if len(log_dirs) > 1:
            return wrong_files(log_dirs, places)
        return chain.from_iterable(findings(log_dirs[0] / str(place)) for place in places)
