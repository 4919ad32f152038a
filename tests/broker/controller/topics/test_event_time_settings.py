"""Event-time retention as a setting: what it brings along, for good, and what a change says first."""

import json
import logging

import pytest

from tests.broker import asking
from tests.broker.logs.test_interrupted_changes import Broker as Topics
from tidelog.broker.logs.maintenance.retention_rounds import delete_due
from tidelog.config import topic_entries
from tidelog.config.describe import ConfigSource
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.log.times import partition_times

EVENT, BASIS, GRACE = (
    "retention.max.eventtime.ms",
    "retention.time.basis",
    "retention.max.eventtime.grace.ms",
)
IMPLIED = "retention.time.basis.implied"
DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


class Broker(Topics):
    """A broker without sockets, and one topic."""

    def __init__(self, directory, **settings):
        super().__init__(directory, now_ms=NOW_MS, **settings)

    async def __aenter__(self):
        await super().__aenter__()
        self.node.ready = True
        return self

    async def create(self, **settings):
        return await self.node.topics.create("t", partitions=1, configs=dotted(settings))

    async def alter(self, validate_only=False, **settings):
        await self.node.topics.alter("t", dotted(settings), validate_only=validate_only)

    async def alter_broker(self, **settings):
        await self.node.topics.alter_broker(dotted(settings), validate_only=False)

    @property
    def own(self):
        """The topic's own settings."""
        return dict(self.metadata.image.topics["t"].configs)

    def described(self, name):
        """What DescribeConfigs says of a setting of the topic: value and source."""
        config = self.node.settings.of_topic("t", self.own)
        entries = {e.name: e for e in topic_entries(self.node.config, config, self.own)}
        return entries[name].value, entries[name].source

    @property
    def in_force(self):
        return self.store.partition("t", 0).config.retention_time_basis

    def fill(self, times):
        """One record in a segment of its own for each time."""
        for time in times:
            data = build([Record(0, time, b"k", b"v" * 30, ())])
            self.store.partition("t", 0).append(data, now_ms=self.clock.now_ms(), produce_version=9)


def dotted(settings):
    return {name.replace("_", "."): value for name, value in settings.items()}


ON = {"retention_max_eventtime_ms": "1000"}
LOG_ON = {"log.retention.max.eventtime.ms": "1000"}


async def test_setting_it_at_creation_brings_the_basis_along_visibly(tmp_path):
    async with Broker(tmp_path) as broker:
        topic = await broker.create(**ON)
        assert dict(topic.configs) == {EVENT: "1000", IMPLIED: "append"}
        assert broker.described(BASIS) == ("append", ConfigSource.TOPIC)
        assert broker.described(GRACE) == ("3600000", ConfigSource.DEFAULT)
        assert broker.in_force == "append"


async def test_only_asking_at_creation_tells_and_makes_nothing(tmp_path):
    async with Broker(tmp_path) as broker:
        asked = await broker.node.topics.create(
            "t", partitions=1, configs={EVENT: "5"}, validate_only=True
        )
        assert dict(asked.configs) == {EVENT: "5", IMPLIED: "append"}
        assert "t" not in broker.metadata.image.topics


@pytest.mark.parametrize("basis", ["record", "append"])
async def test_a_basis_that_is_given_stays(tmp_path, basis):
    async with Broker(tmp_path) as broker:
        await broker.create(retention_time_basis=basis, **ON)
        assert broker.own[BASIS] == broker.in_force == basis
        await broker.alter(retention_max_eventtime_ms="5")
        assert broker.own[BASIS] == broker.in_force == basis


@pytest.mark.parametrize("value", ["-1", None])
async def test_off_brings_nothing_along(tmp_path, value):
    async with Broker(tmp_path) as broker:
        await broker.create(**({} if value is None else {"retention_max_eventtime_ms": value}))
        assert BASIS not in broker.own
        assert broker.described(BASIS) == ("record", ConfigSource.DEFAULT)


@pytest.mark.parametrize("off", [None, "-1"])
async def test_it_stays_for_good(tmp_path, off):
    async with Broker(tmp_path) as broker:
        await broker.create()
        await broker.alter(validate_only=True, **ON)
        assert broker.own == {}
        await broker.alter(**ON)
        assert broker.own == {EVENT: "1000", IMPLIED: "append"}
        assert broker.in_force == "append"
        await broker.alter(retention_max_eventtime_ms=off)
        assert broker.own.get(EVENT) == off
        assert broker.described(BASIS) == ("append", ConfigSource.TOPIC)
    async with Broker(tmp_path) as broker:
        assert broker.described(BASIS) == ("append", ConfigSource.TOPIC)
        assert broker.in_force == "append"
        await broker.alter(retention_time_basis=None)  # who wants it away, without event time, may
        assert broker.described(BASIS) == ("record", ConfigSource.DEFAULT)


async def test_a_basis_taken_away_beside_it_comes_back_as_append(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.create(retention_time_basis="record", **ON)
        await broker.alter(retention_time_basis=None)
        assert broker.described(BASIS) == ("append", ConfigSource.TOPIC)
        await broker.alter(retention_time_basis="record")
        assert broker.own == {EVENT: "1000", BASIS: "record"}


async def test_the_brokers_default_brings_the_brokers_basis_along_for_good(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.create()
        await broker.alter_broker(log_retention_max_eventtime_ms="1000")
        assert dict(broker.metadata.image.broker_configs) == {
            **LOG_ON,
            "log.retention.time.basis.implied": "append",
        }
        assert broker.described(EVENT) == ("1000", ConfigSource.DYNAMIC_BROKER)
        assert broker.described(BASIS) == ("append", ConfigSource.DYNAMIC_BROKER)
        assert broker.in_force == "append"
        await broker.alter_broker(log_retention_max_eventtime_ms=None)
        assert broker.described(EVENT) == ("-1", ConfigSource.DEFAULT)
        assert broker.in_force == "append"


async def test_a_default_from_the_properties_file_protects_beyond_the_file(tmp_path):
    async with Broker(tmp_path, **LOG_ON) as broker:
        await broker.create()
        assert broker.own == {}
        assert broker.described(BASIS) == ("append", ConfigSource.DYNAMIC_BROKER)
    async with Broker(tmp_path) as broker:
        assert broker.described(EVENT) == ("-1", ConfigSource.DEFAULT)
        assert broker.in_force == "append"


async def test_a_basis_in_the_properties_file_is_given(tmp_path):
    async with Broker(tmp_path, **LOG_ON, **{"log.retention.time.basis": "record"}) as broker:
        await broker.create()
        assert broker.described(BASIS) == ("record", ConfigSource.STATIC_BROKER)
        assert dict(broker.metadata.image.broker_configs) == {}
        await broker.alter(**ON)
        assert BASIS not in broker.own


LOG_BASIS = "log.retention.time.basis"
RECORD = ("record", ConfigSource.STATIC_BROKER)


async def test_a_basis_given_at_a_later_start_beats_the_one_that_a_default_implied(tmp_path):
    async with Broker(tmp_path, **LOG_ON) as broker:
        await broker.create()
        assert broker.in_force == "append"
    async with Broker(tmp_path, **{LOG_BASIS: "record"}) as broker:
        assert broker.described(BASIS) == RECORD
        assert broker.in_force == "record"
    async with Broker(tmp_path) as broker:  # taken back: the implied one protects again
        assert broker.described(BASIS) == ("append", ConfigSource.DYNAMIC_BROKER)
        assert broker.in_force == "append"


async def test_a_basis_given_at_a_later_start_beats_the_one_that_a_topic_implied(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.create(**ON)
        await broker.alter(retention_max_eventtime_ms=None)
        assert broker.described(BASIS) == ("append", ConfigSource.TOPIC)
    async with Broker(tmp_path, **{LOG_BASIS: "record"}) as broker:
        assert broker.described(BASIS) == RECORD
        assert broker.in_force == "record"


async def test_a_basis_given_live_beats_an_implied_one_and_is_taken_back(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.create(**ON)
        await broker.alter_broker(log_retention_time_basis="record")
        assert broker.described(BASIS) == ("record", ConfigSource.DYNAMIC_BROKER)
        await broker.alter(retention_time_basis="append")
        await broker.alter(retention_max_eventtime_ms=None)
        assert broker.own == {BASIS: "append"}  # given by somebody, so it wins
        assert broker.described(BASIS) == ("append", ConfigSource.TOPIC)
        await broker.alter(retention_time_basis=None)
        assert broker.described(BASIS) == ("record", ConfigSource.DYNAMIC_BROKER)
        await broker.alter_broker(log_retention_time_basis=None)
        assert broker.described(BASIS) == ("record", ConfigSource.DEFAULT)


async def test_an_implied_basis_of_the_broker_goes_when_one_is_given_or_removed(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.create()
        await broker.alter_broker(log_retention_max_eventtime_ms="1000")
        await broker.alter_broker(log_retention_time_basis="record")
        assert dict(broker.metadata.image.broker_configs) == {**LOG_ON, LOG_BASIS: "record"}
        await broker.alter_broker(log_retention_time_basis=None)
        assert broker.described(BASIS) == ("append", ConfigSource.DYNAMIC_BROKER)
        await broker.alter_broker(log_retention_max_eventtime_ms=None)
        await broker.alter_broker(log_retention_time_basis=None)
        assert dict(broker.metadata.image.broker_configs) == {}


@pytest.mark.slow
def test_explain_says_where_the_basis_comes_from(start):
    broker = start({"clock": "manual"})

    def told():
        return json.loads(broker.page("/v1/topics/t/explain"))["basis_from"]

    with broker.connect() as connection:
        asking.create(connection, "t")
        assert told() == "default"
        for kind, name, setting, value, origin in (
            (asking.BROKER, "1", "log.retention.max.eventtime.ms", "5", "set on the broker"),
            (asking.TOPIC, "t", EVENT, "5", "set on the broker"),
            (asking.BROKER, "1", LOG_BASIS, "record", "changed while running"),
            (asking.TOPIC, "t", BASIS, "append", "topic"),
        ):
            assert asking.alter(connection, kind, name, (setting, 0, value)) == (0, None)
            assert origin in told()
    alone = start({"clock": "manual"})
    with alone.connect() as connection:
        asking.create(connection, "t", **{EVENT: "5"})
        page = json.loads(alone.page("/v1/topics/t/explain?set=retention.ms=5"))
        assert page["basis_from"] == f"kept since {EVENT} was set on the topic"
        assert page["settings"][BASIS] == "append"


SMALL = {"segment_bytes": "110", "retention_ms": "-1"}


def told(caplog):
    keys = ("topic", "segments", "records", "bytes", "policies", "within_ms")
    return [
        {key: getattr(record, key) for key in keys}
        for record in caplog.records
        if record.message == "changed settings will delete segments"
    ]


async def test_a_change_that_will_delete_says_how_much_first(tmp_path, caplog):
    async with Broker(tmp_path) as broker:
        await broker.create(**SMALL)
        broker.fill([NOW_MS - 3 * DAY_MS, NOW_MS - 2 * DAY_MS, NOW_MS - DAY_MS, NOW_MS])
        size = broker.store.partition("t", 0).size
        with caplog.at_level(logging.WARNING):
            await broker.alter(retention_max_eventtime_grace_ms="0")
            await broker.alter(retention_bytes="1000000")
            assert told(caplog) == []
            await broker.alter(retention_max_eventtime_ms=str(DAY_MS))
        assert told(caplog) == [
            {
                "topic": "t",
                "segments": 2,
                "records": 2,
                "bytes": size // 2,
                "policies": [EVENT],
                "within_ms": 300_000,
            }
        ]
        gone = [swept.deletion for swept in delete_due(broker.node).deleted]
        assert [(each.base_offset, each.policy) for each in gone] == [(0, EVENT), (1, EVENT)]


async def test_a_change_of_the_brokers_says_it_of_each_topic(tmp_path, caplog):
    async with Broker(tmp_path) as broker:
        await broker.create(segment_bytes="110")
        kept = {"segment.bytes": "110", "retention.ms": "-1"}
        await broker.node.topics.create("kept", partitions=1, configs=kept)
        broker.fill([NOW_MS - 3 * DAY_MS, NOW_MS - 2 * DAY_MS])
        with caplog.at_level(logging.WARNING):
            await broker.alter_broker(log_retention_ms=str(2 * DAY_MS))
        assert [(line["topic"], line["segments"]) for line in told(caplog)] == [("t", 1)]
        gone = [swept.deletion for swept in delete_due(broker.node).deleted]
        assert [each.base_offset for each in gone] == [0]


async def test_it_is_said_of_partitions_that_are_closed_too(tmp_path, caplog):
    async with Broker(tmp_path) as broker:
        await broker.create(**SMALL)
        broker.fill([NOW_MS - 3 * DAY_MS, NOW_MS])
    async with Broker(tmp_path) as broker:
        assert broker.store.opened() == []
        with caplog.at_level(logging.WARNING):
            await broker.alter(retention_ms=str(9 * DAY_MS))
            assert broker.store.opened() == []
            assert told(caplog) == []
            await broker.alter(retention_ms=str(2 * DAY_MS))
        assert [line["segments"] for line in told(caplog)] == [1]


async def test_a_partition_that_cannot_be_looked_at_hinders_no_change(
    tmp_path, caplog, monkeypatch
):

    async with Broker(tmp_path) as broker:
        await broker.create(**SMALL)
        broker.fill([NOW_MS - 3 * DAY_MS, NOW_MS])

        def fails(*_, **__):
            raise OSError(5, "Input/output error")

        with caplog.at_level(logging.WARNING), monkeypatch.context() as patched:
            patched.setattr("tidelog.storage.log.retention.explanation.explain", fails)
            await broker.alter(retention_ms="1000")
        assert broker.own["retention.ms"] == "1000"
        assert "deletions by changed settings not predicted" in caplog.text


async def test_what_was_counted_is_written_before_the_limit_of_event_times_changes(tmp_path):
    """So a broker that is killed then counts it as before."""
    async with Broker(tmp_path) as broker:
        await broker.create(event_time_ahead_max_ms="500")
        broker.fill([NOW_MS + DAY_MS])
        await broker.alter(event_time_ahead_max_ms=str(DAY_MS))
        partition = broker.store.partition("t", 0)
        assert partition.config.event_time_ahead_max_ms == DAY_MS
        written = partition_times.read(partition.directory)
        assert [line.times.event for line in written.segments] == [NOW_MS + 500]
        assert written.max_event_time == NOW_MS + 500


# --- over the wire -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_backfill_is_kept_for_an_hour_and_then_as_far_as_event_time_says(start):
    broker = start({"clock": "manual", "log.segment.bytes": "300"})
    broker.clock.freeze(NOW_MS)
    with broker.connect() as connection:
        kept, lost = asking.new_name(), asking.new_name()
        asking.create(connection, lost)
        asking.create(connection, kept, **{EVENT: str(2 * DAY_MS)})
        assert asking.own(connection, kept) == {EVENT: str(2 * DAY_MS), BASIS: "append"}
        for day in range(6):
            record = asking.values("x" * 200, timestamp=NOW_MS - 365 * DAY_MS + day * DAY_MS)
            for topic in (kept, lost):
                asking.produce(connection, topic, asking.recordset.batch(record))
        # retention.ms is a week: without event time a backfill of last year is gone at once.
        assert {(each["topic"], each["policy"]) for each in broker.sweep()} == {
            (lost, "retention.ms")
        }
        broker.clock.step("1h")
        assert broker.sweep() == []
        broker.kill()
        broker.restart()
    broker.clock.freeze(NOW_MS + 3_600_001)
    swept = [each for each in broker.sweep() if each["topic"] == kept]
    assert [(each["base_offset"], each["policy"]) for each in swept] == [
        (i, EVENT) for i in range(3)
    ]
    assert {each["max_event_time_ms"] for each in swept} == {NOW_MS - 360 * DAY_MS}
    assert [each["event_time_ms"] for each in swept] == [
        NOW_MS - (365 - day) * DAY_MS for day in range(3)
    ]
    with broker.connect() as connection:
        assert asking.alter(connection, asking.TOPIC, kept, (EVENT, 1, None)) == (0, None)
        assert asking.own(connection, kept) == {BASIS: "append"}
    broker.clock.step("7d")
    assert {(e["base_offset"], e["policy"]) for e in broker.sweep(kept)} == {
        (i, "retention.ms") for i in range(3, 6)
    }
