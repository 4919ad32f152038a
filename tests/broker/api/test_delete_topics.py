"""DeleteTopics: by name and by id, each for itself; gone at once, and the name is free again."""

from __future__ import annotations

import uuid

import pytest

from tests.broker.asking import (
    all_versions,
    batch_of,
    create,
    fetch,
    list_offset,
    new_name,
    produce,
    read_values,
)
from tests.broker.subject import eventually

UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST = 3, 42
TOPIC_DELETION_DISABLED, UNKNOWN_TOPIC_ID = 73, 100


def ask(connection, version, *names, ids=()):
    answer = connection.ask(
        "DeleteTopics",
        version,
        topic_names=list(names),
        topics=[{"name": name} for name in names]
        + [{"name": None, "topic_id": uuid.UUID(each)} for each in ids],
        timeout_ms=10_000,
    )
    return answer["responses"]


@pytest.mark.parametrize("version", all_versions("DeleteTopics"))
def test_every_version_deletes_by_name(broker, connection, version):
    name = new_name()
    topic_id = create(connection, name, partitions=2)
    produce(connection, name, batch_of("x"))
    (got,) = ask(connection, version, name)
    assert (got["name"], got["error_code"]) == (name, 0)
    assert got.get("topic_id", topic_id) == topic_id
    assert got.get("error_message") is None
    assert produce(connection, name, batch_of("x"))["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(connection, name)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(connection, name, -1)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    eventually(lambda: not list(broker.log_dir.glob(f"{name}-*")), what="its directories are gone")


def test_by_id(connection):
    name = new_name()
    topic_id = create(connection, name)
    both = [{"name": name, "topic_id": uuid.UUID(topic_id)}]
    answer = connection.ask("DeleteTopics", 6, topics=both, timeout_ms=1_000)
    assert answer["responses"][0]["error_code"] == INVALID_REQUEST
    (got,) = ask(connection, 6, ids=[topic_id])
    assert (got["name"], got["topic_id"], got["error_code"]) == (name, topic_id, 0)
    (got,) = ask(connection, 6, ids=[topic_id])
    assert (got["name"], got["topic_id"], got["error_code"]) == (None, topic_id, UNKNOWN_TOPIC_ID)


def test_unknown_names(connection):
    for version in all_versions("DeleteTopics"):
        (got,) = ask(connection, version, "nowhere")
        assert (got["name"], got["error_code"]) == ("nowhere", UNKNOWN_TOPIC_OR_PARTITION)
        if version >= 5:
            assert got["error_message"]


@pytest.mark.parametrize("version", all_versions("DeleteTopics"))
def test_what_is_named_twice_stays(connection, version):
    name, other = new_name(), new_name()
    topic_id = create(connection, name)
    create(connection, other)
    got = ask(connection, version, name, other, name)
    assert {each["name"]: each["error_code"] for each in got} == {name: INVALID_REQUEST, other: 0}
    assert len(got) == 2
    if version >= 6:
        got = ask(connection, version, name, ids=[topic_id])
        assert [each["error_code"] for each in got] == [INVALID_REQUEST] * 2
        nobody = str(uuid.uuid4())
        (got,) = ask(connection, version, ids=[nobody, nobody])
        assert got["error_code"] == INVALID_REQUEST
    assert ask(connection, version, name)[0]["error_code"] == 0


def test_a_name_can_be_used_again_and_starts_empty(connection):
    name = new_name()
    before = create(connection, name)
    for _ in range(5):
        produce(connection, name, batch_of("old"))
    ask(connection, 4, name)
    assert create(connection, name, partitions=2) != before, "its id is another one"
    assert produce(connection, name, batch_of("new"))["base_offset"] == 0
    assert read_values(connection, name) == [b"new"]


def test_it_can_be_forbidden(start):
    broker = start({"delete.topic.enable": "false"})
    with broker.connect() as connection:
        create(connection, "t")
        (got,) = ask(connection, 6, "t")
        assert got["error_code"] == TOPIC_DELETION_DISABLED
        assert fetch(connection, "t")["error_code"] == 0
