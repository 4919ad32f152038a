"""One life of one broker, or of three, under transactional load: rounds of faults, and the judgement.

In each round something happens to a broker, and one client is killed or paused at a step of the protocol.
Then all has to be well: every client commits, every reader gets records, and what was paused has met
its end. A round that does not end so is a problem like a torn transaction, and the last one.

A process of librdkafka that does not go on while the brokers are well is killed and counted, once in a
round. If its next incarnation commits, the round ends well; more than `_MOST_HUNG` in a life are a problem.
"""

from __future__ import annotations

import random
import time
from itertools import chain, cycle
from typing import TYPE_CHECKING

from tests.nemesis import view
from tests.nemesis.brokers import Unhealthy, end, started, stop
from tests.nemesis.checker import Problem
from tests.nemesis.consumers import read_everything
from tests.nemesis.faults import Faults
from tests.nemesis.history import Failed, History, Place
from tests.nemesis.stored import findings, wrong_files
from tests.nemesis.transactions.asking import Brokers, OverTime
from tests.nemesis.transactions.checker import Kind, problems
from tests.nemesis.transactions.children import ChildWorker
from tests.nemesis.transactions.faults import PAST_TIMEOUT_MS, TransactionFaults
from tests.nemesis.transactions.history import Ends, OffsetTold
from tests.nemesis.transactions.raw import Interruption
from tests.nemesis.transactions.raw_worker import Copying, RawWorker
from tests.nemesis.transactions.readers import Asking, Committed
from tidelog.process import BrokerFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import Self

PARTITIONS = 2
GROUPS = {"copy-0": "out-copy-0", "copy-2": "out-copy-2", "team": "out-team"}
INPUT = "in"
TOPICS = {
    "ledger": {"segment.bytes": "40000"},
    INPUT: {"flush.messages": "1"},
    **{topic: {"segment.bytes": "100000"} for topic in GROUPS.values()},
}
PLACES = [Place(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
SETTINGS = {
    "broker.session.timeout.ms": 3_000,
    "replica.lag.time.max.ms": 2_000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.min.session.timeout.ms": 1_000,
    "log.retention.ms": -1,
}
WELL_WITHIN_S = 180.0
_MOST_HUNG = 2
_POLL_S = 0.05
_STABLE_WITHIN_S = 60.0


class TransactionalLife:
    """Brokers under transactional load, for a `with` block."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        brokers: int,
        say: Callable[[str], None] = print,
        *,
        well_within_s: float = WELL_WITHIN_S,
        hung_after_s: float | None = None,
    ) -> None:
        """Starts the brokers, with clocks that run until a fault moves them.

        A client hangs that has not gone on for `hung_after_s`, by default for half of
        `well_within_s`, while the brokers are well.
        """
        self._well_within_s = well_within_s
        self._hung_after_s = well_within_s / 2 if hung_after_s is None else hung_after_s
        self.seed = seed
        self._directory = directory
        self._say = say
        self._random = random.Random(seed)
        self.history = History()
        self._is_ill = False
        settings: dict[str, object] = {**SETTINGS}
        if brokers == 1:
            settings["metadata.store"] = ""  # a broker that is alone, not a cluster of one
        else:
            settings["min.insync.replicas"] = 2
        self.cluster = started(
            directory / "data", brokers, settings, TOPICS, PARTITIONS, ready_within_s=WELL_WITHIN_S
        )
        self.workers: list[RawWorker | ChildWorker] = []
        self.readers: list[Committed] = []
        self._asking: list[Asking] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        is_broken = self._is_ill or error is not None
        for client in (*self.workers, *self.readers):
            client.finish(abandon=is_broken)
        for asking in self._asking:
            asking.finish()
        end(self.cluster, is_broken=is_broken)

    def start_load(self) -> None:
        """Starts the clients."""
        add, bootstrap = self.history.add, self.cluster.bootstrap
        written = [place for place in PLACES if place.topic in ("ledger", INPUT)]
        team = Copying("team", INPUT, GROUPS["team"], PARTITIONS)
        self.workers = [
            RawWorker("raw-0", add, bootstrap, written, is_new=False),
            RawWorker("raw-2", add, bootstrap, written, is_new=True),
        ]
        for name, is_new in (("copy-0", False), ("copy-2", True)):
            copying = Copying(name, INPUT, GROUPS[name], PARTITIONS)
            self.workers.append(RawWorker(name, add, bootstrap, [], is_new=is_new, copying=copying))
        for name, copied in (("child", None), ("team-1", team), ("team-2", team)):
            errors = self._directory / f"{name}.err"
            self.workers.append(ChildWorker(name, add, bootstrap, written, errors, copying=copied))
        self.readers = [Committed("reader", self.history, bootstrap, PLACES)]
        inputs = [place for place in PLACES if place.topic == INPUT]
        self._asking = [Asking(self.history, bootstrap, GROUPS, inputs)]
        for client in (*self.workers, *self.readers, *self._asking):
            client.start()

    # --- rounds -----------------------------------------------------------------------------------

    def play(
        self,
        rounds: int,
        kinds: Sequence[str] = (),
        interruptions: Mapping[str, Interruption] | None = None,
    ) -> list[Problem]:
        """Plays rounds of these faults, or of all; returns what is wrong afterwards.

        `interruptions`, by the names of workers, come about in turn instead of any.
        """
        self.start_load()
        own = TransactionFaults(self.cluster, self.workers, self._random)
        faults = Faults(self.cluster, PLACES, self._random)
        faults.kinds = {**own.of_brokers(faults.kinds), **own.kinds}
        planned = cycle((interruptions or {}).items())
        try:
            self.wait_until_well({})
            for number, kind in enumerate(faults.order(rounds, kinds), 1):
                name = f"seed {self.seed}, {len(self.cluster)} brokers, round {number}/{rounds}"
                who = self._planned(*next(planned, ("", None)))
                self._round(name, faults, kind, *who)
        except Unhealthy as ill:
            self._is_ill = True
            return self._judge_the_ill(ill)
        return self.judge()

    def _planned(
        self, name: str, due: Interruption | None
    ) -> tuple[RawWorker | ChildWorker, Interruption]:
        """Returns who is interrupted and how: as planned, or anybody at any step."""
        if due is not None:
            return next(worker for worker in self.workers if worker.name == name), due
        worker = self._random.choice(self.workers)
        step, how = self._random.choice(worker.steps), self._random.choice(worker.hows)
        return worker, Interruption(step, how)

    def _round(
        self,
        name: str,
        faults: Faults,
        kind: str,
        worker: RawWorker | ChildWorker,
        due: Interruption,
    ) -> None:
        struck = {worker: worker.struck + 1}
        began_s = time.monotonic()
        worker.interrupt(due)
        with faults.kinds[kind]() as what:
            time.sleep(faults.lasts_s() / 2)
        healed_s = time.monotonic()
        what = f"{what}; {worker.name} is {due}"
        try:
            self.wait_until_well(struck)
        except Unhealthy as ill:
            self._say(f"{name}: {what}: {ill}")
            raise
        self._say(
            f"{name}: {what}; over after {healed_s - began_s:.1f} s, "
            f"well after {time.monotonic() - healed_s:.1f} s; "
            f"{sum(each.committed for each in self.workers)} committed"
        )

    def wait_until_well(self, struck: dict[RawWorker | ChildWorker, int]) -> None:
        """Waits until all goes on, and interruptions have come about; raises Unhealthy."""
        deadline_s = time.monotonic() + self._well_within_s
        while len(self.cluster) > 1 and (ill := list(view.illnesses(self.cluster, PLACES))):
            self._look_at_the_time(deadline_s, ill)
        before, committed = self._progress(), {each: each.committed for each in self.workers}
        hung_s = time.monotonic() + self._hung_after_s
        while True:
            slow = [
                f"{who} goes not on" for who, now in self._progress().items() if now <= before[who]
            ]
            slow += [f"{w.name} was not interrupted" for w, n in struck.items() if w.struck < n]
            slow += [f"{each.name} has zombies" for each in self.workers if not each.is_one]
            if not slow:
                return
            if time.monotonic() > hung_s:
                hung_s = deadline_s
                self._kill_the_hung(before, committed)
            self._look_at_the_time(deadline_s, slow)

    def _kill_the_hung(
        self, before: dict[str, int], committed: dict[RawWorker | ChildWorker, int]
    ) -> None:
        """Kills the processes that have not committed, where that holds up what is waited for."""
        now = self._progress()
        for each in self.workers:
            progress = "team" if each.name.startswith("team") else each.name
            is_slow = now[progress] <= before[progress] and each.committed <= committed[each]
            if is_slow and isinstance(each, ChildWorker):
                self._say(f"{each.name} hangs after the step {each.kill_hung()!r}, and is killed")

    @property
    def hung(self) -> int:
        """How many clients hung and were killed."""
        return sum(each.hung for each in self.workers if isinstance(each, ChildWorker))

    def _progress(self) -> dict[str, int]:
        """Returns how much each client has committed or read; members of the group together."""
        progress = {each.name: each.committed for each in self.workers}
        progress["team"] = progress.pop("team-1") + progress.pop("team-2")
        return {**progress, **{each.name: each.got for each in self.readers}}

    def _look_at_the_time(self, deadline_s: float, reasons: list[str]) -> None:
        ended = [each.name for each in (*self.workers, *self.readers) if each.has_ended]
        failed = [str(each) for each in self.history.events if isinstance(each, Failed)]
        if failed or time.monotonic() > deadline_s:
            raise Unhealthy("; ".join((failed + reasons + ended)[:5]))
        time.sleep(_POLL_S)

    # --- judgement --------------------------------------------------------------------------------

    def judge(self) -> list[Problem]:
        """Ends the load, reads everything back, stops the brokers and returns what is wrong."""
        history = self.history
        for worker in self.workers:
            worker.finish()
        self._read_back()
        for reader in (*self.readers, *self._asking):
            reader.finish()
        for failed in stop(self.cluster):
            history.add(failed)
        if self.hung > _MOST_HUNG:
            history.add(Failed("clients", f"{self.hung} hung"))
        for what in self._wrong_files():
            history.add(Failed("files", what))
        return problems(history.events, GROUPS)

    def _judge_the_ill(self, ill: Unhealthy) -> list[Problem]:
        """Returns what is wrong beside what is not well, as far as everything can be read back."""
        for worker in self.workers:
            worker.finish(abandon=True)
        try:
            self._read_back()
            found = problems(self.history.events, GROUPS)
        except (OverTime, OSError, ValueError, BrokerFailed) as error:
            found = [Problem(Kind.FAILED, f"it cannot be read back: {error}")]
        return [Problem(Kind.FAILED, f"it did not become well: {ill}"), *found]

    def _read_back(self) -> None:
        """Adds the committed logs, their ends, and the committed offsets of groups."""
        history = self.history
        for broker in range(1, len(self.cluster) + 1):  # what dead clients left open is aborted
            self.cluster.clock(broker).step(PAST_TIMEOUT_MS)
        brokers = Brokers(self.cluster.bootstrap, lambda: False)
        for place in PLACES:
            history.add(self._ends(brokers, place))
        for group in GROUPS:
            for partition in range(PARTITIONS):
                place = Place(INPUT, partition)
                began_s = time.monotonic()
                told = brokers.told(group, place)
                history.add(OffsetTold(group, place, told, began_s, time.monotonic()))
        brokers.close()
        read_everything(history, self.cluster.bootstrap, PLACES)

    def _wrong_files(self) -> Iterable[str]:
        """Returns what is wrong with the files of stopped brokers.

        The clock of a broker that is alone is corrected when it steps back, and append times with it.
        """
        log_dirs = [broker.log_dir for broker in self.cluster]
        if len(log_dirs) > 1:
            return wrong_files(log_dirs, PLACES)
        return chain.from_iterable(findings(log_dirs[0] / str(place)) for place in PLACES)

    @staticmethod
    def _ends(brokers: Brokers, place: Place) -> Ends:
        """Waits until a partition is stable up to its end, for a while at most."""
        deadline_s = time.monotonic() + _STABLE_WITHIN_S
        while True:
            ends = Ends(place, *brokers.ends(place))
            if ends.last_stable_offset == ends.high_watermark or time.monotonic() > deadline_s:
                return ends
            time.sleep(_POLL_S)
