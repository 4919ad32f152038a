"""What clients ask of three broker processes: topics, moves, elections, and who is there."""

from __future__ import annotations

import itertools

import pytest

from tests.broker import asking
from tests.broker.cluster.brokers import Brokers
from tests.broker.subject import eventually
from tidelog.broker.metadata.records import NO_LEADER, PartitionRecord

UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICATION_FACTOR = 3, 38
INVALID_REPLICA_ASSIGNMENT, PREFERRED_LEADER_NOT_AVAILABLE = 39, 80
ELECTION_NOT_NEEDED, NO_REASSIGNMENT_IN_PROGRESS, ELIGIBLE_LEADERS_NOT_AVAILABLE = 84, 85, 83
INVALID_REQUEST, BROKER_ID_NOT_REGISTERED = 42, 102
PREFERRED, UNCLEAN = 0, 1
TOPIC, BROKER, OF_ALL_BROKERS = 2, 4, 3
RACKS = {1: "a", 2: "b", 3: "b"}

_names = (f"t{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    """Brokers 1 to 3; a test that kills one starts it again."""
    found = Brokers(tmp_path_factory.mktemp("brokers"))
    for broker, rack in RACKS.items():
        found.start(broker, settings={"broker.rack": rack, "default.replication.factor": 3})
    yield found
    found.stop()


@pytest.fixture
def ask(brokers):
    """Asks one of the brokers."""

    def ask_one(broker, api, version, **fields):
        with brokers[broker].connect() as connection:
            return connection.ask(api, version, **fields)

    return ask_one


@pytest.fixture
def create(ask):
    """Creates a topic by the broker 2; returns its result."""

    def create_one(name, partitions=1, factor=-1, assignments=(), broker=2):
        wanted = {
            "name": name,
            "num_partitions": -1 if assignments else partitions,
            "replication_factor": factor,
            "assignments": [
                {"partition_index": index, "broker_ids": replicas}
                for index, replicas in enumerate(assignments)
            ],
            "configs": [],
        }
        (result,) = ask(
            broker, "CreateTopics", 7, topics=[wanted], timeout_ms=10_000, validate_only=False
        )["topics"]
        return result

    return create_one


def described(ask, broker, name, version=9):
    """The partitions of a topic as one broker describes them, once it knows the topic."""

    def found():
        topics = [{"name": name}]
        answer = ask(broker, "Metadata", version, topics=topics, allow_auto_topic_creation=False)
        return answer["topics"][0]["partitions"]

    return eventually(found)


def known_brokers(ask, broker):
    """The racks of the brokers that one of them lists."""
    metadata = ask(broker, "Metadata", 9, topics=[], allow_auto_topic_creation=False)
    return {each["node_id"]: each["rack"] for each in metadata["brokers"]}


def test_a_topic_is_described_by_every_broker_as_it_was_created(ask, create):
    result = create("created", partitions=6)
    assert result["error_code"] == 0
    assert (result["num_partitions"], result["replication_factor"]) == (6, 3)
    first = described(ask, 1, "created")
    assert described(ask, 2, "created") == described(ask, 3, "created") == first
    assert sorted(each["leader_id"] for each in first) == [1, 1, 2, 2, 3, 3]
    for each in first:
        assert sorted(each["replica_nodes"]) == sorted(each["isr_nodes"]) == [1, 2, 3]
        assert (each["error_code"], each["offline_replicas"]) == (0, [])


def test_two_replicas_are_in_different_racks(ask, create):
    create("racks", partitions=6, factor=2)
    for each in described(ask, 1, "racks"):
        assert {RACKS[broker] for broker in each["replica_nodes"]} == {"a", "b"}


def test_a_topic_that_is_created_automatically_has_the_default_number_of_replicas(ask):
    topics = [{"name": "automatic"}]
    (got,) = ask(3, "Metadata", 9, topics=topics, allow_auto_topic_creation=True)["topics"]
    assert got["error_code"] == 0
    assert sorted(got["partitions"][0]["replica_nodes"]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("wanted", "code", "sentence"),
    [
        ({"factor": 4}, INVALID_REPLICATION_FACTOR, "only 3 broker(s) are registered."),
        ({"assignments": [[1, 4]]}, INVALID_REPLICA_ASSIGNMENT, "no such broker is registered."),
        ({"assignments": [[1, 2], [3]]}, INVALID_REPLICA_ASSIGNMENT, "not consistent"),
    ],
)
def test_a_topic_that_is_refused_is_not_there(brokers, create, wanted, code, sentence):
    result = create("refused", **wanted)
    assert result["error_code"] == code
    assert sentence in result["error_message"]
    assert "refused" not in brokers.image().topics


def test_partitions_are_added_with_as_many_replicas(ask, create):
    create("grown", assignments=[[2, 1]])
    topics = [{"name": "grown", "count": 4, "assignments": None}]
    grow = {"timeout_ms": 1_000, "validate_only": False}
    assert ask(3, "CreatePartitions", 3, topics=topics, **grow)["results"][0]["error_code"] == 0
    got = described(ask, 3, "grown")
    eventually(lambda: len(described(ask, 1, "grown")) == 4)
    assert [len(each["replica_nodes"]) for each in got] == [2, 2, 2, 2]
    assert sorted(each["leader_id"] for each in got) == [1, 2, 2, 3]
    topics = [{"name": "grown", "count": 5, "assignments": [{"broker_ids": [3]}]}]
    (got,) = ask(1, "CreatePartitions", 3, topics=topics, **grow)["results"]
    assert got["error_code"] == INVALID_REPLICA_ASSIGNMENT


def test_the_brokers_and_the_controller(brokers, ask):
    for broker in RACKS:
        eventually(lambda b=broker: len(known_brokers(ask, b)) == len(RACKS))
        answer = ask(broker, "DescribeCluster", 0, include_cluster_authorized_operations=False)
        assert answer["controller_id"] == brokers.image().controller.broker
        listed = {
            each["broker_id"]: (f"{each['host']}:{each['port']}", each["rack"])
            for each in answer["brokers"]
        }
        assert listed == {each: (brokers[each].bootstrap, RACKS[each]) for each in RACKS}
        metadata = ask(broker, "Metadata", 9, topics=[], allow_auto_topic_creation=False)
        assert metadata["controller_id"] == answer["controller_id"]
        assert known_brokers(ask, broker) == RACKS


def elect(ask, broker, kind, topics):
    """Asks for elections; the code of each partition that is answered."""
    named = topics and [{"topic": name, "partitions": found} for name, found in topics.items()]
    answer = ask(
        broker, "ElectLeaders", 2, election_type=kind, topic_partitions=named, timeout_ms=5_000
    )
    assert answer["error_code"] == 0
    return {
        (topic["topic"], each["partition_id"]): each["error_code"]
        for topic in answer["replica_election_results"]
        for each in topic["partition_result"]
    }


def test_preferred_leaders_are_elected(brokers, ask):
    """Broker 1 has just come back, so the controller does not elect it by itself."""
    brokers[1].kill()
    brokers[1].restart()
    name = next(_names)
    brokers.add(
        name,
        PartitionRecord((1, 2, 3), (2, 1), 2, 4),
        PartitionRecord((1, 2, 3), (1, 2), 1, 4),
        PartitionRecord((9, 2, 1), (2, 1), 2, 4),
    )
    asked = {name: [0, 1, 2, 3], "nowhere": [0]}
    assert elect(ask, 3, PREFERRED, asked) == {
        (name, 0): 0,
        (name, 1): ELECTION_NOT_NEEDED,
        (name, 2): PREFERRED_LEADER_NOT_AVAILABLE,
        (name, 3): UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): UNKNOWN_TOPIC_OR_PARTITION,
    }
    record = brokers.image().topics[name].assignments[0]
    assert (record.leader, record.leader_epoch) == (1, 5)
    assert {1, 2} <= set(record.isr)
    again = elect(ask, 2, PREFERRED, None)
    assert (name, 0) not in again, "of those that are not needed nothing is said"


def test_a_partition_without_a_leader_waits_for_a_client_to_elect_one(brokers, ask):
    """Broker 9 has every committed record, and is not there."""
    name = next(_names)
    lost = PartitionRecord((9, 2, 3), (), NO_LEADER, 4, elr=(9,))
    gone = PartitionRecord((9, 8), (), NO_LEADER, 4, elr=(9,))
    brokers.add(name, lost, gone, PartitionRecord((1, 2), (1, 2), 1, 0))
    asked = {name: [0, 1, 2]}
    assert elect(ask, 1, PREFERRED, asked) == {
        (name, 0): PREFERRED_LEADER_NOT_AVAILABLE,
        (name, 1): PREFERRED_LEADER_NOT_AVAILABLE,
        (name, 2): ELECTION_NOT_NEEDED,
    }
    assert elect(ask, 1, UNCLEAN, asked) == {
        (name, 0): 0,
        (name, 1): ELIGIBLE_LEADERS_NOT_AVAILABLE,
        (name, 2): ELECTION_NOT_NEEDED,
    }
    record = brokers.image().topics[name].assignments[0]
    assert record.leader == 2
    assert any("unclean election by a client" in line for line in brokers[1].lines(f"{name}-0"))

    topics = [{"name": name}]
    (topic,) = ask(
        1, "DescribeTopicPartitions", 0, topics=topics, response_partition_limit=9, cursor=None
    )["topics"]
    described_gone = topic["partitions"][1]
    assert described_gone["leader_id"] == NO_LEADER
    assert described_gone["eligible_leader_replicas"] == [9]
    assert described_gone["offline_replicas"] == [9, 8]
    eventually(lambda: [each["error_code"] for each in described(ask, 3, name)] == [0, 5, 0])
    assert [each["error_code"] for each in described(ask, 3, name, 0)] == [9, 5, 0]


def reassign(ask, name, replicas, index=0):
    """Asks for new replicas of a partition; its code."""
    partitions = [{"partition_index": index, "replicas": replicas}]
    topics = [{"name": name, "partitions": partitions}]
    answer = ask(1, "AlterPartitionReassignments", 0, timeout_ms=5_000, topics=topics)
    assert answer["error_code"] == 0
    return answer["responses"][0]["partitions"][0]["error_code"]


def moves(ask, topics):
    """The moves of partitions that a broker lists: all replicas, those that come, and that go."""
    named = topics and [
        {"name": name, "partition_indexes": found} for name, found in topics.items()
    ]
    answer = ask(2, "ListPartitionReassignments", 0, timeout_ms=5_000, topics=named)
    assert answer["error_code"] == 0
    return {
        (topic["name"], each["partition_index"]): (
            each["replicas"],
            each["adding_replicas"],
            each["removing_replicas"],
        )
        for topic in answer["topics"]
        for each in topic["partitions"]
    }


def test_moves_that_are_refused_and_one_without_effect(brokers, ask):
    name = next(_names)
    brokers.add(name, PartitionRecord((1, 2), (1,), 1, 0), PartitionRecord((1, 2), (1, 2), 1, 0))
    assert reassign(ask, name, None) == NO_REASSIGNMENT_IN_PROGRESS
    assert reassign(ask, name, [1, 4]) == INVALID_REPLICA_ASSIGNMENT
    assert reassign(ask, name, []) == INVALID_REPLICA_ASSIGNMENT
    assert reassign(ask, name, [2, 2]) == INVALID_REPLICA_ASSIGNMENT
    assert reassign(ask, name, [1], index=2) == UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(ask, name, [2, 1], index=1) == 0, "the same replicas in another order"
    assert brokers.image().topics[name].assignments[1].replicas == (2, 1)

    brokers.eventually(lambda image: image.topics[name].assignments[1].leader == 2)  # preferred now
    epoch = brokers.image().topics[name].assignments[1].partition_epoch
    assert reassign(ask, name, [2, 1], index=1) == 0
    assert brokers.image().topics[name].assignments[1].partition_epoch == epoch


def alter(brokers, by, broker, name, value):
    """Sets a setting under the name of a broker, or removes it; the error."""
    with brokers[by].connect() as connection:
        return asking.alter(connection, BROKER, broker, (name, int(value is None), value))[0]


def describe(ask, broker, resource):
    """The settings of a resource, as a broker describes them."""
    asked = {"include_synonyms": True, "include_documentation": False}
    answer = ask(broker, "DescribeConfigs", 4, resources=[resource], **asked)
    return answer["results"][0]["configs"]


def test_settings_are_changed_for_all_brokers(brokers, ask):
    name, value = "log.retention.ms", "77777"
    assert alter(brokers, 1, "1", name, value) == INVALID_REQUEST
    assert alter(brokers, 1, "1", name, None) == 0, "it is not set, so nothing changes"
    assert alter(brokers, 1, "", name, value) == 0
    assert alter(brokers, 1, "1", name, None) == INVALID_REQUEST

    def seen(broker):
        resource = {
            "resource_type": BROKER,
            "resource_name": str(broker),
            "configuration_keys": [name, "node.id"],
        }
        configs = {each["name"]: each for each in describe(ask, broker, resource)}
        assert configs["node.id"]["value"] == str(broker)
        return configs[name]

    for broker in RACKS:
        found = eventually(lambda b=broker: seen(b)["value"] == value and seen(b))
        assert found["config_source"] == OF_ALL_BROKERS
        assert found["synonyms"][0]["source"] == OF_ALL_BROKERS
        assert len(found["synonyms"]) > 1, "the value that it would have without the change"
    assert alter(brokers, 3, "", name, None) == 0


def check_move(brokers, ask, name):
    """Moves a partition from 2 to 3, which is not there to fetch, and cancels that."""
    assert reassign(ask, name, [1, 3], index=1) == 0
    ongoing = {(name, 1): ([1, 3, 2], [3], [2])}
    eventually(lambda: moves(ask, None) == ongoing)
    assert moves(ask, {name: [0, 1, 7, -1], "nowhere": [0]}) == ongoing
    assert moves(ask, {name: [0]}) == {}
    assert reassign(ask, name, None, index=1) == 0
    brokers.eventually(lambda image: image.topics[name].assignments[1].replicas == (1, 2))
    eventually(lambda: moves(ask, None) == {})
    assert reassign(ask, name, None, index=1) == NO_REASSIGNMENT_IN_PROGRESS


def test_a_broker_that_is_gone_is_left_out_and_a_move_to_it_waits(brokers, ask):
    name = next(_names)
    brokers.add(name, PartitionRecord((1, 3), (1, 3), 1, 0), PartitionRecord((1, 2), (1, 2), 1, 0))
    assert brokers[3].stop() == 0
    try:
        brokers.eventually(lambda image: 3 not in image.brokers)
        eventually(lambda: described(ask, 1, name)[0]["offline_replicas"] == [3])
        got = described(ask, 1, name)
        assert got[0]["replica_nodes"] == [1, 3]
        old, _ = described(ask, 1, name, 0)
        assert (old["error_code"], old["replica_nodes"]) == (9, [1])
        asked = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
        answer = ask(1, "DescribeCluster", 2, **asked, include_fenced_brokers=True)
        fenced = {each["broker_id"] for each in answer["brokers"] if each["is_fenced"]}
        assert (len(answer["brokers"]), fenced) == (3, {3})
        answer = ask(1, "DescribeCluster", 2, **asked, include_fenced_brokers=False)
        assert [each["broker_id"] for each in answer["brokers"]] == [1, 2]
        check_move(brokers, ask, name)
    finally:
        brokers[3].restart()
        for broker in RACKS:
            eventually(lambda b=broker: len(known_brokers(ask, b)) == len(RACKS))


@pytest.mark.slow
def test_a_broker_that_is_gone_is_forgotten(brokers, ask, create):
    """It registers again when it starts again."""

    def unregister(broker):
        answer = ask(2, "UnregisterBroker", 0, broker_id=broker)
        return answer["error_code"], answer["error_message"]

    assert unregister(9) == (BROKER_ID_NOT_REGISTERED, "broker 9 is not registered")
    assert unregister(3) == (INVALID_REQUEST, "broker 3 is running: stop it first")
    brokers.start(4)
    name = next(_names)
    create(name, assignments=[[4]])
    assert alter(brokers, 1, "", "cordoned.brokers", "4,7") == 0
    brokers[4].kill()
    brokers.eventually(lambda image: 4 not in image.brokers)
    code, message = unregister(4)
    assert (code, message) == (
        INVALID_REQUEST,
        "broker 4 still has replicas of 1 partition: move them first (tidelog broker remove 4)",
    )
    (deleted,) = ask(2, "DeleteTopics", 4, topic_names=[name], timeout_ms=1_000)["responses"]
    assert deleted["error_code"] == 0
    assert brokers.image().deletions, "of which broker 4 has logs"
    assert unregister(4) == (0, None)
    image = brokers.image()
    assert 4 not in image.registrations
    assert not image.deletions
    assert image.broker_configs["cordoned.brokers"] == "7"
    assert alter(brokers, 1, "", "cordoned.brokers", "") == 0
    brokers[4].restart()
    assert 4 in brokers.image().registrations
    brokers[4].kill()
    brokers.eventually(lambda image: 4 not in image.brokers)
    assert unregister(4) == (0, None)


def test_settings_of_a_topic_are_changed_and_described_at_once_by_any_broker(ask, create):
    for value in map(str, range(80_000, 80_005)):
        name = next(_names)
        assert create(name, broker=1)["error_code"] == 0
        resource = {"resource_type": TOPIC, "resource_name": name}
        for broker, api, config in (
            (2, "AlterConfigs", {"value": "7"}),
            (3, "IncrementalAlterConfigs", {"value": value, "config_operation": 0}),
        ):
            altered = {**resource, "configs": [{"name": "retention.ms", **config}]}
            answer = ask(broker, api, 1, resources=[altered], validate_only=False)
            assert [each["error_code"] for each in answer["responses"]] == [0]
        (found,) = describe(ask, 1, {**resource, "configuration_keys": ["retention.ms"]})
        assert found["value"] == value
