"""The process that compacts a broker's logs, as threads of the broker's own process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from tidelog.broker.logs.maintenance.compaction_worker import CleaningError
from tidelog.protocol.errors import BrokerError
from tidelog.storage.compaction.cleaner import Cleaner
from tidelog.storage.compaction.job import Job

_THREADS = SimpleNamespace(_shutdown=False)


class VirtualWorker:
    """Does what `broker.maintenance.compaction_process` does, for one process of a broker."""

    pid = 0

    def __init__(self) -> None:
        self._cleaner: Cleaner | None = None
        self._groups: list[Any] = []

    @classmethod
    async def start(cls, _bytes_per_second: float) -> Self:
        return cls()

    async def request(self, question: dict[str, Any], patience_s: float) -> dict[str, Any]:
        """Answers a question in a thread. Raises CleaningError."""
        loop = asyncio.get_running_loop()
        asked = json.loads(json.dumps(question))
        return await loop.run_in_executor(_THREADS, self._answer, asked)

    def _answer(self, asked: dict[str, Any]) -> Any:
        try:
            if "job" in asked:
                self._cleaner = Cleaner(Path(asked["directory"]), Job.unpacked(asked["job"]))
                self._groups = self._cleaner.groups()
                return {"groups": len(self._groups), "end_offset": self._cleaner.end_offset}
            assert self._cleaner is not None
            cleaned = self._cleaner.clean(self._groups[asked["group"]]).packed()
            return json.loads(json.dumps({"cleaned": cleaned}))
        except (BrokerError, OSError) as error:
            raise CleaningError(str(error)) from error

    async def stop(self) -> bool:
        return True
