"""Append times from a running broker: record by record those its directory has; nothing is guessed."""

import random
import struct
import time

import numpy as np
import pytest

from tests.pipeline.logs import seen_in, truth
from tidelog.client import Client, apis
from tidelog.client.apis import FETCH
from tidelog.pipeline import cli
from tidelog.pipeline.errors import OK
from tidelog.pipeline.source import fetching
from tidelog.pipeline.source.access import plan, read
from tidelog.pipeline.source.append_times import UNKNOWN, AppendTimesAnswer, FetchedTimes
from tidelog.pipeline.source.levels import BATCH, DEPTHS, RECORD, TIME, rows
from tidelog.pipeline.source.reading import ReadOptions
from tidelog.pipeline.source.splits import LOG_END, Selection
from tidelog.process import BrokerProcess
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.segment.appended.layout import END

NOW = 1_767_225_600_000


def entries(*pairs):
    return b"".join(struct.pack(">qi", when, offset) for offset, when in pairs)


def at(told, *offsets):
    found = told.at(np.array(offsets, np.int64)).tolist()
    return [None if one == UNKNOWN else one for one in found]


class TestTold:
    def test_an_entry_holds_up_to_the_next(self):
        answer = AppendTimesAnswer(103, 112, ((100, entries((2, 7), (5, 8), (9, 8), (11, 10))),))
        assert at(FetchedTimes((answer,)), *range(103, 112)) == [7, 7, 8, 8, 8, 8, 8, 8, 10]

    def test_before_the_first_entry_and_the_answer_nothing_is_known(self):
        told = FetchedTimes((AppendTimesAnswer(103, 112, ((100, entries((5, 8))),)),))
        assert at(told, 0, 102, 103, 104, 105) == [None, None, None, None, 8]
        assert at(FetchedTimes(), 0, 1) == [None, None]
        assert at(FetchedTimes((AppendTimesAnswer(0, 9, ()),)), 0, 8) == [None, None]

    def test_an_unknown_time_ends_a_known_one(self):
        told = FetchedTimes(
            (AppendTimesAnswer(0, 9, ((0, entries((0, 7), (3, UNKNOWN), (6, 9))),)),)
        )
        assert at(told, *range(9)) == [7, 7, 7, None, None, None, 9, 9, 9]

    def test_a_segment_that_knows_nothing_ends_the_one_before(self):
        told = FetchedTimes(
            (AppendTimesAnswer(0, 40, ((0, entries((0, 7))), (20, b""), (30, entries((0, 9))))),)
        )
        assert at(told, 0, 19, 20, 29, 30, 39) == [7, 7, None, None, 9, 9]

    def test_answers_follow_one_another(self):
        first = AppendTimesAnswer(0, 10, ((0, entries((0, 7), (8, 9))),))
        silent = AppendTimesAnswer(10, 20, ())
        third = AppendTimesAnswer(20, 30, ((0, entries((8, 9), (25, 11))),))
        told = FetchedTimes().with_answer(first).with_answer(silent).with_answer(third)
        offsets = (0, 8, 9, 10, 19, 20, 24, 25, 29)
        assert at(told, *offsets) == [7, 9, 9, None, None, 9, 9, 11, 11]
        assert at(told.of_last_answer(), *offsets) == [None] * 5 + [9, 9, 11, 11]

    def test_an_answer_tells_of_what_it_has_alone(self):
        first = AppendTimesAnswer(4, 10, ((0, entries((0, 6), (2, 7), (50, 9))),))
        told = FetchedTimes((first, AppendTimesAnswer(10, 20, ())))
        assert at(told, 3, 4, 9, 10, 19, 50, 60) == [None, 7, 7, None, None, None, None]

    @pytest.mark.parametrize(
        "bad",
        [(4, 6), (3, 9), (2, 9), (5, END), (-1, 9)],
        ids=["back", "same", "less", "end", "-1"],
    )
    def test_behind_an_entry_that_cannot_be_nothing_is_known(self, bad):
        data = entries((0, 7), (3, 8), bad, (7, 10))
        told = FetchedTimes((AppendTimesAnswer(0, 20, ((0, data), (12, entries((0, 11))))),))
        assert at(told, 0, 2, 3, 4, 7, 11, 12, 19) == [7, 7, 8, None, None, None, 11, 11]

    def test_half_an_entry_is_none(self):
        told = FetchedTimes((AppendTimesAnswer(0, 20, ((0, entries((0, 7), (3, 8))[:-1]),)),))
        assert at(told, 0, 3) == [7, 7]


# --- from a broker -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A broker with a manual clock."""
    directory = tmp_path_factory.mktemp("told") / "data"
    with BrokerProcess(directory, {"log.retention.ms": -1}, clock="manual") as broker:
        broker.clock.freeze(NOW)
        yield broker


def fill(house, topic, count=60, *, first=0, settings=None, keys=10**9):
    """A topic of many segments: batches of all codecs, some in the same millisecond."""
    rng = random.Random(first)
    with Client(house.bootstrap, timeout_s=20) as client:
        if topic not in client.topics():
            made = {"segment.bytes": "3000", "index.interval.bytes": "400", **(settings or {})}
            client.create_topic(topic, 1, made)
        for number in range(first, first + count):
            house.clock.step(rng.choice([0, 0, 1, 5000]))
            when = rng.choice([-1, -5, NOW, house.clock.now_ms()])
            records = [
                Record(i, when, b"k%d" % (number % keys), b"v%d" % number * rng.randrange(30))
                for i in range(rng.choice([1, 1, 4]))
            ]
            data = build(records, compression=rng.choice([0, 0, 1, 3]))
            client.produce(topic, 0, data)


def from_broker(house, topic, options=None, **selected):
    found = []
    for split in plan(Selection(topics=(topic,), **selected), brokers=house.bootstrap):
        for columns in read(split, options or ReadOptions()):
            found += seen_in(columns)
    return found


def check(house, topic, **options):
    """Broker and directory say the same; returns the records."""
    seen = truth(house.log_dir / f"{topic}-0")
    assert from_broker(house, topic, ReadOptions(**options)) == seen
    from_files = []
    selection = Selection(topics=(topic,), upto=LOG_END)
    for split in plan(selection, logs=[str(house.log_dir)]):
        for columns in read(split, ReadOptions(**options)):
            from_files += seen_in(columns)
    assert from_files == seen
    return seen


@pytest.mark.parametrize("fetch_bytes", [1, 700, 5000, 8 << 20])
@pytest.mark.parametrize("batch_bytes", [1, 2000, 16 << 20])
def test_every_record_of_many_segments(house, topic, monkeypatch, fetch_bytes, batch_bytes):
    monkeypatch.setattr(fetching, "FETCH_BYTES", fetch_bytes)
    fill(house, topic)
    seen = check(house, topic, batch_bytes=batch_bytes)
    assert len(list((house.log_dir / f"{topic}-0").glob("*.log"))) > 3
    assert len({one.append_time for one in seen}) > 20
    assert all(one.append_time is not None for one in seen)
    everything = from_broker(house, topic, split_offsets=3)
    assert everything == seen


@pytest.mark.parametrize("version", ["0.9.0", "0.10.0"])
def test_formats_0_and_1(house, topic, version):
    fill(house, topic, settings={"message.format.version": version})
    seen = check(house, topic)
    assert {one.time_type for one in seen} == {-1 if version == "0.9.0" else 0}
    assert all(one.append_time is not None for one in seen)


def test_stamped_topics(house, topic):
    fill(house, topic, settings={"message.timestamp.type": "LogAppendTime"})
    for one in check(house, topic):
        assert one.append_time == one.timestamp


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_after_a_restart(house, topic, how):
    fill(house, topic)
    before = check(house, topic)
    getattr(house, how)()
    house.restart()
    assert from_broker(house, topic) == before
    fill(house, topic, 20, first=60)
    assert from_broker(house, topic)[: len(before)] == before


def test_what_compaction_left(house, topic):
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
    fill(house, topic, settings=settings, keys=5)
    before = {one.offset: one for one in check(house, topic)}
    assert house.compact(topic)
    left = from_broker(house, topic)
    assert 0 < len(left) < len(before) - 10
    assert left == [before[one.offset] for one in left]
    check(house, topic)


def test_append_times_that_nobody_knows(house, topic):
    fill(house, topic)
    house.kill()
    directory = house.log_dir / f"{topic}-0"
    for path in (*directory.glob("*.appendtimes"), directory / "partition.times"):
        path.unlink()
    house.restart()
    known = len(from_broker(house, topic))
    fill(house, topic, 20, first=60)
    seen = check(house, topic)
    unknown = [one for one in seen if one.append_time is None]
    assert unknown == seen[:known]
    assert len(seen) > known


def test_a_broker_of_v11_tells_nothing(house, topic, monkeypatch):
    """As one that does not know the question: the newest version both speak has no place for it."""
    fill(house, topic)
    expected = [one._replace(append_time=None) for one in from_broker(house, topic)]
    spoken = {**apis.SPOKEN, FETCH: (4, 11)}
    monkeypatch.setattr(apis, "SPOKEN", spoken)
    assert from_broker(house, topic) == expected


def test_who_does_not_ask_is_not_told(house, topic):
    fill(house, topic, 3)
    with Client(house.bootstrap) as client:
        plain = client.fetch(topic, 0, 0)
        told = client.fetch(topic, 0, 0, with_append_times=True)
    assert plain.append_times == ()
    assert [base for base, _ in told.append_times] == [0]
    assert bytes(told.records) == bytes(plain.records)


@pytest.mark.parametrize("level", [RECORD, TIME, BATCH])
def test_levels(house, topic, level):
    fill(house, topic)
    selection = Selection(topics=(topic,), upto=LOG_END)
    tables = []
    for where in ({"brokers": house.bootstrap}, {"logs": [str(house.log_dir)]}):
        chosen = selection if "logs" in where else Selection(topics=(topic,))
        columns = [
            batch.column("append_time_ms").to_pylist()
            for split in plan(chosen, **where)
            for batch in rows(split, level, ReadOptions(depth=DEPTHS[level]))
        ]
        tables.append([each for column in columns for each in column])
    assert tables[0] == tables[1]
    assert len(tables[0]) >= 60
    assert None not in tables[0]


def test_a_split_that_begins_within_a_batch(house, topic):
    with Client(house.bootstrap) as client:
        client.create_topic(topic, 1)
        for _ in range(3):
            house.clock.step(7)
            client.produce(topic, 0, build([Record(i, NOW, None, b"v") for i in range(4)]))
    end = house.clock.now_ms()
    found = from_broker(house, topic, offsets={(topic, 0): (6, 10)})
    assert [(one.offset, one.append_time) for one in found] == [
        *((offset, end - 7) for offset in (6, 7)),
        *((offset, end) for offset in (8, 9)),
    ]


def test_an_archive_of_a_running_broker_has_them(house, topic, tmp_path):
    pytest.importorskip("pyarrow.parquet")
    from tests.pipeline.archive.archives import contents

    fill(house, topic)
    given = ["archive", "--brokers", house.bootstrap, "--topics", topic, "--run", "r"]
    given += ["--to", str(tmp_path / "archive"), "--out", str(tmp_path / "out")]
    assert cli.main([*given, "--master", "inline"]) == OK
    assert contents(tmp_path) == {(topic, 0): check(house, topic)}


@pytest.mark.oracle
def test_apache_kafka_passes_over_the_question(kafka, topic):
    with Client(kafka.bootstrap) as client:
        client.create_topic(topic, 1)
        for _ in range(3):
            client.produce(topic, 0, build([Record(0, int(time.time() * 1000), None, b"v")]))
        asked = client.fetch(topic, 0, 0, with_append_times=True)
        plain = client.fetch(topic, 0, 0)
        assert client.leader(topic, 0).version(FETCH) >= 12
    assert asked.append_times == ()
    assert bytes(asked.records) == bytes(plain.records)
    assert asked._replace(records=None) == plain._replace(records=None)
    assert [one.append_time for one in from_broker(kafka, topic)] == [None] * 3
