"""A broker under a mixed load for a long time: nothing acknowledged is lost, and what it uses is level."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka.admin import NewTopic

from tests.broker.subject import Subject
from tests.nemesis import checker
from tests.nemesis.brokers import create_topics
from tests.nemesis.consumers import Alone, read_everything
from tests.nemesis.history import Failed, History, Place
from tests.nemesis.producers import KafkaPython, Librdkafka
from tests.nemesis.transactions import checker as transactions
from tests.nemesis.transactions.raw_worker import RawWorker
from tests.nemesis.transactions.workers import Copying
from tests.soak.chores import Groups, Lookups, OldFormats, Pages, Topics
from tests.soak.level import growths, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.soak.level import Usage

PLAIN = [Place("plain", partition) for partition in range(2)]
LEDGER = [Place("ledger", 0), Place("in", 0)]
COPIES = Place("copies", 0)
GROUP = "copy"
TOPICS = {"plain": 2, "old": 1, "ledger": 1, "in": 1, "copies": 1}
SEGMENT_BYTES = 16 << 20  # few segments: those that are read keep a descriptor, up to a cap
SETTINGS = {"group.min.session.timeout.ms": 1_000, "log.retention.ms": -1}
_SAMPLES = 60


class Soak:
    """One soak; `found` is what is wrong, after `play`."""

    def __init__(self, directory: Path, say: Callable[[str], None] = print) -> None:
        """Names a directory for the logs and the broker's log."""
        self._directory = directory
        self._say = say
        self.history = History()
        self.events = History()  # of the transactions
        self.samples: list[Usage] = []

    def play(self, seconds: float) -> list[str]:
        """Soaks a broker and returns what is wrong, in words."""
        with Subject(self._directory / "data", SETTINGS) as broker:
            create_topics(broker.bootstrap, _topics())
            clients = self._clients(broker)
            for client in clients:
                client.start()
            began_s = time.monotonic()
            for number in range(1, _SAMPLES + 1):
                time.sleep(max(0, began_s + number * seconds / _SAMPLES - time.monotonic()))
                self._sample(broker)
            for client in clients:
                client.finish()
            read_everything(self.history, broker.bootstrap, [*PLAIN, OldFormats.place])
            read_everything(self.events, broker.bootstrap, [*LEDGER, COPIES])
            if broker.unexpected_errors or broker.stop() or "Traceback" in broker.log():
                self.history.add(Failed("broker", broker.log()[-4_000:]))
        found = [str(each) for each in checker.problems(self.history)]
        found += map(str, transactions.problems(self.events.events, {}))
        return [*found, *growths(self.samples)]

    @property
    def done(self) -> str:
        """How much has been done, in words."""
        acknowledged = sum(self.history.acknowledged.values())
        ended = sum(type(event).__name__ == "Ended" for event in self.events.events)
        return f"{acknowledged} records acknowledged, {ended} transactions"

    def _sample(self, broker: Subject) -> None:
        usage = usage_of(broker.pid)
        self.samples.append(usage)
        if len(self.samples) % 6 == 0:
            self._say(
                f"{len(self.samples)}/{_SAMPLES}: {usage.memory_mb:.0f} MB, "
                f"{usage.descriptors} descriptors, {usage.threads} threads; {self.done}"
            )

    def _clients(self, broker: Subject) -> list:
        history, bootstrap, ledger = self.history, broker.bootstrap, self.events
        return [
            Librdkafka("packed", history, bootstrap, PLAIN, **{"compression.type": "lz4"}),
            KafkaPython("python", history, bootstrap, PLAIN[:1]),
            OldFormats("old", history, bootstrap, 0.05),
            RawWorker("raw-0", ledger, bootstrap, LEDGER, is_new=False),
            RawWorker("raw-2", ledger, bootstrap, LEDGER, is_new=True),
            RawWorker(
                "copy",
                ledger,
                bootstrap,
                [],
                is_new=True,
                copying=Copying(GROUP, "in", "copies", 1),
            ),
            Alone("alone", history, bootstrap, PLAIN),
            Groups("groups", history, bootstrap, 0.2),
            Topics("topics", history, bootstrap, 0.5),
            Lookups("lookups", history, bootstrap, 0.05, PLAIN),
            Pages("pages", history, bootstrap, 1, broker.page),
        ]


def _topics() -> list[NewTopic]:
    """Returns the topics that stay."""
    settings = {"segment.bytes": str(SEGMENT_BYTES)}
    return [NewTopic(topic, many, 1, config=settings) for topic, many in TOPICS.items()]
