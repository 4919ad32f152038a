"""A log directory with one partition, on a disk that can lose power, beside the model of its log."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from tests.simulation.power_loss import Disk, PowerLoss
from tests.storage.conftest import TOPIC_ID, kill
from tests.storage.log_model import agreement
from tests.storage.log_model.model import Batch, ModelLog, Row
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import files
from tidelog.storage.directory.store import LogStore

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tidelog.config.topic import TopicConfig

RELEASES = ("0.9.0", "0.10.2", "3.0")
CODECS = {0: (0, 0, 1, 2), 1: (0, 0, 1, 3), 2: (0, 0, 1, 4)}


class Host:
    """One partition, its disk and its model. `now` is what its clock shows."""

    magic = 2  # of what it appends
    is_stamped = False  # with the append time

    def __init__(self, path: Path, pick: random.Random, config: TopicConfig, now: int) -> None:
        self.random, self.path, self.config, self.now = pick, path, config, now
        self.boot = self.number = 0
        self.model = ModelLog()
        self.acknowledged = self.covered = 0  # durable before these offsets: batches, append times
        self.said: list[str] = []
        self.is_trimmed = False
        (path / "0").mkdir(parents=True)
        self.open()
        self.store.create_partition("t", TOPIC_ID, 0, self.config, self.now)
        kill(self.store)
        self.use_disk()  # whatever is in it by now is durable
        self.open()

    def use_disk(self) -> None:
        self.disk = Disk(self.path / str(self.number))
        self.install(self.disk)

    def install(self, disk: Disk) -> None:
        """Let storage use the disk."""
        files.use(disk)

    @property
    def directory(self) -> Path:
        return self.path / str(self.number) / "t-0"

    def open(self) -> None:
        self.store = LogStore(
            [self.path / str(self.number)],
            default_config=self.config,
            boot_id=f"boot {self.boot}",
        )
        self.store.open(self.now, {"t": self.config})
        self.partition = self.store.partition("t", 0)

    # --- appends as a leader ----------------------------------------------------------------------

    def records(self, first: int, magic: int) -> list[Record]:
        pick = self.random
        return [
            Record(
                first + i, self.time() if magic else -1, b"k", pick.randbytes(pick.choice([3, 40]))
            )
            for i in range(pick.choice([1, 1, 2, 4]))
        ]

    def time(self) -> int:
        pick = self.random
        return pick.choice([self.now, 500, pick.randrange(9_000), -1, -7, self.now + 5_000])

    def batches_of(
        self, sent: list[Record], magic, codec, append: int | None, epoch: int, producer, stamp
    ) -> list[Batch]:
        """Say what the log has of these records: one batch, or one a message."""
        rows = [
            Row(
                record.offset,
                stamp
                if stamp is not None
                else None
                if record.timestamp == -1
                else record.timestamp,
                record.value,
            )
            for record in sent
        ]
        parts = [rows] if codec or magic == 2 else [[row] for row in rows]
        return [Batch(tuple(part), append, epoch, producer) for part in parts]

    def producer(self, count: int, magic: int) -> tuple[dict, tuple | None]:
        if magic < 2 or self.random.random() < 0.4:
            return {}, None
        number = self.random.choice([1, 2])
        epoch, batches = self.model.producers().get(number, (0, []))
        first = batches[-1][1] + 1 if batches else 0
        known = self.partition.state.read_producers().get(number)
        if not batches and known is not None:  # its batches went with the log's first segments
            assert self.is_trimmed
            epoch, first = known.epoch, known.next_sequence
        fields = {"producer_id": number, "producer_epoch": epoch, "base_sequence": first}
        return fields, (number, epoch, first, first + count - 1)

    def append(self) -> None:
        """Append as the leader of the partition's epoch, in format `magic`."""
        model, magic = self.model, self.magic
        sent = self.records(0, magic)
        codec = self.random.choice(CODECS[magic])
        fields, producer = self.producer(len(sent), magic)
        data = build(sent, magic=magic, compression=codec, **fields)
        append = self.now if model.last_append is None else max(self.now, model.last_append)
        append = 0 if append == -1 else append  # as a stamp it would be no time
        stamp = append if self.is_stamped and magic else None
        told = self.partition.append(data, now_ms=self.now, produce_version=9 if magic == 2 else 2)
        placed = [record._replace(offset=told.base_offset + i) for i, record in enumerate(sent)]
        assert told.base_offset == model.end
        model.begin_epoch(self.partition.leader_epoch, model.end)
        epoch = self.partition.leader_epoch
        model.append(self.batches_of(placed, magic, codec, append, epoch, producer, stamp))

    def count_what_came_back(self) -> None:
        """Count the last batch of a deleted segment that a power loss brought back, after a cut."""
        if not self.model.batches and self.partition.segments[0].tail.size:
            stored = agreement.append_time(self.partition, self.model.end - 1)
            self.model.last_append = self.model.last_append if stored is None else stored

    def now_acknowledged(self, end: int) -> None:
        self.acknowledged, self.covered = min(self.acknowledged, end), min(self.covered, end)

    # --- ends -------------------------------------------------------------------------------------

    def come_back(self) -> None:
        """Open the log again on a machine that has gone on."""
        self.open()
        self.model = agreement.which(self.partition, [self.model], is_trimmed=self.is_trimmed)

    def is_interrupted(self, do: Callable[[], object]) -> bool:
        """Do something, and stop the process or the machine in the middle of it, if it takes long."""
        self.disk.failing_call_counts = self.random.random() < 0.5
        self.disk.fails_at = self.disk.calls + self.random.randint(1, 60)
        with contextlib.suppress(PowerLoss):
            do()
            self.disk.fails_at = None
            return False
        self.said.append("interrupted")
        return True

    def killed(self, candidates: Sequence[ModelLog]) -> None:
        """Come back after the process was killed in the middle of a step."""
        kill(self.store)
        shutil.copytree(self.path / str(self.number), self.path / str(self.number + 1))
        self.next_disk()
        self.open()
        self.model = agreement.which(self.partition, candidates, is_trimmed=self.is_trimmed)
        self.now_acknowledged(self.model.end)

    def power_went(self, candidates: Sequence[ModelLog]) -> None:
        """Come back after a power loss: of what was not made durable anything may be missing.

        Now and then the power goes once more while the log is opened.
        """
        self.lose()
        if self.random.random() > 0.2:
            self.open()
        elif self.is_interrupted(self.open):
            self.lose()
            self.open()
        self.model = agreement.after_power_loss(
            self.partition,
            candidates,
            self.acknowledged,
            self.covered,
            is_trimmed=self.is_trimmed,
        )
        self.now_acknowledged(self.model.end)

    def lose(self) -> None:
        kill(self.store)
        self.disk.is_off = True
        self.said.append(self.disk.lose_power(self.path / str(self.number + 1), self.random))
        self.boot += 1
        self.next_disk()

    def next_disk(self) -> None:
        shutil.rmtree(self.path / str(self.number))
        self.number += 1
        self.use_disk()


def prefixes(before: ModelLog, after: ModelLog) -> list[ModelLog]:
    """Return the logs with only the first few of the batches that a step was to append."""
    found = []
    for batch in after.batches:
        if batch.end > before.end:
            log = after.copy()
            log.high_watermark = before.high_watermark
            log.cut(batch.end)
            found.append(log)
    return found
