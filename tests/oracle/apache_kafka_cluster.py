"""Several Apache Kafka brokers on the loopback interface, each broker and controller in one process.

    with ApacheKafkaCluster("3.9.1", directory, brokers=3) as kafka:
        talk_to(kafka.bootstrap)
        kafka.kill(2)

All settings are Kafka's defaults but ids, addresses and directories; `properties` win over them.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.oracle import apache_kafka
from tests.oracle.apache_kafka import (
    FULL,
    ApacheKafka,
    ApacheKafkaError,
    NodePorts,
    Place,
    free_ports,
    named_brokers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class ApacheKafkaCluster:
    """A KRaft quorum of `brokers` combined nodes with the ids 1, 2, ...

    `directory` takes everything they write, each node below its id. `heap` is the Java heap of one
    node, and `jvm` more options of Java. Only processes started here are ended, by their own id.
    """

    def __init__(
        self,
        version: str,
        directory: str | Path,
        brokers: int = 3,
        properties: Mapping[str, object] | None = None,
        heap: str = "512m",
        jvm: Sequence[str] = FULL,
    ) -> None:
        self.version = version
        self.directory = Path(directory).resolve()
        self.properties = dict(properties or {})
        self.heap = heap
        self.jvm = jvm
        self.start_seconds = 0.0
        self._ids = range(1, brokers + 1)
        self._nodes: dict[int, ApacheKafka] = {}
        self._killed: set[int] = set()  # those that were stopped are among them

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def ports(self) -> dict[int, int]:
        """The port for clients of each broker, also of one that was killed, by its id."""
        return {node_id: node.port for node_id, node in self._nodes.items()}

    @property
    def bootstrap(self) -> str:
        """`host:port` of each broker, also of one that was killed, with commas between."""
        return ",".join(node.bootstrap for node in self._nodes.values())

    @property
    def pids(self) -> dict[int, int]:
        """The process ids of the brokers that run, by their ids."""
        return {
            node_id: node.pid
            for node_id, node in self._nodes.items()
            if node_id not in self._killed
        }

    def start(self) -> None:
        """Starts all brokers, and returns when each of them names all of them.

        Raises ApacheKafkaError if they do not in time; what the broker wrote is in the message.
        """
        if self._nodes:
            raise ApacheKafkaError("the brokers are running already")
        apache_kafka.fetch(self.version)
        begin = time.monotonic()
        apache_kafka.start_again_if_passing(self._start_once, self.stop)
        self.start_seconds = time.monotonic() - begin

    def kill(self, node_id: int) -> None:
        """Ends one broker as a crash would. Raises ApacheKafkaError if it does not run."""
        if node_id not in self.pids:
            raise ApacheKafkaError(f"broker {node_id} is not running")
        self._nodes[node_id].kill()
        self._killed.add(node_id)

    def stop_one(self, node_id: int) -> None:
        """Ends one broker in order, which hands over what it leads; `restart` starts it again.

        Raises ApacheKafkaError if it does not run.
        """
        if node_id not in self.pids:
            raise ApacheKafkaError(f"broker {node_id} is not running")
        self._nodes[node_id].stop()
        self._killed.add(node_id)

    def restart(self, node_id: int) -> None:
        """Starts a killed broker on its directory and its ports; returns when all name it again.

        Raises ApacheKafkaError if it runs already, or if the others do not name it in time.
        """
        if node_id not in self._killed:
            raise ApacheKafkaError(f"broker {node_id} is not killed")
        self._nodes[node_id].start()
        self._killed.remove(node_id)
        self._wait_for_names()

    def stop(self) -> None:
        """Ends all brokers; nothing happens if they do not run."""
        nodes, self._nodes, self._killed = self._nodes, {}, set()
        self._each(nodes, ApacheKafka.stop)

    def log_tail(self) -> str:
        """The last lines that each broker wrote, for a failure message."""
        return "\n".join(
            f"broker {node_id}:\n{node.log_tail()}" for node_id, node in self._nodes.items()
        )

    def _start_once(self) -> None:
        numbers = iter(free_ports(2 * len(self._ids)))
        ports = {node_id: NodePorts(next(numbers), next(numbers)) for node_id in self._ids}
        self._nodes = {
            node_id: ApacheKafka(
                self.version,
                self.directory / str(node_id),
                self.properties,
                heap=self.heap,
                jvm=self.jvm,
                place=Place(node_id, ports),
            )
            for node_id in self._ids
        }
        # None of them answers before a majority of them runs, so they start at the same time.
        self._each(self._nodes, ApacheKafka.start)
        self._wait_for_names()

    def _each(self, nodes: Mapping[int, ApacheKafka], act: Callable[[ApacheKafka], None]) -> None:
        """Does `act` for all of them at once; raises the first error when all are done."""
        with ThreadPoolExecutor(len(self._ids), thread_name_prefix="kafka") as pool:
            for done in [pool.submit(act, node) for node in nodes.values()]:
                done.result()

    def _wait_for_names(self) -> None:
        running = [node for node_id, node in self._nodes.items() if node_id not in self._killed]
        deadline = time.monotonic() + apache_kafka.START_TIMEOUT_S
        while any(named_brokers(node.port) < len(running) for node in running):
            if time.monotonic() > deadline:
                raise ApacheKafkaError(
                    f"{len(running)} brokers did not register in"
                    f" {apache_kafka.START_TIMEOUT_S} s:\n{self.log_tail()}"
                )
            time.sleep(0.05)  # foreign processes can only be polled
