"""Who leads after an adoption of Kafka's directories, and what is refused."""

import asyncio
from uuid import UUID

import pytest

from tidelog.broker.logs.adoption.apply import apply
from tidelog.broker.logs.adoption.errors import AdoptionError
from tidelog.broker.logs.adoption.inventory import FoundLog, Inventory
from tidelog.broker.logs.adoption.kafka_metadata import KafkaMetadata, KafkaPartition, KafkaTopic
from tidelog.broker.logs.adoption.plan import make_plan
from tidelog.broker.logs.adoption.written import read_inventory, write_inventory
from tidelog.broker.metadata.cluster import ClusterMetadata
from tidelog.broker.metadata.memory import MemoryStore
from tidelog.broker.metadata.store import MetadataError
from tidelog.broker.settings import KEEP
from tidelog.config import load

CLUSTER = "dGlkZWxvZy1vcmFjbGU9PQ"
ID, OTHER = UUID(int=7), UUID(int=8)
CONFIG = load([], {}, {})


def log(end, epoch=0, *, mark=0, topic_id=ID, begun=None, stamped=False):
    """A log that ends at an offset, in an epoch."""
    return FoundLog(topic_id, 0, end, epoch, epoch if begun is None else begun, mark, stamped)


def kafka(partition, configs=None, *, epoch=1, producers=2000, name="t"):
    """The metadata of a topic with one partition."""
    topic = KafkaTopic(name, ID, configs or {}, {0: partition})
    return KafkaMetadata(epoch, 100, producers, (topic,))


def state(isr, *, replicas=(1, 2, 3), elr=(), leader_epoch=4, moving=False):
    """The state of a partition in Kafka."""
    return KafkaPartition(replicas, isr, elr, leader_epoch, 9, moving)


def inventories(logs, metadata, cluster=CLUSTER):
    """One inventory for each broker, with its log of t-0 or None; all know the same metadata."""
    return [
        Inventory(
            cluster, broker, (f"/{broker}",), {} if one is None else {("t", 0): one}, metadata
        )
        for broker, one in logs.items()
    ]


def planned(logs, partition, configs=None):
    """The plan for t-0."""
    return make_plan(inventories(logs, kafka(partition, configs)), CONFIG)


def record(logs, partition):
    """The first state of t-0."""
    return planned(logs, partition).topics[0].assignments[0]


def test_equal_logs_are_in_sync_and_the_preferred_leader_leads():
    found = record({1: log(50), 2: log(50), 3: log(50)}, state((3, 2, 1), replicas=(2, 1, 3)))
    assert (found.leader, found.isr, found.replicas) == (2, (2, 1, 3), (2, 1, 3))
    assert (found.leader_epoch, found.partition_epoch) == (5, 10)


def test_a_replica_outside_the_isr_never_leads_however_long_its_log_is():
    plan = planned({1: log(90, 3), 2: log(50, 4), 3: log(50, 4)}, state((2, 3)))
    found = plan.topics[0].assignments[0]
    assert (found.leader, found.isr) == (2, (2, 3))
    assert plan.notes == (
        "t-0: broker 1 has offsets 50 to 89, which were never committed: they are truncated",
    )


def test_the_latest_epoch_counts_before_the_length():
    found = record({1: log(90, 3), 2: log(80, 4), 3: log(70, 4)}, state((1, 2, 3)))
    assert (found.leader, found.isr) == (2, (2,))


def test_the_eligible_replicas_count_if_nobody_is_in_sync():
    found = record({1: log(9), 2: log(9), 3: log(9)}, state((), elr=(3,)))
    assert (found.leader, found.isr) == (3, (3,))


def test_the_next_epoch_is_after_all_that_have_begun_in_a_log():
    found = record({1: log(9, begun=11), 2: log(9), 3: log(9)}, state((1, 2, 3)))
    assert found.leader_epoch == 12


@pytest.mark.parametrize(
    ("logs", "partition", "sentence"),
    [
        ({1: log(9), 2: log(9)}, state((1, 2)), "replicas on brokers 3, whose directories"),
        ({1: log(9), 2: None, 3: log(9)}, state((1, 2)), "in-sync replicas 2 have no log"),
        ({1: log(9), 2: log(9, topic_id=OTHER), 3: log(9)}, state((2,)), "2 have no log"),
        ({1: log(9), 2: log(9), 3: log(9)}, state(()), "no replica is in sync"),
        (
            {1: log(9, mark=9), 2: log(7, mark=7), 3: log(7)},
            state((2, 3)),
            "offsets up to 8 were committed, as broker 1 knows, and the in-sync replicas end at 7",
        ),
        ({1: log(9), 2: log(9), 3: log(9)}, state((1,), moving=True), "reassignment .* not over"),
    ],
)
def test_what_may_lose_committed_records_is_refused(logs, partition, sentence):
    with pytest.raises(AdoptionError, match=sentence):
        planned(logs, partition)


def test_another_cluster_the_same_broker_and_no_metadata_are_refused():
    same = inventories({1: log(9), 2: log(9), 3: log(9)}, kafka(state((1, 2, 3))))
    with pytest.raises(AdoptionError, match=r"different clusters: .*broker 2 of other"):
        make_plan([same[0], same[1]._replace(cluster_id="other"), same[2]], CONFIG)
    with pytest.raises(AdoptionError, match="of the same broker"):
        make_plan([*same, same[2]], CONFIG)
    with pytest.raises(AdoptionError, match="no directory has Kafka's metadata"):
        make_plan([each._replace(metadata=None) for each in same], CONFIG)


def test_the_newest_metadata_count():
    logs = {1: log(9), 2: log(9), 3: log(9)}
    found = inventories(logs, kafka(state((1, 2, 3))))
    newer = found[1]._replace(metadata=kafka(state((3,)), epoch=2, producers=5000))
    plan = make_plan([found[0], newer, found[2]], CONFIG)
    assert (plan.topics[0].assignments[0].isr, plan.next_producer_id) == ((3,), 5000)


def test_settings_of_the_topic_come_along_and_defaults_of_kafka_delete_nothing():
    logs = {1: log(9, stamped=True), 2: log(9, stamped=True), 3: log(9, stamped=True)}
    configs = {"retention.ms": "5", "min.insync.replicas": "2", "no.such.setting": "1"}
    plan = planned(logs, state((1, 2, 3)), configs)
    assert plan.topics[0].configs == {
        **KEEP,
        "retention.ms": "5",
        "min.insync.replicas": "2",
        "message.timestamp.type": "LogAppendTime",
    }
    assert len(plan.notes) == 1
    assert "no.such.setting" in plan.notes[0]


def test_dynamic_settings_of_all_brokers_come_along_and_others_are_named():
    of_brokers = {
        "": {
            "min.insync.replicas": "2",
            "log.message.timestamp.difference.max.ms": "7",
            "background.threads": "3",
            "no.such.setting": "1",
            "node.id": "4",
            "log.retention.ms": "soon",
        },
        "1": {"leader.replication.throttled.rate": "9", "listener.name.x.ssl.key.password": "p"},
    }
    metadata = kafka(state((1, 2, 3)))._replace(broker_configs=of_brokers)
    plan = make_plan(inventories({1: log(9), 2: log(9), 3: log(9)}, metadata), CONFIG)
    assert plan.broker_configs == {
        "min.insync.replicas": "2",
        "log.message.timestamp.difference.max.ms": "7",
    }
    told = "\n".join(plan.notes)
    for left_out in ("background.threads", "no.such.setting", "node.id", "log.retention.ms"):
        assert left_out in told
    assert (
        "broker 1: its own dynamic settings are left out: leader.replication.throttled.rate, "
        "listener.name.x.ssl.key.password" in plan.notes
    )


def test_a_log_of_no_topic_is_named():
    metadata = kafka(state((1,), replicas=(1,)))
    logs = {("t", 0): log(9), ("gone", 3): log(9, topic_id=OTHER)}
    plan = make_plan([Inventory(CLUSTER, 1, ("/1",), logs, metadata)], CONFIG)
    assert plan.notes == ("gone-3 of broker 1 is no replica of a topic: it is not adopted",)


def test_an_inventory_survives_its_file_and_another_file_is_refused(tmp_path):
    path = tmp_path / "broker-1.json"
    (inventory,) = inventories(
        {1: log(9, mark=8)}, kafka(state((1,)), {"cleanup.policy": "compact"})
    )
    inventory = inventory._replace(
        metadata=inventory.metadata._replace(broker_configs={"": {"min.insync.replicas": "2"}})
    )
    write_inventory(path, inventory)
    assert read_inventory(path) == inventory
    path.write_text('{"version": 2}')
    with pytest.raises(AdoptionError, match="no inventory of 'tidelog adopt inspect'"):
        read_inventory(path)


def test_metadata_that_are_not_new_are_refused_and_an_interrupted_adoption_goes_on():
    plan = planned({1: log(9), 2: log(9), 3: log(9)}, state((1, 2, 3)))
    plan = plan._replace(broker_configs={"min.insync.replicas": "2"})

    async def play():
        store = MemoryStore()
        await store.open()
        transact, done = store.transact, []

        async def die(compares, operations):
            if done:
                raise ConnectionError
            done.append(await transact(compares, operations))
            return done[0]

        store.transact = die
        with pytest.raises(ConnectionError):
            await apply(store, plan)
        store.transact = transact
        with pytest.raises(MetadataError, match="key 'cluster' is missing"):
            await ClusterMetadata(store).open()
        await store.open()
        await apply(store, plan)
        metadata = ClusterMetadata(store)
        await metadata.open()
        assert metadata.image.cluster_id == CLUSTER
        assert metadata.image.next_producer_id == 2000
        assert metadata.image.broker_configs == {"min.insync.replicas": "2"}
        assert metadata.image.topics["t"].assignments == plan.topics[0].assignments
        with pytest.raises(AdoptionError, match="the metadata store is not empty"):
            await apply(store, plan)
        await metadata.close()

    asyncio.run(play())
