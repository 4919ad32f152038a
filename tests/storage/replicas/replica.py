"""One broker's copy of a partition: a log on a disk of its own, and the model of that log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.storage.conftest import read_max_event_time
from tests.storage.log_model import agreement
from tests.storage.log_model.host import RELEASES, Host
from tests.storage.log_model.model import ModelLog, larger
from tidelog.config.topic import TopicConfig
from tidelog.storage import files

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    from tests.simulation.power_loss import Disk
    from tidelog.protocol.wire import Buffer


class Router(files.System):
    """The disks of several machines, as one: what concerns a file goes to the disk that has it."""

    def __init__(self) -> None:
        self.disks: dict[Path, Disk] = {}  # by the machine's directory
        self._opened: dict[int, files.System] = {}
        self._others = files.System()

    def _of(self, path: Path) -> files.System:
        for disk in self.disks.values():
            if disk.has(path):
                return disk
        return self._others

    def open(self, path: Path, flags: int) -> int:
        disk = self._of(path)
        number = disk.open(path, flags)
        self._opened[number] = disk
        return number

    def write(self, number: int, buffers: Sequence[Buffer], position: int) -> int:
        return self._opened[number].write(number, buffers, position)

    def sync(self, number: int) -> None:
        self._opened[number].sync(number)

    def sync_data(self, number: int) -> None:
        self._opened[number].sync_data(number)

    def truncate(self, path: Path, size: int) -> None:
        self._of(path).truncate(path, size)

    def rename(self, path: Path, target: Path) -> None:
        self._of(path).rename(path, target)

    def unlink(self, path: Path) -> None:
        self._of(path).unlink(path)

    def make_directory(self, path: Path) -> None:
        self._of(path).make_directory(path)

    def remove_directory(self, path: Path) -> None:
        self._of(path).remove_directory(path)


class ReplicaLog(ModelLog):
    """The model of a replica's log: what `ModelLog` has, and the resets of append times."""

    def __init__(self) -> None:
        super().__init__()
        self.version = (0, 0)  # leader epoch and number of the last reset

    def fetched(self, leader: ReplicaLog, end: int, first_base: int) -> ReplicaLog:
        """Return this log after a fetch that took it to `end`, with all that the leader says."""
        log = self.copy()
        is_newer = leader.version > log.version
        log.version, log.bounds = leader.version, list(leader.bounds)
        for batch in leader.batches:
            if not log.end < batch.end <= end:
                continue
            if batch.first < log.end:  # the leader's log starts within it
                first_base = batch.first
                log.begin_at(first_base)
            for epoch, start in leader.epochs:
                if start < batch.end:
                    log.begin_epoch(epoch, max(start, first_base))
            if log.mark < leader.mark <= batch.first:
                log.mark, log.last_append = leader.mark, None
            log.append([batch])
        log.take_last_append(leader, is_newer=is_newer)
        log.counted = leader.counted if is_newer else larger(log.counted, leader.counted)
        for batch in self.batches if is_newer else ():  # a new leader may know a lower watermark
            if batch.end <= self.high_watermark:
                log.count(batch)
        log.advance(min(leader.high_watermark, log.end))
        log.start = max(log.start, min(leader.start, log.high_watermark))
        return log

    def take_last_append(self, leader: ReplicaLog, *, is_newer: bool) -> None:
        if leader.mark > self.end:
            return
        if leader.mark != self.mark:
            is_newer, self.mark = leader.mark > self.mark, leader.mark
        self.last_append = (
            leader.last_append if is_newer else larger(self.last_append, leader.last_append)
        )


class Replica(Host):
    """A broker's copy. It leads or follows in `epoch`, the last one that it has heard of."""

    def __init__(self, path: Path, router: Router, pick: random.Random, common: dict, now: int):
        self.router, self.random, self.common = router, pick, common
        self.own: dict[str, Any] = {
            "segment_bytes": pick.choice([400, 1_000, 4_000, 1 << 20]),
            "index_interval_bytes": pick.choice([0, 0, 150, 4096]),
            "segment_ms": pick.choice([50, 2_000, 1 << 40]),
            "segment_min_roll_interval_ms": pick.choice([0, 100]),
        }
        self.epoch, self.is_reconciled = 0, False
        super().__init__(path, pick, self.settings(2, is_stamped=False), now)
        self.model: ReplicaLog = ReplicaLog()

    def settings(self, magic: int, *, is_stamped: bool) -> TopicConfig:
        """The topic's settings with its own sizes of segments: replicas may differ in those."""
        return TopicConfig(
            **self.common,
            **self.own,
            message_format_version=RELEASES[magic],
            message_timestamp_type="LogAppendTime" if is_stamped else "CreateTime",
        )

    def configure(self, magic: int, *, is_stamped: bool) -> None:
        self.magic, self.is_stamped = magic, is_stamped
        self.config = self.settings(magic, is_stamped=is_stamped)
        self.store.set_config("t", self.config)

    def install(self, disk: Disk) -> None:
        self.router.disks[self.path] = disk

    def time(self) -> int:
        pick, now = self.random, self.now
        return pick.choice([now, now, now - 700, pick.randrange(9_000), -1, -7, now + 5_000])

    # --- roles ------------------------------------------------------------------------------------

    def lead(self, epoch: int, hint: int | None) -> None:
        model, self.epoch = self.model, epoch
        has_lost_times = self.partition.state.lost_offset is not None
        assert self.partition.roles.lead(epoch, high_watermark=self.told(hint)) == model.end
        self.learn_high_watermark(hint)
        model.begin_epoch(epoch, model.end)
        model.bounds = [(min(end, model.end), to_ms) for end, to_ms in model.bounds]
        if has_lost_times:  # others may have later append times
            model.mark = model.end
            model.version = (max(epoch, model.version[0]), model.version[1] + 1)

    def follow(self, epoch: int, hint: int | None) -> None:
        self.epoch, self.is_reconciled = epoch, False
        self.model.forget_epochs_without_batches()
        lost = self.partition.state.lost_offset
        end = self.partition.roles.follow(epoch, high_watermark=self.told(hint))
        if hint is not None:
            self.model.high_watermark = max(hint, self.model.start)
        if lost is not None:
            self.model.cut(max(lost, self.model.start))
            self.count_what_came_back()
            self.now_acknowledged(self.model.end)
        self.learn_high_watermark(hint)
        assert end == self.model.end

    def told(self, hint: int | None) -> int | None:
        """Return what a log that was opened is told of its high watermark; None: the checkpoint."""
        return hint if self.random.random() < 0.5 else None

    def learn_high_watermark(self, hint: int | None) -> None:
        if hint is not None:
            most = max(hint, self.model.start)
            assert self.model.start <= self.partition.high_watermark <= most
            self.model.high_watermark = self.partition.high_watermark

    def learn(self, before: ReplicaLog) -> int:
        """Take over what a crash may take, and return how far the log may be read for sure."""
        state, model = self.partition.state, self.model
        behind = [b.append for b in model.batches if b.first >= state.back_offset]
        stored = [append for append in behind if append is not None]
        if stored:
            assert self.partition.last_append_time is not None
            assert self.partition.last_append_time >= stored[-1]
        model.last_append, model.mark = self.partition.last_append_time, state.back_offset
        model.version = tuple(state.mark)
        model.bounds = [
            (each.end_offset, each.to_ms) for each in state.corrections if not each.shift_ms
        ]
        hint = min(before.high_watermark, model.end)
        return max(hint, model.start)

    def learn_counted(self) -> None:
        """Take over the largest event time: what was counted last may not have been durable."""
        self.model.counted = read_max_event_time(self.partition)

    def check(self) -> None:
        agreement.check(self.partition, self.model, is_trimmed=self.is_trimmed)
