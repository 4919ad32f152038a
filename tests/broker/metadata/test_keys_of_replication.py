"""The keys that replication adds: what is written is read, older values are read, and images have epochs."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.metadata import records
from tidelog.broker.metadata.brokers import keys
from tidelog.broker.metadata.brokers.members import Members
from tidelog.broker.metadata.brokers.records import (
    ControllerRecord,
    Endpoint,
    LiveBrokerRecord,
    OfflineRecord,
    RegistrationRecord,
    Secret,
    SeenRecord,
    broker_of,
    live_key,
    put_controller,
    put_live,
    put_offline,
    put_registration,
    put_seen,
)
from tidelog.broker.metadata.image_builder import ImageBuilder
from tidelog.broker.metadata.memory import MemoryStore
from tidelog.broker.metadata.records import PartitionRecord, TopicRecord
from tidelog.broker.metadata.store import NO_LEASE, Change, Delete, KeyValue

TOPIC = UUID(int=7)
LONELY = PartitionRecord.led_by(1, 4)

ids = st.lists(st.integers(0, 2**31 - 1), max_size=4, unique=True).map(tuple)
uuids = st.uuids()
offline_partitions = st.dictionaries(uuids, ids, max_size=3)
partitions = st.builds(
    PartitionRecord,
    ids,
    ids,
    st.integers(-1, 9),
    st.integers(-1, 9),
    st.integers(0, 9),
    elr=ids,
    last_leader=st.integers(-1, 9),
    adding=ids,
    removing=ids,
    is_recovering=st.booleans(),
    nonce=st.text(max_size=4),
)
texts = st.text(max_size=5)
endpoints = st.lists(st.builds(Endpoint, texts, texts, st.integers(0, 65535)), max_size=2)
lives = st.builds(
    LiveBrokerRecord,
    texts,
    endpoints.map(tuple),
    st.none() | texts,
    is_fenced=st.booleans(),
    is_stopping=st.booleans(),
    secret=texts.map(Secret),
)
registrations = st.builds(
    RegistrationRecord, texts, st.lists(texts).map(tuple), is_clean=st.booleans()
)
offlines = st.builds(
    OfflineRecord, st.lists(texts).map(tuple), offline_partitions, offline_partitions
)


@given(partitions)
def test_a_partition_is_read_as_it_was_written(record):
    put = records.put_partition(TOPIC, 3, record)
    assert records.read(put.key, put.value) == record


@given(lives, registrations, offlines, st.integers(0, 99))
def test_what_brokers_say_is_read_as_it_was_written(live, registration, offline, broker):
    for put, record in (
        (put_live(broker, live, NO_LEASE), live),
        (put_registration(broker, registration), registration),
        (put_offline(broker, offline), offline),
        (put_seen(broker, 7, NO_LEASE), SeenRecord(7)),
        (put_controller(broker, NO_LEASE), ControllerRecord(broker)),
    ):
        assert records.read(put.key, put.value) == record
        assert put.key == keys.CONTROLLER or broker_of(put.key) == broker


def test_a_partition_of_an_older_tidelog_has_the_defaults():
    older = {"replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 4, "partition_epoch": 0}
    key = records.partition_key(TOPIC, 0)
    assert records.read(key, json.dumps(older).encode()) == LONELY


def test_a_session_of_an_older_tidelog_has_no_secret_and_one_of_a_newer_has_more():
    live = LiveBrokerRecord("a", secret=Secret("s"))
    value = json.loads(put_live(1, live, NO_LEASE).value)
    newer = json.dumps({**value, "unheard_of": [1]}).encode()
    assert records.read(live_key(1), newer) == live
    del value["secret"]
    assert records.read(live_key(1), json.dumps(value).encode()).secret == ""


def test_the_partition_of_a_broker_that_is_alone_is_written_as_it_always_was():
    put = records.put_partition(TOPIC, 0, LONELY)
    assert put.value == (
        b'{"replicas":[1],"isr":[1],"leader":1,"leader_epoch":4,"partition_epoch":0}'
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (live_key(1), b'{"incarnation":"a"}'),
        ("live/one", put_live(1, LiveBrokerRecord("a"), NO_LEASE).value),
        ("broker/1", b'{"incarnation":3,"directories":[],"is_clean":true}'),
        ("offline/1", b'{"directories":[],"partitions":{"?":[0]},"full":{}}'),
        ("seen/1", b"{}"),
        ("controller", b"{}"),
        ("nobody/1", b"{}"),
        (
            records.partition_key(TOPIC, 0),
            records.put_partition(TOPIC, 0, LONELY._replace(elr=("x",))).value,
        ),
    ],
)
def test_a_damaged_value_is_named(key, value):
    with pytest.raises(ValueError, match=key):
        records.read(key, value)


def test_keys_of_a_newer_tidelog_are_left_alone():
    pairs = [KeyValue(put.key, put.value, 1, 1) for put in records.put_beginning("c")]
    newer = [KeyValue(key, b"not even JSON", 2, 2) for key in ("nobody/1", "config/group/1")]
    builder, known = ImageBuilder(2, pairs + newer), ImageBuilder(2, pairs)
    assert builder.image == known.image
    changes = [Change(3, "nobody/1", None), Change(3, "nobody/2", b"?"), Change(4, "x", b"")]
    assert builder.apply(changes) == known.image._replace(revision=4)


class Metadata:
    """A store, with an image that follows its changes and is compared with one built anew."""

    def __init__(self):
        self.store = MemoryStore()

    async def open(self):
        await self.store.open()
        await self.store.transact(
            (),
            (
                records.put_cluster("c"),
                records.put_producer_ids(0),
                records.put_broker_configs({}),
                records.put_topic(TopicRecord("t", TOPIC, 2, {})),
                records.put_partition(TOPIC, 0, LONELY),
                records.put_partition(TOPIC, 1, LONELY),
            ),
        )
        snapshot = await self.store.read()
        self.builder = ImageBuilder(snapshot.revision, snapshot.pairs)

    async def write(self, *operations):
        """Returns the revision of the transaction."""
        assert await self.store.transact((), operations)
        image = self.builder.apply(await self.store.changes(self.builder.image.revision))
        snapshot = await self.store.read()
        assert image == ImageBuilder(snapshot.revision, snapshot.pairs).image
        return image.revision

    @property
    def image(self):
        return self.builder.image


@pytest.fixture
async def metadata():
    made = Metadata()
    await made.open()
    yield made
    await made.store.close()


async def test_a_broker_epoch_is_the_revision_that_created_the_session(metadata):
    assert metadata.image.members == Members()
    began = await metadata.write(put_live(1, LiveBrokerRecord("a"), NO_LEASE))
    changed = await metadata.write(put_live(1, LiveBrokerRecord("a", is_fenced=False), NO_LEASE))
    live = metadata.image.brokers[1]
    assert (live.epoch, live.mod_revision, live.record.is_fenced) == (began, changed, False)
    await metadata.write(Delete(live_key(1)))
    assert not metadata.image.brokers
    again = await metadata.write(put_live(1, LiveBrokerRecord("b"), NO_LEASE))
    assert metadata.image.brokers[1].epoch == again > changed


async def test_a_registration_and_its_session_have_the_same_epoch(metadata):
    for incarnation in ("a", "b"):
        await metadata.write(
            put_live(1, LiveBrokerRecord(incarnation), NO_LEASE),
            put_registration(1, RegistrationRecord(incarnation)),
        )
        assert metadata.image.registrations[1].epoch == metadata.image.brokers[1].epoch
        await metadata.write(Delete(live_key(1)))


async def test_a_controller_epoch_is_the_revision_that_created_the_key(metadata):
    assert metadata.image.controller is None
    began = await metadata.write(put_controller(2, NO_LEASE))
    assert metadata.image.controller == (2, began)


async def test_each_partition_has_the_revision_that_last_modified_it(metadata):
    created = metadata.image.revision
    modified = await metadata.write(records.put_partition(TOPIC, 1, LONELY._replace(elr=(2,))))
    image = metadata.image
    assert image.topics["t"].mod_revisions == (created, modified)
    assert [image.mod_revision("t", index) for index in (0, 1, 2, -1)] == [
        created,
        modified,
        0,
        0,
    ]
    assert image.mod_revision("unknown", 0) == 0


async def test_a_session_that_cannot_be_read_leaves_the_image_as_it_was(metadata):
    began = await metadata.write(put_live(1, LiveBrokerRecord("a"), NO_LEASE))
    before = metadata.image
    change = (await metadata.store.changes(began - 1))[0]
    with pytest.raises(ValueError, match="live/1"):
        metadata.builder.apply([change._replace(revision=began + 1, value=b"[]")])
    assert metadata.image is before
    assert metadata.builder.apply([change._replace(revision=began + 1)]).brokers[1].epoch == began
