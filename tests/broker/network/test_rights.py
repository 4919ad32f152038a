"""Each API asks for the rights it declares, and for no others."""

from __future__ import annotations

import uuid

import pytest

from tests.broker import asking
from tests.broker.asking import try_to_create
from tests.broker.inside import Inside
from tidelog.broker.security.authorizer import Authorizer
from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.error_codes import ErrorCode
from tidelog.protocol.message import served_apis

DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
# These leave out what the client may not see, and say nothing of it.
SILENT = {"ListGroups", "ListTransactions"}
APIS = {api.name: api for api in served_apis()}


class Only(Authorizer):
    """Allows some operations on some kinds of resources."""

    def __init__(self, *needs):
        self.allowed = {(need.operation, need.resource_type) for need in needs}

    def allows(self, session, operation, resource_type, name):
        return (operation, resource_type) in self.allowed

    def allows_on_any(self, session, operation, resource_type):
        return (operation, resource_type) in self.allowed


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    with Inside(tmp_path_factory.mktemp("rights")) as inside:
        yield inside


def ask(inside, name):
    version = {"Produce": 12, "Fetch": 12}.get(name, asking.VERSIONS[name])
    with inside.connect() as connection:
        return set(asking.codes_in(connection.ask(name, version, **asking.BODIES[name])))


def test_without_rights_nothing_is_served(inside):
    inside.node.authorizer = Only()
    for name in (name for name, api in APIS.items() if api.needs):
        is_denied = bool(ask(inside, name) & DENIED)
        assert is_denied == (name not in SILENT), name


def test_with_the_rights_declared_it_is_served(inside):
    for name, api in APIS.items():
        inside.node.authorizer = Only(*api.needs)
        assert not ask(inside, name) & DENIED, name


CREATE, DELETE, DESCRIBE, CONFIGS = (
    Need(operation, ResourceType.TOPIC)
    for operation in (
        Operation.CREATE,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
    )
)
FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def create(inside, name, version, *, validate_only=False):
    with inside.connect() as connection:
        return try_to_create(connection, name, 3, version=version, validate_only=validate_only)


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("version", [5, 7])
def test_the_settings_of_a_new_topic_are_for_who_may_describe_them(inside, version, cluster):
    name = asking.new_name()
    right = Need(Operation.CREATE, ResourceType.CLUSTER) if cluster else CREATE
    inside.node.authorizer = Only(right, DESCRIBE)
    for validate_only in (True, False):
        got = create(inside, name, version, validate_only=validate_only)
        assert (got["error_code"], got["topic_config_error_code"]) == (0, FAILED)
        assert (got["configs"], got["num_partitions"], got["replication_factor"]) == ([], -1, -1)
    assert inside.node.metadata.image.topics[name].partitions == 3
    inside.node.authorizer = Only(right, CONFIGS)
    got = create(inside, asking.new_name(), version)
    assert got.get("topic_config_error_code", 0) == 0
    assert (len(got["configs"]) > 10, got["num_partitions"]) == (True, 3)


def test_a_new_topic_of_an_old_client_has_no_settings_to_hide(inside):
    inside.node.authorizer = Only(CREATE)
    assert create(inside, asking.new_name(), 4)["error_code"] == 0


def delete(inside, *, name=None, topic_id=None):
    with inside.connect() as connection:
        topic = {"name": name, "topic_id": topic_id or uuid.UUID(int=0)}
        (got,) = connection.ask("DeleteTopics", 6, topics=[topic], timeout_ms=60_000)["responses"]
    return got


@pytest.fixture
def topic(inside):
    """A topic made for this test: its name and id."""
    inside.node.authorizer = Authorizer()
    with inside.connect() as connection:
        name = asking.new_name()
        return name, uuid.UUID(str(asking.create(connection, name)))


@pytest.mark.parametrize("rights", [(), (DELETE,), (DESCRIBE,)])
def test_a_topic_is_deleted_by_id_only_with_both_rights(inside, topic, rights):
    name, topic_id = topic
    inside.node.authorizer = Only(*rights)
    got = delete(inside, topic_id=topic_id)
    assert (got["error_code"], got["topic_id"]) == (FAILED, str(topic_id))
    if DESCRIBE not in rights:
        assert got["name"] is None
        assert name not in got["error_message"]
    assert name in inside.node.metadata.image.topics


def test_a_topic_is_deleted_by_name_only_with_the_right_to_delete(inside, topic):
    name, _ = topic
    inside.node.authorizer = Only(DESCRIBE)
    for asked in (name, "no-such-topic"):
        assert delete(inside, name=asked)["error_code"] == FAILED
    inside.node.authorizer = Only(DELETE)
    assert delete(inside, name=name)["error_code"] == 0


@pytest.mark.parametrize(
    "rights", [(DELETE, DESCRIBE), (Need(Operation.DELETE, ResourceType.CLUSTER),)]
)
def test_a_topic_is_deleted_by_id(inside, topic, rights):
    name, topic_id = topic
    inside.node.authorizer = Only(*rights)
    got = delete(inside, topic_id=topic_id)
    assert (got["error_code"], got["name"]) == (0, name)


def metadata_of(inside, name):
    with inside.connect() as connection:
        topics = [{"name": name, "topic_id": uuid.UUID(int=0)}]
        (got,) = connection.ask("Metadata", 12, topics=topics, allow_auto_topic_creation=True)[
            "topics"
        ]
    return got["error_code"]


@pytest.mark.parametrize("rights", [(), (DESCRIBE,), (CREATE,)])
def test_a_topic_is_created_automatically_only_with_both_rights(inside, rights):
    name = asking.new_name()
    inside.node.authorizer = Only(*rights)
    assert metadata_of(inside, name) == FAILED
    assert name not in inside.node.metadata.image.topics


@pytest.mark.parametrize("create", [CREATE, Need(Operation.CREATE, ResourceType.CLUSTER)])
def test_a_topic_is_created_automatically(inside, create):
    name = asking.new_name()
    inside.node.authorizer = Only(DESCRIBE, create)
    assert metadata_of(inside, name) == 0
    assert name in inside.node.metadata.image.topics
