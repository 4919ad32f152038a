"""Starts several brokers as one cluster for a test, and breaks them on command.

A BrokerCluster is one BrokerProcess for each broker, with ids from 1 on, in one directory laid out
as `tidelog serve --brokers N` lays it out. No supervisor runs: a broker that a test has killed
stays down until the test restarts it. pytest shows what these calls raise where the test calls them.
"""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tidelog.process import READY_WITHIN_S, BrokerFailed, BrokerProcess
from tidelog.topics import AS_THE_BROKER_SAYS, create_missing, create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import Self

    from tidelog.control import Clock, Faults

__tracebackhide__ = True

_REPLICAS = 3


class BrokerCluster:
    """Brokers that replicate to each other, which run from the construction on.

    `cluster[2]` is the BrokerProcess of broker 2. Raises BrokerFailed if one is not ready in time.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        clock: str | None = None,
        faults: bool = True,
        ready_within_s: float = READY_WITHIN_S,
        own_settings: Mapping[int, Mapping[str, object]] | None = None,
        topics: Mapping[str, int] | None = None,
    ) -> None:
        """Starts all brokers at once; `settings` are those of each.

        `own_settings` are those of single brokers, by their ids, and win. `topics` are created with so
        many partitions each, unless they exist.

        Their metadata are in a file, unless `metadata.store` is one of the settings.

        With clock="manual" each broker has a manual clock of its own, and all start at one time.
        """
        same: dict[str, object] = {
            "default.replication.factor": min(_REPLICAS, brokers),
            "metadata.store": f"sqlite:{directory / 'tidelog.sqlite'}",
            **(settings or {}),
        }
        if clock == "manual":
            same.setdefault("clock.start.ms", time.time_ns() // 1_000_000)
        directory.mkdir(0o700, parents=True, exist_ok=True)

        def start(broker: int) -> BrokerProcess:
            place = directory if broker == 1 else directory / "brokers" / str(broker)
            return BrokerProcess(
                place,
                {**same, **(own_settings or {}).get(broker, {}), "node.id": broker},
                clock=clock,
                faults=faults,
                ready_within_s=ready_within_s,
            )

        self.directory = directory
        self._brokers: dict[int, BrokerProcess] = {}
        with ThreadPoolExecutor(brokers) as threads:
            starting = {broker: threads.submit(start, broker) for broker in range(1, brokers + 1)}
        try:
            for broker, started in starting.items():
                self._brokers[broker] = started.result()
            if topics:
                create_missing(self.bootstrap, topics)
        except BaseException as error:
            for started in starting.values():
                if started.exception() is None:
                    started.result().kill()
            if isinstance(error, BrokerFailed):
                raise error.with_traceback(None) from None  # the frames of threads help nobody
            raise

    @property
    def bootstrap(self) -> str:
        """The value for bootstrap.servers: the addresses of all brokers."""
        return ",".join(broker.bootstrap for broker in self)

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self[1].cluster_id

    def __getitem__(self, broker: int) -> BrokerProcess:
        """Returns a broker by its id. Raises BrokerFailed if there is none."""
        if broker not in self._brokers:
            known = ", ".join(map(str, self._brokers))
            raise BrokerFailed(f"there is no broker {broker}: the cluster has {known}")
        return self._brokers[broker]

    def __iter__(self) -> Iterator[BrokerProcess]:
        return iter(self._brokers.values())

    def __len__(self) -> int:
        return len(self._brokers)

    def kill(self, broker: int) -> None:
        """Ends a broker with SIGKILL; it stays down until `restart`."""
        self[broker].kill()

    def pause(self, broker: int) -> None:
        """Freezes a broker (SIGSTOP): the others see it hang, and its lease ends."""
        self[broker].pause()

    def resume(self, broker: int) -> None:
        """Continues a broker after `pause`."""
        self[broker].resume()

    def stop(self, broker: int) -> int:
        """Stops a broker with SIGTERM, after it has handed over what it leads; returns its status."""
        return self[broker].stop()

    def restart(self, broker: int, settings: Mapping[str, object] | None = None) -> None:
        """Starts a broker again on its ports and logs; stops it first if it runs."""
        self[broker].restart(settings)

    def create_topic(
        self,
        name: str,
        partitions: int = AS_THE_BROKER_SAYS,
        settings: Mapping[str, object] | None = None,
    ) -> str:
        """Creates a topic and returns its name when its partitions have leaders.

        Raises tidelog.errors.RequestError.
        """
        create_topic(self.bootstrap, name, partitions, settings)
        return name

    def cut(self, a: int, b: int | None = None) -> None:
        """Cuts the connections between two brokers, or without a second one from the metadata.

        Nothing passes in either direction, and nobody is told: requests run into their timeouts.
        Both must be running; a broker that is restarted is cut off from nobody.
        """
        self[a].cut_off(b)
        if b is not None:
            self[b].cut_off(a)

    def heal(self) -> None:
        """Heals all cuts of the brokers that run."""
        for broker in self:
            if broker.is_running:
                broker.heal()

    def clock(self, broker: int) -> Clock:
        """Returns the manual clock of one broker. Raises BrokerFailed if it has none."""
        return self[broker].clock

    def faults(self, broker: int) -> Faults:
        """Returns the faults of one broker."""
        return self[broker].faults

    def close(self) -> None:
        """Stops all brokers, one after another, the last one first."""
        for broker in reversed(self._brokers.values()):
            broker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.ExitStack() as brokers:
            for broker in self:
                brokers.enter_context(broker)
