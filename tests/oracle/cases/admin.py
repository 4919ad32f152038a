"""The requests around the log: topics, settings, metadata, versions, and what is refused how.

Topics made here have names of their own, so the cases do not disturb each other. What only names
the broker itself (host, port, cluster id) is replaced in `scenario.canonical`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracle.cases.admin_apis import admin_api_cases
from tests.oracle.cases.quotas import quotas
from tests.oracle.cases.refused_changes import refused_changes
from tests.oracle.scenario import Case, ask, send_raw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.oracle.scenario import Context, Step

NO_ID = "00000000-0000-0000-0000-000000000000"
SOME_ID = "11111111-2222-3333-4444-555555555555"
EMPTY_BODY_APIS = {"Metadata v99": (3, 99), "unknown API 200": (200, 0), "Produce v99": (0, 99)}


def new_topic(name: str, **fields: Any) -> dict[str, Any]:
    """One topic of a CreateTopics request."""
    base = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    return base | fields


def create(
    version: int, *topics: dict[str, Any], validate_only: bool = False, name: str = ""
) -> Step:
    fields = {"topics": list(topics), "timeout_ms": 60_000, "validate_only": validate_only}
    return ask(
        f"create v{version} {name or topics[0]['name'][:20]}", "CreateTopics", version, fields
    )


def config(name: str, value: str | None) -> dict[str, Any]:
    return {"name": name, "value": value}


def topics_made_and_deleted() -> Iterator[Case]:
    for version in range(8):
        base = f"made-{version}"
        steps = [
            create(version, new_topic(base, num_partitions=3), name="one"),
            create(version, new_topic(base), name="again"),
            create(version, new_topic(f"{base}-b"), new_topic(base), name="new and old"),
            create(version, new_topic(f"{base}-c"), new_topic(f"{base}-c"), name="twice in one"),
            create(version, new_topic(f"{base}-0", num_partitions=0), name="no partitions"),
            create(version, new_topic(f"{base}-1", num_partitions=-1), name="default partitions"),
            create(version, new_topic(f"{base}-2", num_partitions=-2), name="-2 partitions"),
            create(version, new_topic(f"{base}-3", replication_factor=3), name="too many replicas"),
            create(version, new_topic(f"{base}-4", replication_factor=0), name="no replicas"),
            create(version, new_topic(f"{base}-5", replication_factor=-1), name="default replicas"),
        ]
        for bad in ("", ".", "..", "bad name!", "a" * 249, "a" * 250, "slash/", "umlaut-ä"):
            unique = bad if bad != "a" * 249 else f"{version}".ljust(249, "a")
            steps.append(create(version, new_topic(unique), name=f"name {bad[:12]!r} {len(bad)}"))
        steps += [
            metadata(version=min(version, 9), names=[base, f"{base}-b", f"{base}-c", f"{base}-1"]),
            delete(min(version, 5), base, f"{base}-b", "no-such-topic"),
            delete(min(version, 5), base, name="again"),
            delete(
                min(version, 5), f"{base}-c", f"{base}-1", f"{base}-c", name="one of them twice"
            ),
            metadata(version=min(version, 9), names=[base]),
            create(version, new_topic(base), name="after deletion"),
        ]
        if version:
            steps.append(
                create(version, new_topic(f"{base}-v"), validate_only=True, name="validate only")
            )
            steps.append(
                create(version, new_topic(base), validate_only=True, name="validate only old")
            )
            steps.append(metadata(version=min(version, 9), names=[f"{base}-v"]))
        yield Case(
            f"create and delete topics v{version}", "create", tuple(steps), {"admin": "topics"}
        )


def settings_of_new_topics() -> Iterator[Case]:
    tries: dict[str, list[dict[str, Any]]] = {
        "good": [config("retention.ms", "1000"), config("cleanup.policy", "compact,delete")],
        "unknown": [config("no.such.setting", "1")],
        "not a number": [config("retention.ms", "soon")],
        "below the minimum": [config("segment.bytes", "1")],
        "no such policy": [config("cleanup.policy", "shred")],
        "no such codec": [config("compression.type", "brotli")],
        "no such type": [config("message.timestamp.type", "EventTime")],
        "null value": [config("retention.ms", None)],
        "negative window": [config("message.timestamp.before.max.ms", "-1")],
        "twice": [config("retention.ms", "1"), config("retention.ms", "2")],
        "spaces": [config("retention.ms", " 5 ")],
        "empty": [config("retention.ms", "")],
        "bad boolean": [config("preallocate", "maybe")],
        "too large": [config("max.message.bytes", str(2**31))],
    }
    for version in (2, 5, 7):
        steps = []
        for title, configs in tries.items():
            name = f"set-{version}-{title.replace(' ', '-')}"
            steps.append(create(version, new_topic(name, configs=configs), name=title))
            steps.append(
                describe(1, name, ["retention.ms", "cleanup.policy", "message.timestamp.type"])
            )
        yield Case(
            f"settings of new topics v{version}", "create", tuple(steps), {"admin": "settings"}
        )
    placed = [{"partition_index": i, "broker_ids": [1]} for i in range(2)]
    assigned = {"num_partitions": -1, "replication_factor": -1, "assignments": placed}
    elsewhere = [{"partition_index": 0, "broker_ids": [7]}]
    steps = []
    for version in (1, 4, 7):
        base = f"placed-{version}"
        gap = [{"partition_index": 1, "broker_ids": [1]}]
        steps += [
            create(version, new_topic(base, **assigned), name="placed"),
            create(
                version, new_topic(f"{base}-b", **assigned | {"num_partitions": 2}), name="both"
            ),
            create(
                version,
                new_topic(f"{base}-c", **assigned | {"assignments": elsewhere}),
                name="elsewhere",
            ),
            create(version, new_topic(f"{base}-d", **assigned | {"assignments": gap}), name="gap"),
            metadata(version=5, names=[base]),
        ]
    yield Case("placed topics", "create", tuple(steps), {"admin": "placed"})


def delete(version: int, *names: str, name: str = "") -> Step:
    return ask(
        f"delete v{version} {name}",
        "DeleteTopics",
        version,
        {
            "topic_names": list(names),
            "topics": [{"name": one, "topic_id": NO_ID} for one in names],
            "timeout_ms": 60_000,
        },
    )


def metadata(
    version: int,
    names: Sequence[str] | None,
    *,
    create_missing: bool = False,
    permitted: bool = False,
) -> Step:
    """`permitted`: what the client may do is asked for too."""
    topics = None if names is None else [{"name": one, "topic_id": NO_ID} for one in names]
    fields = {
        "topics": topics,
        "allow_auto_topic_creation": create_missing,
        "include_topic_authorized_operations": permitted,
        "include_cluster_authorized_operations": permitted,
    }
    label = f"metadata v{version} {'permitted ' if permitted else ''}{names}"
    return ask(label[:60], "Metadata", version, fields)


def describe(
    version: int, name: str, keys: Sequence[str] | None, kind: int = 2, **more: Any
) -> Step:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    fields = {
        "resources": [resource],
        "include_synonyms": False,
        "include_documentation": False,
        **more,
    }
    return ask(f"describe v{version} {name} {more or ''}", "DescribeConfigs", version, fields)


def metadata_asked() -> Iterator[Case]:
    steps = [create(4, new_topic("asked-a", num_partitions=2), new_topic("asked-b"), name="two")]
    for version in range(13):
        steps += [
            metadata(version, names)
            for names in (["asked-a"], ["asked-b", "no-such-topic"], ["bad name!"], [""])
        ]
        steps += [metadata(version, ["asked-a", "asked-a"])]
        if version:
            steps.append(metadata(version, []))
    steps += [
        metadata(version, ["asked-a", "no-such-topic", "bad name!"], permitted=True)
        for version in range(8, 13)
    ]
    for version in (10, 12):
        for topic_id in (SOME_ID, NO_ID):
            fields = {
                "topics": [{"topic_id": topic_id, "name": None}],
                "allow_auto_topic_creation": False,
            }
            steps.append(ask(f"metadata v{version} by id {topic_id}", "Metadata", version, fields))

        def by_id(context: Context) -> dict[str, Any]:
            wanted = [{"topic_id": context.topic_ids["create"], "name": None}]
            return {"topics": wanted, "allow_auto_topic_creation": False}

        steps.append(ask(f"metadata v{version} by right id", "Metadata", version, by_id))
    yield Case("metadata", "create", tuple(steps), {"admin": "metadata"})
    by_id = [
        ask(
            f"delete v6 by id {name}",
            "DeleteTopics",
            6,
            {"topics": [{"name": name, "topic_id": topic_id}], "timeout_ms": 60_000},
        )
        for name, topic_id in (
            (None, SOME_ID),
            (None, NO_ID),
            ("asked-b", SOME_ID),
            ("no-such-topic", NO_ID),
        )
    ]
    yield Case("delete by id", "create", tuple(by_id), {"admin": "delete"})


def versions_asked() -> Iterator[Case]:
    fields = {"client_software_name": "oracle", "client_software_version": "1.0"}
    steps = [ask(f"versions v{version}", "ApiVersions", version, fields) for version in range(5)]
    for name, number in (
        ("", "1"),
        ("bad name", "1"),
        ("x", ""),
        ("-x", "1"),
        ("x-", "1"),
        ("x", "1/2"),
        ("x.y-z", "1.0-b"),
    ):
        bad = {"client_software_name": name, "client_software_version": number}
        steps.append(ask(f"versions v3 {name!r} {number!r}", "ApiVersions", 3, bad))
    steps.append(send_raw("versions v99", 18, 99, b""))
    steps.append(send_raw("versions v99 with a body", 18, 99, b"\0\x07oracle\x041.0\0"))
    steps += [
        send_raw(name, *numbers, b"\xff\xff\xff\xff") for name, numbers in EMPTY_BODY_APIS.items()
    ]
    steps.append(send_raw("metadata v1 cut", 3, 1, b"\0\0"))
    steps.append(send_raw("metadata v1 with too much", 3, 1, b"\0\0\0\0\x01\x02\x03"))
    steps.append(send_raw("metadata v1 huge count", 3, 1, b"\x7f\xff\xff\xff"))
    steps.append(send_raw("fetch v4 empty body", 1, 4, b""))
    yield Case("versions and unreadable requests", "create", tuple(steps), {"admin": "versions"})


def settings_described() -> Iterator[Case]:
    chosen = [config("retention.ms", "1234"), config("compression.type", "lz4")]
    steps = [create(4, new_topic("described", configs=chosen), name="described")]
    keys = ["retention.ms", "compression.type", "segment.bytes", "no.such.setting"]
    for version in range(5):
        steps.append(describe(version, "described", keys))
        steps.append(describe(version, "described", None))
        steps.append(describe(version, "described", []))
        steps.append(describe(version, "described", keys, include_synonyms=True))
        steps.append(describe(version, "described", keys, include_documentation=True))
        steps.append(describe(version, "no-such-topic", keys))
        steps.append(describe(version, "bad name!", keys))
        steps.append(describe(version, "", keys))
        steps.append(describe(version, "1", ["num.partitions", "log.retention.ms"], kind=4))
        steps.append(describe(version, "7", ["num.partitions"], kind=4))
        steps.append(describe(version, "nan", ["num.partitions"], kind=4))
        steps.append(describe(version, "x", None, kind=99))
    yield Case("settings described", "create", tuple(steps), {"admin": "describe"})

    def alter(
        version: int, name: str, *changes: tuple[str, int, str | None], only: bool = False
    ) -> Step:
        configs = [{"name": n, "config_operation": op, "value": value} for n, op, value in changes]
        resources = [{"resource_type": 2, "resource_name": name, "configs": configs}]
        label = f"alter v{version} {name} {changes}"[:80]
        return ask(
            label,
            "IncrementalAlterConfigs",
            version,
            {"resources": resources, "validate_only": only},
        )

    steps = [create(4, new_topic("altered", configs=chosen), name="altered")]
    for version in (0, 1):
        for change in (
            (("retention.ms", 0, "77"),),
            (("retention.ms", 1, None),),
            (("retention.ms", 1, None),),
            (("cleanup.policy", 2, "compact"),),
            (("cleanup.policy", 3, "delete"),),
            (("retention.ms", 2, "5"),),
            (("retention.ms", 0, "soon"),),
            (("retention.ms", 0, None),),
            (("no.such.setting", 0, "1"),),
            (("retention.ms", 9, "1"),),
            (("retention.ms", 0, "8"), ("segment.bytes", 0, "1")),
            (("retention.ms", 0, "8"), ("retention.ms", 0, "9")),
            (("retention.ms", 0, "99"), ("segment.bytes", 0, "100000")),
        ):
            steps.append(alter(version, "altered", *change))
            steps.append(
                describe(1, "altered", ["retention.ms", "cleanup.policy", "segment.bytes"])
            )
        steps.append(alter(version, "altered", ("retention.ms", 0, "55"), only=True))
        steps.append(describe(1, "altered", ["retention.ms"]))
        for name in ("no-such-topic", "bad name!", ""):
            steps.append(alter(version, name, ("retention.ms", 0, "55")))
    yield Case("settings altered", "create", tuple(steps), {"admin": "alter"})


def coordinators() -> Iterator[Case]:
    steps = []
    for version in range(5):
        fields = {
            "transactional_id": None,
            "transaction_timeout_ms": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        steps.append(ask(f"init producer id v{version}", "InitProducerId", version, fields))
        fields = {**fields, "transactional_id": ""}
        steps.append(
            ask(f"init producer id v{version} empty transaction", "InitProducerId", version, fields)
        )
    fields = {
        "transactional_id": None,
        "transaction_timeout_ms": 60_000,
        "producer_id": 5,
        "producer_epoch": 3,
    }
    steps += [
        ask(f"init producer id v{version} given", "InitProducerId", version, fields)
        for version in (3, 4)
    ]
    steps += [
        ask(
            f"list groups v{version}",
            "ListGroups",
            version,
            {"states_filter": [], "types_filter": []},
        )
        for version in range(6)
    ]
    for version in range(7):
        for kind, key in ((0, "a-group"), (1, "a-transaction"), (2, "what is this")):
            name = f"find coordinator v{version} of {key}"
            fields = {"key": key, "key_type": kind, "coordinator_keys": [key, f"another {key}"]}
            steps.append(ask(name, "FindCoordinator", version, fields))
    yield Case("producer ids and groups", "create", tuple(steps), {"admin": "coordinators"})


def admin_cases() -> list[Case]:
    """All of the above."""
    makers = (
        topics_made_and_deleted,
        settings_of_new_topics,
        metadata_asked,
        versions_asked,
        settings_described,
        coordinators,
    )
    return (
        [case for maker in makers for case in maker()]
        + admin_api_cases()
        + quotas()
        + refused_changes()
    )
