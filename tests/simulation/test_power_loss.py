"""What was acknowledged in flush mode outlives a power loss, whatever the disk forgets or tears.

Random lives of a store with two log directories: topics of all formats come and go, batches are
appended and made durable as flush mode does it (what `Partition.flush` returned is acknowledged, and
appends go on meanwhile), segments roll, records are deleted, the broker is stopped, killed and started.
The power goes between two steps or in the middle of any call, recovery's own calls included, and
`power_loss.Disk` says what is left. Then the store opens and has to agree with what was appended.
Planted bugs, each a way to acknowledge too much, must be caught.

TIDELOG_POWER_LOSSES=n says how many losses are tried, TIDELOG_POWER_SEED=n replays from one life on.
"""

import contextlib
import os
import random
import shutil
import uuid

import pytest

from tests.simulation.power_loss import Disk, PowerLoss
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build, records
from tidelog.storage import files
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.times import partition_times

LOSSES = int(os.environ.get("TIDELOG_POWER_LOSSES", "30"))
FIRST = int(os.environ.get("TIDELOG_POWER_SEED", "0"))
FORMATS = ("0.9.0", "0.10.2", "3.0")
EVENT_SLACK_MS = 3_600_000
LOSSES_OF_A_LIFE = 4
MOST_LIVES_FOR_A_BUG = 120


class Row:
    """A record that was appended; nobody knows its append time where that is None."""

    def __init__(self, time, value, append, producer):
        self.time, self.value, self.append, self.producer = time, value, append, producer


class Log:
    """What is known of one partition."""

    def __init__(self, topic_id):
        self.topic_id = topic_id
        self.rows = []
        self.acknowledged = 0  # offsets before this are durable
        self.covered = 0  # and their append times are known to be, before this
        self.start = self.highest_start = 0  # it starts between these
        self.last_append = None
        self.is_going = False  # its deletion has begun
        self.trimmed = 0  # the start that was acknowledged
        self.event = None  # the largest event time there ever was
        self.holes = set()  # offsets that went although later ones stayed; none was promised

    @property
    def end(self):
        return len(self.rows)

    @property
    def is_promised(self):
        return (max(self.acknowledged, self.trimmed) > 0) and not self.is_going


class Life:
    def __init__(self, path, seed, plant):
        self.random, self.path, self.plant = random.Random(seed), path, plant
        self.number = self.boot = self.losses = 0
        self.now = 1_000_000
        self.logs, self.configs, self.said = {}, {}, []
        self.store = None
        (path / "0").mkdir()
        self.use_disk()
        self.open()

    def use_disk(self):
        root = self.path / str(self.number)
        self.disk = Disk(root, sector=self.random.choice([512, 512, 4096]))
        self.disk.skips = self.plant.skips
        files.use(self.disk)
        self.directories = [root / "a" / "logs", root / "b"]

    def open(self):
        default = TopicConfig()
        self.store = LogStore(self.directories, default_config=default, boot_id=f"boot {self.boot}")
        self.store.open(self.now, self.configs)

    # --- what happens ----------------------------------------------------------------------------

    def step(self):
        self.now += self.random.choice([0, 0, 1, 7, 300, -50])
        weights = {
            self.append: 12,
            self.flush: 5,
            self.checkpoint: 1,
            self.create: 2 if len(self.logs) > 1 else 6,
            self.alter: 1,
            self.trim: 1,
            self.retain: 1,
            self.delete: 0.4,
            self.stop: 0.4,
            self.kill: 0.4,
        }
        (do,) = self.random.choices(list(weights), list(weights.values()))
        do()

    def some(self):
        key = self.random.choice(sorted(self.logs))
        return key, self.logs[key], self.store.partition(*key)

    def choose(self, topic):
        pick = self.random.choice
        self.configs[topic] = TopicConfig(
            segment_bytes=pick([1000, 2000, 6000, 1 << 20]),
            index_interval_bytes=pick([0, 150, 4096]),
            message_format_version=pick([*FORMATS, FORMATS[2]]),
            message_timestamp_type=pick(["CreateTime", "CreateTime", "LogAppendTime"]),
            retention_bytes=pick([-1, -1, 2000, 0]),
            retention_ms=-1,
            file_delete_delay_ms=pick([0, 500]),
            flush_messages=pick([1, 1, 2**63 - 1]),
        )

    def create(self):
        topic, index = self.random.choice(["t", "u", "v"]), self.random.randrange(2)
        if (topic, index) in self.logs:
            return
        ids = [
            log.topic_id for (name, _), log in self.logs.items() if name == topic and log.topic_id
        ]
        if not ids:
            self.choose(topic)
        log = Log(ids[0] if ids else uuid.UUID(int=self.random.getrandbits(127)))
        self.logs[topic, index] = log
        self.store.create_partition(topic, log.topic_id, index, self.configs[topic], self.now)

    def alter(self):
        if self.logs:
            topic, _ = self.random.choice(sorted(self.logs))
            self.choose(topic)
            self.store.set_config(topic, self.configs[topic])

    def append(self):
        if self.logs:
            _, log, partition = self.some()
            for _ in range(self.random.choice([1, 1, 3, 8])):
                self.append_to(log, partition)

    def append_to(self, log, partition):
        pick = self.random
        target = partition.config.target_magic
        magic = pick.choice([0, 1, 2, 2])
        times = [self.time(log) for _ in range(pick.choice([1, 1, 2, 5]))]
        values = [pick.randbytes(pick.choice([0, 9, 60, 120])) for _ in times]
        producer = {}
        if magic == target == 2 and pick.random() < 0.5:
            producer = {"producer_id": 1 + log.end % 3, "producer_epoch": 0}
            producer["base_sequence"] = self.sequence(log, partition, producer["producer_id"])
        data = build(
            [Record(i, t, b"k", v, ()) for i, (t, v) in enumerate(zip(times, values, strict=True))],
            magic=magic,
            compression=pick.choice([0, 0, 1, 2, 3, 4 if magic == target == 2 else 0]),
            **producer,
        )
        stamp = max(self.now, self.now if log.last_append is None else log.last_append)
        stamped = partition.config.message_timestamp_type == "LogAppendTime"
        base = log.end
        for time, value in zip(times, values, strict=True):
            kept = stamp if stamped else None if magic == 0 or time == -1 else time
            kept = None if target == 0 else kept
            log.rows.append(Row(kept, value, stamp, producer))
            if kept is not None:
                log.event = max(min(kept, stamp + EVENT_SLACK_MS), log.event or kept)
        version = 9 if magic == 2 else 2
        answer = partition.append(data, now_ms=self.now, produce_version=version)
        assert (answer.base_offset, answer.count) == (base, len(times))
        log.last_append = stamp

    def sequence(self, log, partition, producer_id):
        known = partition.state.read_producers().get(producer_id)
        return 0 if known is None else known.last_sequence + 1

    def time(self, log):
        pick = self.random
        return pick.choice(
            [self.now, self.now, 500_000 + 10 * log.end, -1, -7, self.now - pick.randrange(9000)]
            + [self.now + 10**9] * (pick.random() < 0.1)
        )

    def flush(self):
        if self.logs:
            _, log, partition = self.some()
            flushes = self.random.random() < 0.3
            with self.meanwhile(log, partition):
                end = self.plant.flush(partition) if flushes else self.plant.commit(partition)
            assert end <= log.end
            log.acknowledged = max(log.acknowledged, end)
            if flushes:
                log.covered = max(log.covered, end)

    @contextlib.contextmanager
    def meanwhile(self, log, partition):
        """Append while another thread, as it were, makes the log durable."""
        left = self.random.choice([0, 0, 1, 2])

        def append():
            nonlocal left
            if left and self.random.random() < 0.4 and not partition.state.append_lock._is_owned():
                left -= 1
                self.append_to(log, partition)

        self.disk.before_sync = append
        yield
        self.disk.before_sync = lambda: None

    def checkpoint(self):
        self.plant.checkpoint(self.store)
        for key, log in self.logs.items():
            if self.store.partition(*key) is not None:
                log.acknowledged = log.covered = log.end

    def trim(self):
        if self.logs:
            _, log, partition = self.some()
            offset = self.random.randint(log.start, partition.high_watermark)
            log.highest_start = max(log.highest_start, offset)
            start = partition.retainer.delete_records_before(offset)
            assert start == offset
            log.start = log.trimmed = start

    def retain(self):
        if self.logs:
            _, log, partition = self.some()
            log.highest_start = log.end
            partition.retainer.apply_retention(self.now)
            assert log.start <= partition.log_start_offset <= log.end
            log.start = log.highest_start = partition.log_start_offset

    def delete(self):
        if self.logs:
            topic, _ = self.random.choice(sorted(self.logs))
            keys = [key for key in self.logs if key[0] == topic]
            for key in keys:
                self.logs[key].is_going = True
            self.store.delete_topic(topic)
            for key in keys:
                del self.logs[key]

    def stop(self):
        opened = {(partition.topic, partition.index) for partition in self.store.opened()}
        self.store.close()
        for key in opened:
            self.logs[key].acknowledged = self.logs[key].covered = self.logs[key].end
        self.boot += self.random.random() < 0.3
        self.start()

    def kill(self):
        self.store._release()
        self.start()

    def start(self):
        self.open()
        if self.random.random() < 0.5:
            self.agree(self.store.partitions(), killed=True)

    # --- the power goes --------------------------------------------------------------------------

    def live(self):
        while self.losses < LOSSES_OF_A_LIFE:
            disk = self.disk
            disk.failing_call_counts = self.random.random() < 0.5
            if self.random.random() < 0.7:
                disk.fails_at = disk.calls + self.random.randint(1, 400)
            with contextlib.suppress(PowerLoss):
                for _ in range(self.random.randint(3, 60)):
                    self.step()
            self.lose()
        self.store._release()

    def lose(self):
        """Lose the power, and now and then once more while the store opens."""
        while True:
            self.store._release()
            self.disk.check()
            self.number += 1
            self.losses += 1
            self.boot += 1
            self.said.append(self.disk.lose_power(self.path / str(self.number), self.random))
            shutil.rmtree(self.disk.root)
            self.use_disk()
            if self.random.random() < 0.3:
                self.disk.failing_call_counts = self.random.random() < 0.5
                self.disk.fails_at = self.random.randint(1, 40)
            with contextlib.suppress(PowerLoss):
                self.open()
                self.disk.fails_at = None
                break
        self.agree(self.store.partitions(), killed=False)

    # --- what has to be --------------------------------------------------------------------------

    def agree(self, partitions, *, killed):
        found = {(partition.topic, partition.index): partition for partition in partitions}
        assert set(found) <= set(self.logs), "a deleted topic is back"
        for key, log in list(self.logs.items()):
            partition = found.get(key)
            if partition is None:
                has_to_be_there = killed or log.is_promised
                assert not has_to_be_there, f"{key} is gone"
                del self.logs[key]
                continue
            if partition.topic_id is None and not log.is_promised and not killed:
                log.topic_id = None
            assert partition.topic_id == log.topic_id
            if killed:
                assert partition.log_end_offset == log.end
            agree(partition, log, killed=killed)


def end_of_promised_times(partition, log):
    """Return the offset before which no append time may be lost: in flush mode a commit is enough."""
    return log.acknowledged if partition.has_flush_rules else log.covered


def agree(partition, log, *, killed):
    """Compare a partition with what is known of its log, and know from then on what is there."""
    start, end = partition.log_start_offset, partition.log_end_offset
    assert log.acknowledged <= end <= log.end, (log.acknowledged, end, log.end)
    assert log.trimmed <= start, (log.trimmed, start)
    assert min(log.start, end) <= start, (log.start, start, end)
    if killed or log.is_promised:  # else the names of its first segments may be gone
        assert start <= log.highest_start, (start, log.highest_start)
    found = contents(partition)
    holes = set(range(start, end)) - {offset for offset, _, _ in found}
    if killed or log.is_promised:  # else the names of segments may be gone
        assert holes <= log.holes
    rows = {offset: log.rows[offset] for offset, _, _ in found}
    assert found == [(o, r.time, r.value) for o, r in rows.items()]
    for offset, row in rows.items():
        time = partition.reader.append_time_of(offset)
        is_promised = killed or offset < end_of_promised_times(partition, log)
        promised = [row.append] if is_promised else [row.append, None]
        assert time in promised, (offset, time, row.append, log.acknowledged)
        row.append = time
    if not (killed or log.is_promised):
        for row in log.rows[:start]:  # may have gone with its segment's name
            row.append = None
    agree_on_last_append(partition, log, rows)
    agree_on_lookups(partition, rows, end)
    agree_on_what_is_kept(partition, log, rows)
    del log.rows[end:]
    log.holes = holes
    log.start = log.highest_start = start
    log.is_going = False
    log.last_append = partition.last_append_time


def agree_on_last_append(partition, log, rows):
    known = [row.append for row in log.rows[: log.acknowledged] if row.append is not None]
    known += [row.append for row in rows.values() if row.append is not None]
    last = partition.last_append_time
    assert not known or last >= max(known), (last, max(known))


def agree_on_lookups(partition, rows, end):
    timed = [(o, row.time) for o, row in rows.items() if row.time is not None]
    wanted = {
        -(2**63),
        -8,
        0,
        500_000,
        *(t + d for _, t in timed[:: 1 + len(timed) // 12] for d in (0, 1)),
    }
    for time in wanted - {-1}:
        expected = next(((o, t) for o, t in timed if t >= time), None)
        assert partition.reader.find_by_time(time, upper_offset=end) == expected, time
    largest = max(((t, -o) for o, t in timed), default=None)
    expected = None if largest is None else (-largest[1], largest[0])
    assert partition.reader.find_largest_time(upper_offset=end) == expected


def agree_on_what_is_kept(partition, log, rows):
    """`partition.times`, the largest event time and the producers claim nothing that is not so."""
    for segment in partition.segments:
        here = [log.rows[offset] for offset in offsets_in(segment)]
        times = [row.time for row in here if row.time is not None]
        assert segment.times.largest == max(times, default=None)
        assert segment.times.has_missing == (len(times) < len(here))
    # Where nobody knows when it was appended, an event counts as what it says.
    first = partition.segments[0].base_offset
    below = log.rows[first : partition.log_start_offset]
    unlimited = [row.time for row in rows.values() if row.append is None and row.time is not None]
    unlimited += [row.time for row in below if row.time is not None]
    log.event = max([*unlimited, *([] if log.event is None else [log.event])], default=None)
    if partition.max_event_time is not None:
        assert partition.max_event_time <= log.event
    kept = partition_times.read(partition.directory)
    assert kept is not None
    assert kept.covered_offset <= partition.log_end_offset
    assert kept.log_start_offset <= partition.log_start_offset
    for producer_id in (1, 2, 3):
        offsets = [
            offset
            for offset in range(after_holes(partition), partition.log_end_offset)
            if log.rows[offset].producer.get("producer_id") == producer_id
        ]
        if offsets:
            base = log.rows[offsets[-1]].producer["base_sequence"]
            same = [o for o in offsets if log.rows[o].producer is log.rows[offsets[-1]].producer]
            known = partition.state.read_producers().get(producer_id)
            assert known is not None
            assert known.last_sequence == base + len(same) - 1


def after_holes(partition):
    """Where the log begins that has no hole: of deleted segments any may be back."""
    first = partition.segments[0].base_offset
    for segment in partition.segments:
        end = segment.tail.end_offset
        if segment.tail.size and [end - 1] != offsets_in(segment)[-1:]:
            first = end
    return first


def offsets_in(segment):
    return [r.offset for found in segment.walk() for r in records(found.buffer, found.batch)]


def contents(partition):
    found, offset = [], partition.log_start_offset
    while offset < partition.log_end_offset:
        end = partition.log_end_offset
        fetched = partition.read(offset, 4096, upper_offset=end, minimum_one=True)
        assert fetched.size, offset
        for record in (r for data in fetched.buffers for r in records(data)):
            if record.offset >= offset:
                offset = record.offset
                time = None if record.timestamp == -1 else record.timestamp
                found.append((offset, time, record.value))
                offset += 1
    return found


# --- planted bugs --------------------------------------------------------------------------------


class Plant:
    """No bug."""

    def skips(self, path):
        return False

    def flush(self, partition):
        return partition.flush()

    def commit(self, partition):
        return partition.commit()

    def checkpoint(self, store):
        store.checkpoint()


class LogNotSynced(Plant):
    def skips(self, path):
        return path.suffix == ".log"


class AppendTimesNotSynced(Plant):
    def skips(self, path):
        return path.suffix == ".appendtimes"


class NamesNotSynced(Plant):
    """Not after a roll, nor ever: a partition's directory."""

    def skips(self, path):
        return path.is_dir() and path.name[-2:] in {"-0", "-1"}


class AcknowledgedBeforeTheSync(Plant):
    def flush(self, partition):
        """Acknowledge what came while the disk was busy as well."""
        partition.flush()
        return partition.log_end_offset


class CheckpointBeforeTheSync(Plant):
    def checkpoint(self, store):
        for partition in store.opened():
            partition.state.recovery_point = partition.log_end_offset
        store._write_checkpoints()


class RecoveryPointAhead(Plant):
    def flush(self, partition):
        """Take what was appended meanwhile for durable: the next flush passes it by."""
        end = partition.flush()
        partition.state.recovery_point = partition.log_end_offset
        return end


BUGS = [
    LogNotSynced,
    AppendTimesNotSynced,
    NamesNotSynced,
    AcknowledgedBeforeTheSync,
    CheckpointBeforeTheSync,
    RecoveryPointAhead,
]


# --- the tests -----------------------------------------------------------------------------------


def survive(path, seed, plant):
    """Live one life; return how many losses it had."""
    life = None
    before = files.use(files.System())
    path.mkdir()
    try:
        life = Life(path, seed, plant)
        life.live()
    except Exception as error:
        said = "" if life is None else f", loss {life.losses}: {life.said[-1:]}"
        raise AssertionError(f"TIDELOG_POWER_SEED={seed}{said}: {error!r}") from error
    finally:
        if life is not None and life.store is not None:
            life.store._release()
        files.use(before)
        shutil.rmtree(path)
    return life.losses


@pytest.mark.timeout(3600)
def test_what_was_acknowledged_outlives_power_losses(tmp_path):
    losses, seed = 0, FIRST
    while losses < LOSSES:
        losses += survive(tmp_path / "life", seed, Plant())
        seed += 1


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(tmp_path, bug):
    for seed in range(MOST_LIVES_FOR_A_BUG):
        with contextlib.suppress(AssertionError):
            survive(tmp_path / "life", seed, bug())
            continue
        return
    pytest.fail(f"{bug.__name__} was not caught")
