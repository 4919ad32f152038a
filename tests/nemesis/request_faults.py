"""What goes wrong with the requests of transactions: lost, late, or the broker dies as it gets one.

Each fault is a context manager as in `faults.py`.
"""

from __future__ import annotations

import contextlib
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from tests.nemesis.transactions.raw import STEPS, TIMEOUT_MS, How, Interruption
from tidelog.control import ControlError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from tests.nemesis.faults import Kinds
    from tests.nemesis.transactions.raw_worker import RawWorker
    from tidelog.cluster import BrokerCluster

PAST_TIMEOUT_MS = TIMEOUT_MS + 5_000
_LATE_MS = 700
_MOST_JUMPS = 5
_KILLED_AFTER_S = (0.01, 0.1, 0.3)  # as it is served, and with what follows from it under way
_STRIKES_WITHIN_S = 30.0


class RequestFaults:
    """Faults that strike the steps of transactions."""

    def __init__(
        self,
        cluster: BrokerCluster,
        workers: Sequence[RawWorker],
        chance: random.Random,
    ) -> None:
        self._cluster = cluster
        self._workers = workers
        self._random = chance
        self.kinds: Kinds = {
            "past the time-out": self.past_the_timeout,
            "answers lost": self.answers_lost,
            "requests late": self.requests_late,
            "answers late": self.answers_late,
            "kill at a step": self.kill_at_a_step,
            "kill at EndTxn": self.kill_at_the_end,
            "nothing": self.nothing,
        }

    def _apis(self) -> list[str]:
        """Returns the APIs of a transaction, with that between brokers where there are several."""
        between = ["WriteTxnMarkers"] if len(self._cluster) > 1 else []
        return [*STEPS, *between]

    @contextmanager
    def nothing(self) -> Iterator[str]:
        """No fault of a broker."""
        yield "no fault"

    @contextmanager
    def past_the_timeout(self) -> Iterator[str]:
        """The clocks of all brokers jump past the time-out of all transactions that are open."""
        jumps = self._random.randint(1, _MOST_JUMPS)
        for _ in range(jumps):
            for broker in range(1, len(self._cluster) + 1):
                self._cluster.clock(broker).step(PAST_TIMEOUT_MS)
            time.sleep(self._random.uniform(0.02, 0.3))
        yield f"clocks jump past the time-out {jumps} times"

    @contextmanager
    def answers_lost(self) -> Iterator[str]:
        """Some requests of one API are served, and the connection is closed instead of an answer."""
        api = self._random.choice(self._apis())
        times = self._random.randint(1, 5)
        with self._injected(api=api, disconnect=True, when="after", times=times):
            yield f"{times} answers to {api} lost by each broker"

    @contextmanager
    def requests_late(self) -> Iterator[str]:
        """Some requests of one API wait before they are served, and others overtake them."""
        api = self._random.choice(self._apis())
        with self._injected(api=api, delay=_LATE_MS, when="before", probability=0.5):
            yield f"half of {api} served late"

    @contextmanager
    def answers_late(self) -> Iterator[str]:
        """Some answers of one API wait."""
        api = self._random.choice(self._apis())
        with self._injected(api=api, delay=_LATE_MS, when="after", probability=0.5):
            yield f"half of {api} answered late"

    @contextmanager
    def _injected(self, **fault: object) -> Iterator[None]:
        with ExitStack() as stack:
            for broker in range(1, len(self._cluster) + 1):
                with contextlib.suppress(ControlError):
                    stack.enter_context(self._cluster.faults(broker).add(**fault))  # type: ignore[arg-type]
            yield

    @contextmanager
    def kill_at_a_step(self) -> Iterator[str]:
        """The broker that is asked is killed, as a request of one step has been sent to it."""
        worker = self._random.choice(self._workers)
        with self._killed_at(worker, self._random.choice(worker.steps)) as what:
            yield what

    @contextmanager
    def kill_at_the_end(self) -> Iterator[str]:
        """The same with EndTxn of a producer of version 0, which does not ask for the end again."""
        worker = self._random.choice([each for each in self._workers if STEPS[1] in each.steps])
        with self._killed_at(worker, STEPS[-1]) as what:
            yield what

    @contextmanager
    def _killed_at(self, worker: RawWorker, step: str) -> Iterator[str]:
        killed: list[int] = []

        def kill(address: str) -> None:
            time.sleep(self._random.choice(_KILLED_AFTER_S) * self._random.uniform(0.5, 1))
            for number, broker in enumerate(self._cluster, 1):
                if broker.bootstrap == address:
                    self._cluster.kill(number)
                    killed.append(number)

        worker.kill_broker = kill
        struck = worker.struck
        before, worker.interruption = worker.interruption, None
        worker.interrupt(Interruption(step, How.BROKER_KILLED))
        deadline_s = time.monotonic() + _STRIKES_WITHIN_S
        while worker.struck == struck and time.monotonic() < deadline_s:
            time.sleep(0.01)
        while not killed and time.monotonic() < deadline_s:
            time.sleep(0.01)
        if before is not None:
            worker.struck -= 1
            worker.interrupt(before)
        yield f"kill -9 of broker {killed} at {step} of {worker.name}"
        for number in killed:
            self._cluster.restart(number)
