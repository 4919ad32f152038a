"""A log on disk that tests append to, crash, reopen and read back."""

from __future__ import annotations

import shutil
import uuid

import pytest

from tests.simulation.disks import Disk, Unsynced
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build, records
from tidelog.storage import files
from tidelog.storage.directory.store import LogStore

TOPIC_ID = uuid.UUID(int=7)


@pytest.fixture(autouse=True)
def unsynced():
    """No test here cuts the machine's power, so none waits for the disk."""
    before = files.use(Unsynced())
    yield
    files.use(before)


def kill(store):
    """Stop as kill -9 stops: what was written stays, nothing else is done.

    No broker stops in this way, so the product has no public name for it.
    """
    store._release()


def entries_of(index):
    """Every entry of an offset index: (offset, position)."""
    found, entry = [], index.first()
    while entry is not None:
        found.append(entry)
        entry = index.after(entry.offset + 1)
    return found


def read_max_event_time(partition):
    """The largest event time ever; retention keeps what is known, and here the rest is read."""
    with partition.state.hold() as version:
        for segment in version.segments:
            segment.known.learn()
    return partition.max_event_time


def records_of(partition, max_bytes=4096):
    """Every record of a partition, read as a consumer would read it."""
    found, offset, end = [], partition.log_start_offset, partition.log_end_offset
    while offset < end:
        fetched = partition.read(offset, max_bytes, upper_offset=end, minimum_one=True)
        assert fetched.size, f"nothing at {offset}"
        for record in (each for data in fetched.buffers for each in records(data)):
            if record.offset >= offset:
                found.append(record)
                offset = record.offset + 1
    return found


class Log:
    """One partition of one topic in a log directory of its own."""

    def __init__(self, path, **settings):
        self.path = path
        self.directory = path / "t-0"
        self.config = TopicConfig(**settings)
        self.store = None
        self.partition = None
        self.now = 0  # the last time at which something was appended

    def create(self, now=0):
        self.store = LogStore([self.path], default_config=self.config)
        self.store.open(now)
        self.partition = self.store.create_partition("t", TOPIC_ID, 0, self.config, now)
        return self

    def open(self, now=None, boot_id="", *, is_only_replica=False):
        """Open it, at the time of the last append unless it is given."""
        self.store = LogStore([self.path], default_config=self.config, boot_id=boot_id)
        if is_only_replica:
            self.store.count_as_only_replicas()
        self.store.open(self.now if now is None else now)
        self.partition = self.store.partition("t", 0)
        return self

    def close(self):
        self.store.close()
        self.store = self.partition = None

    def crash(self):
        kill(self.store)
        self.store = self.partition = None

    def copy_to(self, path):
        """Copy the directory as a crash would leave it now."""
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.path, path)
        copy = Log(path)
        copy.config, copy.now = self.config, self.now
        return copy

    def append(
        self, times, *, now=0, values=None, version=None, headers=(), may_block=True, **batch
    ):
        """Produce records with these times; -1 is none."""
        magic = batch.get("magic", 2)
        if version is None:
            version = 9 if magic == 2 else 2
        self.now = max(self.now, now)
        values = [b"v%d" % i for i in range(len(times))] if values is None else values
        data = build(
            [
                Record(i, t, b"k", v, headers)
                for i, (t, v) in enumerate(zip(times, values, strict=True))
            ],
            **batch,
        )
        return self.partition.append(data, now_ms=now, produce_version=version, may_block=may_block)

    def read(self, offset=None, max_bytes=1 << 20, upper=None, minimum_one=True):
        partition = self.partition
        return partition.read(
            partition.log_start_offset if offset is None else offset,
            max_bytes,
            upper_offset=partition.log_end_offset if upper is None else upper,
            minimum_one=minimum_one,
        )

    def contents(self):
        """Read everything as a consumer would: (offset, time, value)."""
        found = records_of(self.partition)
        first = self.partition.log_start_offset
        offsets = [record.offset for record in found]
        assert offsets == list(range(first, first + len(found))), "a gap, or a record twice"
        return [(record.offset, record.timestamp, record.value) for record in found]

    def index_entries(self):
        """Every index entry of every segment: (base, offset, position)."""
        entries = []
        for segment in self.partition.segments:
            entries += [(segment.base_offset, *entry) for entry in entries_of(segment.index)]
        return entries


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    """No test here cuts the power, and hundreds of fsyncs cost a minute."""
    monkeypatch.setattr("tidelog.storage.files.os.fsync", lambda _: None)
    monkeypatch.setattr("tidelog.storage.files.os.fdatasync", lambda _: None)


@pytest.fixture
def use():
    """Let another system be used until the test has ended."""
    before = files.use(files.System())
    yield files.use
    files.use(before)


@pytest.fixture
def disk(use):
    """A disk whose syncs can be held up and refused, and that may be full."""
    disk = Disk()
    use(disk)
    yield disk
    disk.may_sync.set()


class OnlyWhatIsDurable:
    """Chooses that a power loss takes all that was not synced."""

    def choice(self, choices):
        return choices[0]

    def random(self):
        return 1.0


@pytest.fixture
def make_log(tmp_path):
    """Make logs; those still open at the end are dropped."""
    made = []

    def make(name="log", **settings):
        log = Log(tmp_path / name, **settings)
        made.append(log)
        return log

    yield make
    for log in made:
        if log.store is not None:
            log.crash()


@pytest.fixture
def log(make_log):
    return make_log().create()
