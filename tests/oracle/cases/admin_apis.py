"""The APIs of administrators beyond topics and settings, in every version, with mistakes in them.

What only one broker can be asked is asked with its number, 1. What names the machine (addresses, directories,
bytes of the disk) is replaced in `scenario.canonical`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tests.oracle.scenario import Case, Step, ask, produce

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.oracle.scenario import Context

NO_ELECTION = 9
SET, _, APPEND, SUBTRACT = range(4)
ACL = {
    "resource_type": 2,
    "resource_name": "some-topic",
    "resource_pattern_type": 3,
    "principal": "User:somebody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
ACL_FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def topics(version: int, *names: str, partitions: int = 1) -> Step:
    """Make topics."""
    base = {
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    fields = {
        "topics": [{"name": name, **base} for name in names],
        "timeout_ms": 60_000,
        "validate_only": False,
    }
    return ask(f"create {names[0]}", "CreateTopics", version, fields)


def metadata(*names: str) -> Step:
    asked = [{"name": name} for name in names]
    fields = {"topics": asked, "allow_auto_topic_creation": False}
    return ask(f"metadata {names[0]}", "Metadata", 9, fields)


def partitions_added() -> Iterator[Case]:
    for version in range(4):
        name = f"grown-{version}"

        def grow(
            *counts: tuple[str, int, list[list[int]] | None],
            only: bool = False,
            version: int = version,
        ) -> Step:
            wanted = [
                {
                    "name": topic,
                    "count": count,
                    "assignments": placed and [{"broker_ids": ids} for ids in placed],
                }
                for topic, count, placed in counts
            ]
            fields = {"topics": wanted, "timeout_ms": 60_000, "validate_only": only}
            return ask(f"grow v{version} {counts}"[:80], "CreatePartitions", version, fields)

        steps = [
            topics(4, name, partitions=2),
            grow((name, 4, None), only=True),
            metadata(name),
            grow((name, 4, None)),
            metadata(name),
            *(grow((name, count, None)) for count in (4, 3, 0, -1)),
            grow((name, 5, [[1]])),
            grow((name, 6, [[7]])),
            grow((name, 6, [[1], [1]])),
            grow((name, 6, [[1, 1]])),
            grow((name, 6, [[]])),
            grow(("no-such-topic", 3, None)),
            grow(("bad name!", 3, None)),
            grow((name, 8, None), (name, 9, None)),
            metadata(name),
        ]
        yield Case(f"partitions added v{version}", "create", tuple(steps), {"admin": "grown"})


def settings_replaced() -> Iterator[Case]:
    for version in range(3):
        name = f"replaced-{version}"

        def replace(
            *configs: tuple[str, str | None],
            kind: int = 2,
            resource: str = name,
            only: bool = False,
            version: int = version,
        ) -> Step:
            given = [{"name": key, "value": value} for key, value in configs]
            one = {"resource_type": kind, "resource_name": resource, "configs": given}
            fields = {"resources": [one], "validate_only": only}
            label = f"replace v{version} {kind} {resource} {configs}"[:80]
            return ask(label, "AlterConfigs", version, fields)

        keys = ["retention.ms", "cleanup.policy", "segment.bytes"]
        asked = {"resource_type": 2, "resource_name": name, "configuration_keys": keys}
        look = ask(
            "look",
            "DescribeConfigs",
            1,
            {"resources": [asked], "include_synonyms": False},
        )
        steps = [topics(4, name)]
        for step in (
            replace(("retention.ms", "77"), ("cleanup.policy", "compact")),
            replace(("segment.bytes", "100000")),
            replace(("retention.ms", "1"), only=True),
            replace(("retention.ms", "soon")),
            replace(("retention.ms", None)),
            replace(("no.such.setting", "1")),
            replace(("retention.ms", "1"), ("retention.ms", "2")),
            replace(("retention.ms", "1"), resource="no-such-topic"),
            replace(("retention.ms", "1"), resource="bad name!"),
            replace(("retention.ms", "1"), resource=""),
            replace(("retention.ms", "1"), kind=4, resource="7"),
            replace(("num.partitions", "1"), kind=4, resource="nan"),
            replace(("log.dirs", "/x"), kind=4, resource="1"),
            replace(("x", "INFO"), kind=8, resource="1"),
            replace(("x", "1"), kind=99, resource="1"),
            replace(),
        ):
            steps += [step, look]
        yield Case(f"settings replaced v{version}", "create", tuple(steps), {"admin": "replaced"})


def lists_changed() -> Iterator[Case]:
    name, setting = "listed", "cleanup.policy"
    look = {"resource_type": 2, "resource_name": name, "configuration_keys": [setting]}
    steps = [topics(4, name)]
    for operation, value in (
        (SUBTRACT, "delete"),
        (SUBTRACT, "delete"),
        (APPEND, "compact"),
        (APPEND, "delete,compact"),
        (SUBTRACT, "delete,compact"),
        (SET, ""),
        (SET, "delete,"),
        (SET, "neither"),
        (APPEND, "delete"),
    ):
        change = {"name": setting, "config_operation": operation, "value": value}
        one = {"resource_type": 2, "resource_name": name, "configs": [change]}
        fields = {"resources": [one], "validate_only": False}
        steps.append(ask(f"change {operation} {value}", "IncrementalAlterConfigs", 1, fields))
        fields = {"resources": [look], "include_synonyms": False}
        steps.append(ask("look", "DescribeConfigs", 1, fields))
    yield Case("lists changed", "create", tuple(steps), {"admin": "listed"})


def cluster_described() -> Iterator[Case]:
    steps = [
        ask(
            f"cluster v{version} {included} {kind}",
            "DescribeCluster",
            version,
            {"include_cluster_authorized_operations": included, "endpoint_type": kind},
        )
        for version in (0, 1)
        for included in (False, True)
        for kind in ((1, 2, 0, 9) if version else (1,))
    ]
    yield Case("cluster described", "create", tuple(steps), {"admin": "cluster"})


def log_dirs_described() -> Iterator[Case]:
    records = recordset.batch([Rec(1_000, b"some bytes")])
    steps = [produce(7, records)]

    def own(context: Context) -> dict[str, Any]:
        indexes = [context.partition, context.partition + 1, 10_000]
        return {"topics": [{"topic": context.topic, "partitions": indexes}]}

    for version in range(5):
        steps.append(ask(f"log dirs v{version}", "DescribeLogDirs", version, own))
        for wanted in ([{"topic": "no-such-topic", "partitions": [0]}], []):
            label = f"log dirs v{version} {wanted}"[:80]
            steps.append(ask(label, "DescribeLogDirs", version, {"topics": wanted}))
    tags = {"admin": "log dirs"}
    yield Case("log directories described", "create-any", tuple(steps), tags, partitions=2)


def topic_partitions_described() -> Iterator[Case]:
    names = ["paged-a", "paged-b", "paged-c"]
    steps = [topics(4, *names, partitions=3)]

    def page(limit: int, *wanted: str, cursor: tuple[str, int] | None = None) -> Step:
        fields = {
            "topics": [{"name": name} for name in wanted],
            "response_partition_limit": limit,
            "cursor": cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
        }
        label = f"page {limit} {wanted} {cursor}"[:80]
        return ask(label, "DescribeTopicPartitions", 0, fields)

    steps += [
        page(100, *names),
        page(100, "paged-c", "paged-a", "paged-a"),
        page(100, "no-such-topic", "paged-a", "bad name!"),
        *(page(limit, *names) for limit in (1, 2, 3, 4, 6, 9, 0, -5)),
        page(2, *names, cursor=("paged-a", 2)),
        page(2, *names, cursor=("paged-b", 0)),
        page(2, *names, cursor=("paged-b", 7)),
        page(2, *names, cursor=("paged-bb", 1)),
        page(2, *names, cursor=("paged-d", 0)),
        page(2, *names, cursor=("paged-a", -1)),
        page(2, *names, cursor=("", 0)),
        page(100, "__no_such", cursor=("__no_such", 2)),
    ]
    yield Case("topic partitions described", "create", tuple(steps), {"admin": "paged"})


def producers_described() -> Iterator[Case]:
    def look(topic: str | None, *indexes: int) -> Step:
        def fields(context: Context) -> dict[str, Any]:
            wanted = [context.partition + index for index in indexes] if topic is None else indexes
            name = context.topic if topic is None else topic
            return {"topics": [{"name": name, "partition_indexes": list(wanted)}]}

        return ask(f"producers of {topic} {indexes}", "DescribeProducers", 0, fields)

    def batch(producer_id: int, epoch: int, sequence: int, count: int) -> bytes:
        records = [Rec(1_000 + i, b"x") for i in range(count)]
        return recordset.batch(
            records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )

    steps = [
        look(None, 0, 1),
        produce(7, batch(4_000, 0, 0, 3)),
        produce(7, batch(4_000, 0, 3, 2)),
        produce(7, batch(4_001, 5, 0, 1)),
        look(None, 0, 1),
        look(None, 10_000),
        look("no-such-topic", 0, -1),
        look("bad name!", 0),
    ]
    tags = {"admin": "producers"}
    yield Case("producers described", "create-any", tuple(steps), tags, partitions=2)


def leaders_and_moves() -> Iterator[Case]:
    name = "led"
    steps = [topics(4, name, partitions=2)]
    for version in range(3):
        for kind in (0, 1, NO_ELECTION) if version else (0,):
            for wanted in (
                [{"topic": name, "partitions": [0, 1]}],
                [{"topic": name, "partitions": [7, -1]}],
                [{"topic": "no-such-topic", "partitions": [0]}],
                [],
                None,
            ):
                if kind == NO_ELECTION and not wanted:
                    continue  # Kafka looks at the kind once per partition
                fields = {"election_type": kind, "topic_partitions": wanted, "timeout_ms": 60_000}
                label = f"elect v{version} {kind} {wanted}"[:80]
                steps.append(ask(label, "ElectLeaders", version, fields))
    yield Case("leaders elected", "create", tuple(steps), {"admin": "elected"})
    name = "moved"
    steps = [topics(4, name, partitions=2)]
    for topic, index, replicas in (
        (name, 0, [1]),
        (name, 0, [7]),
        (name, 0, [1, 7]),
        (name, 0, [1, 1]),
        (name, 0, []),
        (name, 0, [-1]),
        (name, 0, None),
        (name, 7, [1]),
        (name, -1, None),
        ("no-such-topic", 0, [1]),
        ("no-such-topic", 0, None),
    ):
        one = {"partition_index": index, "replicas": replicas}
        fields = {"timeout_ms": 60_000, "topics": [{"name": topic, "partitions": [one]}]}
        label = f"move {topic} {index} {replicas}"
        steps.append(ask(label, "AlterPartitionReassignments", 0, fields))
    for wanted in (None, [], [{"name": name, "partition_indexes": [0, 9]}]):
        fields = {"timeout_ms": 60_000, "topics": wanted}
        steps.append(ask(f"moves {wanted}"[:60], "ListPartitionReassignments", 0, fields))
    fields = {
        "timeout_ms": 60_000,
        "topics": [{"name": "no-such-topic", "partition_indexes": [0]}],
    }
    steps.append(ask("moves of no topic", "ListPartitionReassignments", 0, fields))
    yield Case("partitions moved", "create", tuple(steps), {"admin": "moved"})


def nothing_there() -> Iterator[Case]:
    steps = []
    for version in range(4):
        steps += [
            ask(f"acls v{version}", "DescribeAcls", version, ACL_FILTER),
            ask(f"new acls v{version}", "CreateAcls", version, {"creations": [ACL, ACL]}),
            ask(f"old acls v{version}", "DeleteAcls", version, {"filters": [ACL_FILTER] * 2}),
        ]
    yield Case("access rules", "create", tuple(steps), {"admin": "acls"})
    steps = []
    for users in (None, [], ["anna"], [""], ["anna", "anna"]):
        named = None if users is None else [{"name": user} for user in users]
        steps.append(ask(f"passwords {users}", "DescribeUserScramCredentials", 0, {"users": named}))
    yield Case("passwords", "create", tuple(steps), {"admin": "passwords"})
    steps = [
        ask(
            f"transactions v{version} {states}",
            "ListTransactions",
            version,
            {"state_filters": states, "producer_id_filters": [], "duration_filter": -1},
        )
        for version in (0, 1)
        for states in ([], ["Ongoing"], ["Asleep", "Empty", ""])
    ]
    steps += [
        ask(
            f"transactions {ids}",
            "DescribeTransactions",
            0,
            {"transactional_ids": ids},
        )
        for ids in ([], ["never"], [""], ["never", "never"])
    ]
    yield Case("transactions", "create", tuple(steps), {"admin": "transactions"})


def topics_of_the_broker_itself() -> Iterator[Case]:
    """What clients may do with __consumer_offsets: nearly everything, but write."""
    offsets = "__consumer_offsets"
    keyed = recordset.batch([Rec(1_700_000_000_000, b"v", key=b"k")])

    def kept(context: Context) -> dict[str, Any]:
        partition = {
            "partition_index": context.partition,
            "committed_offset": 1,
            "committed_metadata": "",
        }
        return {
            "group_id": "writer",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": context.topic, "partitions": [partition]}],
        }

    yield Case(
        "the topics of the broker itself",
        "create",
        (
            Step("a group is kept", "OffsetCommit", 5, kept),
            *(
                produce(version, keyed, topic=offsets, partition=0)
                for version in (3, 5, 7, 8, 9, 11)
            ),
            produce(9, keyed, topic=offsets, partition=0, acks=1, name="acks=1"),
            produce(9, keyed, topic=offsets, partition=0, acks=0, name="acks=0"),
            produce(9, keyed, topic=offsets, partition=0, acks=5, name="acks=5"),
            produce(9, keyed, topic=offsets, partition=99, name="no such partition"),
            *_changes_of_internal(offsets),
            topics(7, "__cluster_metadata"),
        ),
        {"admin": "internal"},
    )


def _changes_of_internal(offsets: str) -> tuple[Step, ...]:
    """Returns what no client may do to a topic of the broker itself."""
    resource = {"resource_type": 2, "resource_name": offsets}
    setting = {"name": "segment.bytes", "value": "104857601"}
    return (
        ask(
            "records deleted",
            "DeleteRecords",
            2,
            {
                "topics": [{"name": offsets, "partitions": [{"partition_index": 0, "offset": -1}]}],
                "timeout_ms": 60_000,
            },
        ),
        ask(
            "partitions added",
            "CreatePartitions",
            3,
            {
                "topics": [{"name": offsets, "count": 60, "assignments": None}],
                "timeout_ms": 60_000,
                "validate_only": True,
            },
        ),
        ask(
            "a setting changed",
            "IncrementalAlterConfigs",
            1,
            {
                "resources": [{**resource, "configs": [setting | {"config_operation": 0}]}],
                "validate_only": True,
            },
        ),
        ask(
            "settings replaced",
            "AlterConfigs",
            2,
            {"resources": [{**resource, "configs": [setting]}], "validate_only": True},
        ),
    )


def admin_api_cases() -> list[Case]:
    """All of the above."""
    makers = (
        partitions_added,
        settings_replaced,
        lists_changed,
        cluster_described,
        log_dirs_described,
        topic_partitions_described,
        producers_described,
        leaders_and_moves,
        nothing_there,
        topics_of_the_broker_itself,
    )
    return [case for maker in makers for case in maker()]
