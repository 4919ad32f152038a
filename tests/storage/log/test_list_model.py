"""Whatever is done to a log, it answers as a plain list of records would."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.storage.conftest import TOPIC_ID
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build, records
from tidelog.storage.directory.store import LogStore

FORMATS = {0: "0.9.0", 1: "0.10.0", 2: "3.0"}
TIMES = st.sampled_from([-1, -1, -5000, -7, -2, 0, 1, 3, 50, 51, 1000, 5000, 2**62])
SEGMENTS = {"segment_bytes": 600, "index_interval_bytes": 120, "segment_index_bytes": 32}


class LogMachine(RuleBasedStateMachine):
    """A log beside a list of (offset, time, value, append time)."""

    def __init__(self):
        super().__init__()
        self.path = Path(tempfile.mkdtemp())
        self.model = []
        self.now, self.last_append_time = 1000, -(2**63)
        self.format, self.log_append_time = 2, False
        self.sequence = 0
        self.store = None

    def config(self):
        kind = "LogAppendTime" if self.log_append_time else "CreateTime"
        version = FORMATS[self.format]
        return TopicConfig(message_timestamp_type=kind, message_format_version=version, **SEGMENTS)

    @initialize()
    def create(self):
        self.start()
        self.partition = self.store.create_partition("t", TOPIC_ID, 0, self.config(), self.now)

    def start(self):
        self.store = LogStore([self.path], default_config=self.config())
        self.store.open(self.now)

    def teardown(self):
        if self.store is not None:
            self.store._release()
        shutil.rmtree(self.path)

    @property
    def end(self):
        return len(self.model)

    @rule(
        times=st.lists(TIMES, min_size=1, max_size=4),
        magic=st.sampled_from([0, 1, 2]),
        codec=st.sampled_from([0, 0, 1]),
        step=st.sampled_from([0, 0, 1, 1000, -500]),
    )
    def append(self, times, magic, codec, step):
        self.now += step
        sent = [Record(i, t, b"k", b"%d.%d" % (self.end, i), ()) for i, t in enumerate(times)]
        self.store_records(
            sent, build(sent, magic=magic, compression=codec), 9 if magic == 2 else 2, magic
        )

    @rule(count=st.integers(1, 3), again=st.booleans())
    def append_idempotent(self, count, again):
        if self.format != 2:
            return
        sent = [Record(i, 7, b"k", b"%d.%d" % (self.end, i), ()) for i in range(count)]
        data = build(sent, producer_id=3, producer_epoch=0, base_sequence=self.sequence)
        base = self.end
        first = self.store_records(sent, data, 9, 2)
        self.sequence += count
        if again:
            repeated = self.partition.append(data, now_ms=self.now + 99, produce_version=9)
            assert repeated.duplicate
            assert repeated[:3] == first[:3]
            assert repeated.base_offset == base

    def store_records(self, sent, data, version, magic):
        stored = self.partition.append(data, now_ms=self.now, produce_version=version)
        self.last_append_time = max(self.last_append_time, self.now)
        assert (stored.base_offset, stored.count) == (self.end, len(sent))
        stamp = self.last_append_time
        assert stored.log_append_time_ms == (stamp if self.log_append_time else -1)
        for record in sent:
            time = -1 if magic == 0 else record.timestamp
            if self.log_append_time:
                time = stamp
            if self.format == 0:
                time = -1
            self.model.append((self.end, time, record.value, stamp))
        return stored

    @rule(magic=st.sampled_from([0, 1, 2]), log_append_time=st.booleans())
    def alter(self, magic, log_append_time):
        self.format, self.log_append_time = magic, log_append_time
        self.store.set_config("t", self.config())

    @rule()
    def checkpoint(self):
        self.store.checkpoint()

    @rule(clean=st.booleans())
    def restart(self, clean):
        if clean:
            self.store.close()
        else:
            self.store._release()
        self.start()
        self.partition = self.store.partition("t", 0)
        known = self.partition.last_append_time
        assert known == (self.last_append_time if self.model else None)

    @rule(data=st.data(), max_bytes=st.sampled_from([1, 50, 200, 700, 10_000]))
    def read(self, data, max_bytes):
        offset = data.draw(st.integers(0, self.end))
        # An upper offset is where an append ended, as a high watermark is.
        ends = [0] + [o + 1 for o, *_ in self.model if self.ends_append(o)]
        upper = data.draw(st.sampled_from(ends))
        fetched = self.partition.read(offset, max_bytes, upper_offset=upper, minimum_one=True)
        found = [
            (r.offset, r.timestamp, r.value)
            for r in records(b"".join(fetched.buffers))
            if r.offset >= offset
        ]
        assert found == [row[:3] for row in self.model[offset : offset + len(found)]]
        assert all(row[0] < upper for row in found)
        assert bool(found) == (offset < upper)

    def ends_append(self, offset):
        return offset + 1 == self.end or self.model[offset + 1][2].endswith(b".0")

    @rule(wanted=st.one_of(TIMES, st.integers(-6000, 6000)), cut=st.integers(0, 3))
    def lookup(self, wanted, cut):
        upper = max(self.end - cut, 0)
        rows = [row for row in self.model[:upper] if row[1] != -1]
        expected = next(((o, t) for o, t, *_ in rows if t >= wanted), None)
        assert self.partition.reader.find_by_time(wanted, upper_offset=upper) == expected
        largest = max(((t, -o) for o, t, *_ in rows), default=None)
        expected = None if largest is None else (-largest[1], largest[0])
        assert self.partition.reader.find_largest_time(upper_offset=upper) == expected

    @invariant()
    def ends_agree(self):
        if self.store is not None:
            assert self.partition.log_end_offset == self.end

    @rule()
    def append_times(self):
        for offset, *_, time in self.model[-20:]:
            assert self.partition.reader.append_time_of(offset) == time

    @rule()
    def everything(self):
        fetched = self.partition.read(0, 1 << 24, upper_offset=self.end, minimum_one=True)
        found = [(r.offset, r.timestamp, r.value) for r in records(b"".join(fetched.buffers))]
        assert found == [row[:3] for row in self.model]


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
