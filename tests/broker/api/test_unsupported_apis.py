"""Access rules, passwords, a quorum, moves of logs: there are none, as each API says in its own way.

The codes are those that Apache Kafka 3.9.1 answers, but where it would do what it is asked for: the
same requests are compared in tests/oracle/cases (admin_apis.py, refused_changes.py).
"""

from __future__ import annotations

import pytest

from tests.broker.asking import ACL, ACL_FILTER, BODIES, all_versions, create, new_topic

UNKNOWN_TOPIC_OR_PARTITION = 3
UNSUPPORTED_VERSION, INVALID_REQUEST, SECURITY_DISABLED = 35, 42, 54
LOG_DIR_NOT_FOUND, INVALID_UPDATE_VERSION = 57, 95
RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE = 91, 92


@pytest.mark.parametrize("version", all_versions("DescribeAcls"))
def test_access_rules(connection, version):
    described = connection.ask("DescribeAcls", version, **ACL_FILTER)
    assert (described["error_code"], described["resources"]) == (SECURITY_DISABLED, [])
    assert len(described["error_message"]) > 10
    created = connection.ask("CreateAcls", version, creations=[ACL, ACL])["results"]
    assert [each["error_code"] for each in created] == [SECURITY_DISABLED] * 2
    deleted = connection.ask("DeleteAcls", version, filters=[ACL_FILTER] * 3)["filter_results"]
    assert [each["error_code"] for each in deleted] == [SECURITY_DISABLED] * 3


@pytest.mark.parametrize(
    ("users", "found"),
    [
        (None, []),
        ([], []),
        (["anna", ""], [("anna", RESOURCE_NOT_FOUND), ("", RESOURCE_NOT_FOUND)]),
        (
            ["anna", "ben", "anna"],
            [("anna", DUPLICATE_RESOURCE), ("ben", RESOURCE_NOT_FOUND)],
        ),
    ],
)
def test_passwords(connection, users, found):
    named = None if users is None else [{"name": user} for user in users]
    answer = connection.ask("DescribeUserScramCredentials", 0, users=named)
    assert (answer["error_code"], answer["error_message"]) == (0, "")
    assert [(each["user"], each["error_code"]) for each in answer["results"]] == found
    assert all(each["credential_infos"] == [] for each in answer["results"])
    assert all(repr(each["user"]) in each["error_message"] for each in answer["results"])


def credential(user, mechanism):
    return {
        "name": user,
        "mechanism": mechanism,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": b"s3cret",
    }


@pytest.mark.parametrize(
    ("removed", "set_to", "found"),
    [
        ([], [], []),
        ([("anna", 1)], [], [("anna", RESOURCE_NOT_FOUND)]),
        ([("anna", 1), ("anna", 1), ("anna", 2)], [], [("anna", RESOURCE_NOT_FOUND)]),
        ([("anna", 1)], [("anna", 1)], [("anna", RESOURCE_NOT_FOUND)]),
        ([("anna", 2)], [("anna", 1)], [("anna", RESOURCE_NOT_FOUND)]),
        ([], [("anna", 1), ("anna", 2)], [("anna", SECURITY_DISABLED)]),
        (
            [("ben", 1)],
            [("anna", 1), ("cid", 1), ("cid", 1)],
            [
                ("ben", RESOURCE_NOT_FOUND),
                ("anna", SECURITY_DISABLED),
                ("cid", DUPLICATE_RESOURCE),
            ],
        ),
    ],
)
def test_passwords_changed(broker, connection, removed, set_to, found):
    answer = connection.ask(
        "AlterUserScramCredentials",
        0,
        deletions=[{"name": user, "mechanism": mechanism} for user, mechanism in removed],
        upsertions=[credential(*one) for one in set_to],
    )
    assert [(each["user"], each["error_code"]) for each in answer["results"]] == found
    assert all(len(each["error_message"]) > 10 for each in answer["results"])
    assert "s3cret" not in broker.log()


@pytest.mark.parametrize("version", all_versions("DescribeQuorum"))
def test_a_quorum(connection, version):
    answer = connection.ask("DescribeQuorum", version, **BODIES["DescribeQuorum"])
    assert (answer["error_code"], answer["topics"]) == (UNSUPPORTED_VERSION, [])
    if version >= 2:
        assert "quorum" in answer["error_message"]
        assert answer["nodes"] == []


@pytest.mark.parametrize("version", all_versions("UpdateFeatures"))
def test_features(connection, version):
    for asked, code in [
        ([], 0),
        ([("transaction.version", 2)], 0),
        ([("no.such", 0)], INVALID_UPDATE_VERSION),
        ([("transaction.version", 0)], INVALID_UPDATE_VERSION),
        ([("transaction.version", 2), ("", -1)], INVALID_UPDATE_VERSION),
    ]:
        answer = update(connection, version, asked)
        assert answer["error_code"] == code
        assert bool(answer["error_message"]) == bool(code)
        if version < 2:  # Kafka 4.1 names no feature beside an error of the whole request
            done = [] if code else asked
            assert [each["feature"] for each in answer["results"]] == [name for name, _ in done]


@pytest.mark.parametrize("version", [1, 2])
def test_a_kind_of_change_that_does_not_exist(connection, version):
    answer = update(connection, version, [("transaction.version", 2)], kind=9)
    assert answer["error_code"] == INVALID_UPDATE_VERSION


def update(connection, version, levels, kind=1):
    last = {"allow_downgrade": False} if version < 1 else {"upgrade_type": kind}
    named = [{"feature": name, "max_version_level": level, **last} for name, level in levels]
    more = {"validate_only": False} if version else {}
    return connection.ask(
        "UpdateFeatures", version, timeout_ms=1_000, feature_updates=named, **more
    )


@pytest.mark.parametrize("version", all_versions("AlterReplicaLogDirs"))
def test_moves_between_log_directories(broker, connection, version):
    topic = new_topic(connection, partitions=2)
    (described,) = connection.ask("DescribeLogDirs", 1, topics=None)["results"]
    here = described["log_dir"]

    def move(path, name, *indexes):
        named = [{"name": name, "partitions": list(indexes)}]
        answer = connection.ask(
            "AlterReplicaLogDirs", version, dirs=[{"path": path, "topics": named}]
        )
        (result,) = answer["results"]
        assert result["topic_name"] == name
        return [(each["partition_index"], each["error_code"]) for each in result["partitions"]]

    unknown = UNKNOWN_TOPIC_OR_PARTITION
    assert move(here, topic, 0, 1, 2, -1) == [(0, 0), (1, 0), (2, unknown), (-1, unknown)]
    assert move(here, "no-such-topic", 0) == [(0, unknown)]
    assert move("/nowhere", topic, 0, 7) == [(0, LOG_DIR_NOT_FOUND), (7, LOG_DIR_NOT_FOUND)]
    assert move(here + "/", topic, 0) == [(0, LOG_DIR_NOT_FOUND)]
    assert move("", topic, 0) == [(0, LOG_DIR_NOT_FOUND)]


def test_no_log_is_moved_to_another_directory(start, tmp_path):
    broker = start({"log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"})
    with broker.connect() as connection:
        create(connection, "t")
        described = connection.ask("DescribeLogDirs", 1, topics=None)["results"]
        codes = {}
        for each in described:
            named = [{"name": "t", "partitions": [0]}]
            moved = connection.ask(
                "AlterReplicaLogDirs", 2, dirs=[{"path": each["log_dir"], "topics": named}]
            )
            is_here = any(topic["name"] == "t" for topic in each["topics"])
            codes[is_here] = moved["results"][0]["partitions"][0]["error_code"]
        assert codes == {True: 0, False: INVALID_REQUEST}
        assert connection.ask("DescribeLogDirs", 1, topics=None)["results"] == described
