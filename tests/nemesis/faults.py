"""What goes wrong with a cluster of real processes: each fault begins, lasts a while and is healed.

A fault is a context manager that yields what it did, in words. It is healed at the end, and what it
stopped runs again. The seed of a run decides which fault comes when, whom it strikes and for how
long; the processes and the machine decide the rest.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient

from tests.nemesis import view
from tidelog.client import Client
from tidelog.client.calls.reassignments import reassign
from tidelog.process import BrokerFailed

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from tests.nemesis.history import Place
    from tidelog.cluster import BrokerCluster

    Kinds = Mapping[str, Callable[[], AbstractContextManager[str]]]

JUMP_MS = 600_000
_SLOW_MS = 1_000
_STORM = 6  # kills


class Faults:
    """The faults of one run."""

    def __init__(
        self, cluster: BrokerCluster, places: Sequence[Place], chance: random.Random
    ) -> None:
        self._cluster = cluster
        self._places = places
        self._random = chance
        self._skew_ms = dict.fromkeys(range(1, len(cluster) + 1), 0)
        self.kinds: dict[str, Callable[[], AbstractContextManager[str]]] = {
            "kill": self.kill,
            "pause": self.pause,
            "restart": self.restart,
            "full disk": self.full_disk,
            "failing disk": self.failing_disk,
            "slow disk": self.slow_disk,
            "clock forward": self.clock_forward,
            "clock back": self.clock_back,
            "kill while starting": self.kill_while_starting,
        }
        if len(cluster) > 1:
            self.kinds |= {
                "pause all": self.pause_all,
                "storm": self.storm,
                "cut": self.cut,
                "elections": self.elections,
                "cut from metadata": self.cut_from_metadata,
                "kill all": self.kill_all,
                "one-way cut": self.one_way_cut,
                "reassignment": self.reassignment,
                "two at once": self.two,
            }
        # Two of these at once leave what is acknowledged on a broker that lives, or comes back whole.
        self._alone = ("kill", "pause", "cut", "clock forward", "clock back", "cut from metadata")
        self._spared: set[int] = set()  # brokers that have a fault already

    def order(self, rounds: int, kinds: Sequence[str] = ()) -> list[str]:
        """Returns a fault for each round: those named, or all, in random order, over and over."""
        known = list(kinds or self.kinds)
        chosen: list[str] = []
        while len(chosen) < rounds:
            chosen += self._random.sample(known, len(known))
        return chosen[:rounds]

    def lasts_s(self) -> float:
        """Returns how long a fault lasts: often shorter than a session, sometimes longer."""
        return self._random.choice((0.1, 0.5, 1.0, 2.0, 4.0)) * self._random.uniform(0.8, 1.2)

    def _victim(self) -> int:
        """Chooses a broker: half of the time one that leads something that is written."""
        brokers = [each for each in self._skew_ms if each not in self._spared]
        if self._random.random() < 0.5:
            leaders = sorted(view.leaders(self._cluster).items())
            leader = self._random.choice(leaders)[1] if leaders else None
            if leader in brokers:
                return leader
        return self._random.choice(brokers)

    # --- processes --------------------------------------------------------------------------------

    @contextmanager
    def kill(self) -> Iterator[str]:
        """SIGKILL; started again at the end."""
        victim = self._victim()
        self._cluster.kill(victim)
        with self._sparing(victim):
            yield f"kill -9 of broker {victim}"
        self._cluster.restart(victim)

    @contextmanager
    def kill_while_starting(self) -> Iterator[str]:
        """SIGKILL, and again while it starts, and once more when it has just started."""
        victim = self._victim()
        self._cluster.kill(victim)
        with self._sparing(victim), ThreadPoolExecutor(1) as threads:
            started = threads.submit(self._cluster.restart, victim)
            time.sleep(self._random.uniform(0.1, 0.8))
            with contextlib.suppress(BrokerFailed):
                os.kill(self._cluster[victim].pid, signal.SIGKILL)
            with contextlib.suppress(BrokerFailed):
                started.result()
            self._cluster.restart(victim)
            self._cluster.kill(victim)
            yield f"kill -9 of broker {victim}, while it starts, and after"
        self._cluster.restart(victim)

    @contextmanager
    def kill_all(self) -> Iterator[str]:
        """SIGKILL of all brokers one after another; started again at the same time."""
        everybody = self._random.sample(list(self._skew_ms), len(self._skew_ms))
        for broker in everybody:
            self._cluster.kill(broker)
        yield f"kill -9 of brokers {', '.join(map(str, everybody))}"
        with ThreadPoolExecutor(len(everybody)) as threads:
            list(threads.map(self._cluster.restart, everybody))

    @contextmanager
    def restart(self) -> Iterator[str]:
        """SIGTERM; started again at the end."""
        victim = self._victim()
        status = self._cluster.stop(victim)
        assert status == 0, f"broker {victim} stopped with status {status}"
        with self._sparing(victim):
            yield f"stop of broker {victim}"
        self._cluster.restart(victim)

    @contextmanager
    def pause(self) -> Iterator[str]:
        """SIGSTOP, then SIGCONT."""
        victim = self._victim()
        self._cluster.pause(victim)
        try:
            with self._sparing(victim):
                yield f"pause of broker {victim}"
        finally:
            self._cluster.resume(victim)

    @contextmanager
    def pause_all(self) -> Iterator[str]:
        """SIGSTOP of all brokers: their sessions may end at the same time."""
        for broker in self._skew_ms:
            self._cluster.pause(broker)
        yield "pause of all brokers"
        for broker in self._random.sample(list(self._skew_ms), len(self._skew_ms)):
            self._cluster.resume(broker)

    @contextmanager
    def storm(self) -> Iterator[str]:
        """One broker after another is killed and starts again, whether or not the others are well."""
        killed: list[int] = []
        starting: dict[int, Future[None]] = {}
        with ThreadPoolExecutor(len(self._skew_ms)) as threads:
            while len(killed) < _STORM:
                idle = [each for each in self._skew_ms if is_done(starting.get(each))]
                if idle:
                    victim = self._random.choice(idle)
                    self._cluster.kill(victim)
                    killed.append(victim)
                    starting[victim] = threads.submit(self._cluster.restart, victim)
                time.sleep(self._random.uniform(0.05, 1.0))
            for started in starting.values():
                started.result()
        yield f"kill -9 of brokers {', '.join(map(str, killed))} before the others were well"

    # --- connections ------------------------------------------------------------------------------

    @contextmanager
    def cut(self) -> Iterator[str]:
        """Nothing passes between two brokers."""
        one = self._victim()
        other = self._random.choice([each for each in self._skew_ms if each != one])
        if other in self._spared:
            other = next(each for each in self._skew_ms if each not in {one, *self._spared})
        self._cluster.cut(one, other)
        with self._sparing(one):
            yield f"cut between brokers {one} and {other}"
        self._heal(one, other)
        self._heal(other, one)

    @contextmanager
    def cut_from_metadata(self) -> Iterator[str]:
        """A broker does not reach the metadata."""
        victim = self._victim()
        self._cluster.cut(victim)
        with self._sparing(victim):
            yield f"cut of broker {victim} from the metadata"
        self._heal(victim)

    @contextmanager
    def one_way_cut(self) -> Iterator[str]:
        """Nothing passes on the connections that one broker opens to another."""
        one = self._victim()
        other = self._random.choice([each for each in self._skew_ms if each != one])
        self._cluster[one].cut_off(other)
        with self._sparing(one):
            yield f"cut of broker {one} as the client of broker {other}"
        self._heal(one, other)

    def _heal(self, broker: int, other: int | None = None) -> None:
        self._cluster[broker].heal(other)

    # --- disks and clocks -------------------------------------------------------------------------

    @contextmanager
    def full_disk(self) -> Iterator[str]:
        """Every write of storage fails with ENOSPC."""
        victim = self._victim()
        log_dir = str(self._cluster[victim].log_dir)
        fault = self._cluster.faults(victim).add(storage="write", error="ENOSPC", log_dir=log_dir)
        with self._sparing(victim):
            yield f"full disk of broker {victim}"
        fault.lift()

    @contextmanager
    def failing_disk(self) -> Iterator[str]:
        """Every sync fails with EIO; logs that wanted one are offline until the broker starts again."""
        victim = self._victim()
        self._cluster.faults(victim).add(storage="sync", error="EIO")
        with self._sparing(victim):
            yield f"failing disk of broker {victim}"
        self._cluster.kill(victim)
        self._cluster.restart(victim)

    @contextmanager
    def slow_disk(self) -> Iterator[str]:
        """Every sync takes long."""
        victim = self._victim()
        with (
            self._cluster.faults(victim).add(storage="sync", delay=_SLOW_MS),
            self._sparing(victim),
        ):
            yield f"slow disk of broker {victim}"

    @contextmanager
    def clock_forward(self) -> Iterator[str]:
        """A clock jumps forward by ten minutes, and stays there."""
        yield self._jump(JUMP_MS)

    @contextmanager
    def clock_back(self) -> Iterator[str]:
        """A clock jumps back by ten minutes, and stays there."""
        yield self._jump(-JUMP_MS)

    def _jump(self, by_ms: int) -> str:
        """Moves the clock of a broker that is not ahead, or behind, by ten minutes already."""
        able = [
            each
            for each, skew_ms in self._skew_ms.items()
            if abs(skew_ms + by_ms) <= JUMP_MS and each not in self._spared
        ]
        if not able:
            by_ms, able = -by_ms, [each for each in self._skew_ms if each not in self._spared]
        victim = self._random.choice(able)
        self._cluster.clock(victim).leap(by_ms)
        self._skew_ms[victim] += by_ms
        return f"clock of broker {victim} jumps by {by_ms // 60_000:+} min"

    # --- administrators ---------------------------------------------------------------------------

    @contextmanager
    def elections(self) -> Iterator[str]:
        """Preferred leaders are elected, which moves leaderships between brokers that live."""
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap})
        with contextlib.suppress(KafkaException):  # some partitions are led by them already
            admin.elect_leaders(ElectionType.PREFERRED, None).result(30)
        yield "election of preferred leaders"

    @contextmanager
    def reassignment(self) -> Iterator[str]:
        """A partition has two replicas for a while, and then three again, in another order."""
        place = self._random.choice(self._places)
        brokers = self._random.sample(list(self._skew_ms), len(self._skew_ms))
        self._reassign(place, brokers[:2])
        yield f"reassignment of {place} to brokers {brokers[0]} and {brokers[1]}"
        self._reassign(place, brokers)

    def _reassign(self, place: Place, brokers: Sequence[int]) -> None:
        with Client(self._cluster.bootstrap) as client:
            refused = client.perform(reassign({tuple(place): brokers}))
        assert not refused, refused

    # --- several ----------------------------------------------------------------------------------

    @contextmanager
    def two(self) -> Iterator[str]:
        """Two faults at once, of two brokers."""
        with ExitStack() as stack:
            said = [
                stack.enter_context(self.kinds[self._random.choice(self._alone)]())
                for _ in range(2)
            ]
            yield " and ".join(said)

    @contextmanager
    def _sparing(self, broker: int) -> Iterator[None]:
        self._spared.add(broker)
        try:
            yield
        finally:
            self._spared.discard(broker)


def is_done(work: Future[None] | None) -> bool:
    """Returns whether work has ended, or was never begun."""
    return work is None or work.done()
