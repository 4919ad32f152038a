"""Several broker processes over one metadata file, and what an outsider reads of that file."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

from tests.broker.subject import Subject, eventually
from tidelog.broker.metadata.image import Topic
from tidelog.broker.metadata.image_builder import ImageBuilder
from tidelog.broker.metadata.local import local_metadata
from tidelog.broker.metadata.names import new_id
from tidelog.broker.metadata.records import PartitionRecord
from tidelog.broker.metadata.sqlite import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from tidelog.broker.metadata.image import Image

OUTSIDER = 99  # the id under which a test writes to the metadata


class Brokers:
    """Brokers by id; those that run at the end must stop in order."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "tidelog.sqlite"
        self.running: dict[int, Subject] = {}

    def settings(self, broker: int, more: Mapping[str, object] | None = None) -> dict[str, object]:
        return {"node.id": broker, "metadata.store": f"sqlite:{self.path}", **(more or {})}

    def start(
        self, *brokers: int, settings: Mapping[str, object] | None = None, faults: bool = False
    ) -> None:
        """Starts brokers at the same time, and returns when all are ready."""

        def start(broker: int) -> Subject:
            directory = self.directory / f"broker-{broker}"
            return Subject(directory, self.settings(broker, settings), faults=faults)

        with ThreadPoolExecutor(len(brokers)) as threads:
            self.running |= zip(brokers, threads.map(start, brokers), strict=True)

    def __getitem__(self, broker: int) -> Subject:
        return self.running[broker]

    def image(self) -> Image:
        """The metadata as the file has them now."""
        with closing(sqlite3.connect(self.path, timeout=10, isolation_level=None)) as db:
            db.execute("BEGIN")
            snapshot = tables.read(db, "")
        return ImageBuilder(snapshot.revision, snapshot.pairs).image

    def eventually(self, condition: Callable[[Image], Any], within_s: float = 20) -> Any:
        """Waits for an image of which something is true, and returns that."""
        return eventually(lambda: condition(self.image()), within_s)

    def add_topic(
        self, name: str, *assignments: Sequence[int], configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Stores a topic whose partitions are led by the first of their replicas."""
        states = (PartitionRecord(tuple(each), tuple(each), each[0], 0) for each in assignments)
        return self.add(name, *states, configs=configs)

    def add(
        self, name: str, *partitions: PartitionRecord, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Stores a topic whose partitions are in these states."""

        async def add() -> Topic:
            metadata = local_metadata(self.path, OUTSIDER, is_shared=True)
            await metadata.open()
            try:
                return await metadata.add_topic(Topic(name, new_id(), partitions, configs or {}))
            finally:
                await metadata.close()

        return asyncio.run(add())

    def stop(self) -> None:
        for broker in self.running.values():
            if broker.is_running:
                assert broker.stop() == 0, broker.log()[-8000:]
            assert "Traceback" not in broker.log(), broker.log()[-8000:]
