"""Quotas are set, removed and described, as Kafka's controller does it.

The same requests are compared with Kafka's answers in tests/oracle/cases/quotas.py.
"""

from __future__ import annotations

import pytest

from tests.broker.asking import all_versions
from tests.broker.conftest import of_module
from tidelog.broker.metadata import client_quotas
from tidelog.broker.metadata.cluster import ClusterMetadata
from tidelog.broker.metadata.memory import MemoryStore
from tidelog.broker.metadata.records import put_quotas

UNSUPPORTED_VERSION, INVALID_REQUEST, POLICY_VIOLATION = 35, 42, 44
EXACT, DEFAULT, ANY = range(3)
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"


def entity(**parts):
    return [
        {"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in parts.items()
    ]


def setting(key=PRODUCE, value=1024.0):
    return {"key": key, "value": value, "remove": False}


def removal(key=PRODUCE):
    return {"key": key, "value": 0.0, "remove": True}


def alter(connection, *changes, version=1, only=False):
    """The codes of changes, each an entity and its ops."""
    entries = [{"entity": parts, "ops": list(ops)} for parts, *ops in changes]
    answer = connection.ask("AlterClientQuotas", version, entries=entries, validate_only=only)
    for each in answer["entries"]:
        assert bool(each["error_message"]) == bool(each["error_code"])
    return [each["error_code"] for each in answer["entries"]]


def part(kind, how, name=None):
    return {"entity_type": kind, "match_type": how, "match": name}


def described(connection, *components, version=1, strict=False):
    answer = connection.ask(
        "DescribeClientQuotas", version, components=list(components), strict=strict
    )
    assert answer["error_code"] == 0, answer
    return {
        tuple((each["entity_type"], each["entity_name"]) for each in entry["entity"]): {
            each["key"]: each["value"] for each in entry["values"]
        }
        for entry in answer["entries"]
    }


limited = of_module()


@pytest.fixture
def quotas(limited):
    """A connection to a broker with no quotas, of which a test may leave some."""
    with limited.connect() as connection:
        yield connection
        for parts, settings in described(connection).items():
            left = [{"entity_type": kind, "entity_name": name} for kind, name in parts]
            assert alter(connection, (left, *map(removal, settings))) == [0]


@pytest.mark.parametrize("version", all_versions("AlterClientQuotas"))
def test_set_changed_and_removed(quotas, version):
    anna = entity(user="anna")
    assert alter(quotas, (anna, setting(), setting(FETCH, 7.0)), version=version) == [0]
    assert described(quotas, version=version) == {(("user", "anna"),): {PRODUCE: 1024, FETCH: 7}}
    assert alter(quotas, (anna, setting(value=5.0), removal(FETCH)), version=version) == [0]
    assert described(quotas, version=version) == {(("user", "anna"),): {PRODUCE: 5}}
    assert alter(quotas, (anna, removal(), removal("no_such")), version=version) == [0]
    assert described(quotas, version=version) == {}


def test_each_entity_fails_for_itself_and_is_left_as_it_was(quotas):
    changes = [
        (entity(user="anna"), setting()),
        (entity(user="anna", client_id=None), setting()),
        (entity(user=""), removal()),
        (entity(group="anna"), removal()),
        (entity(), removal()),
        (entity(user="ben"), setting(), setting("no_such")),
        (entity(user="cid"), setting(value=0.0)),
        (entity(ip="10.0.0.1"), setting("connection_creation_rate", 5.0)),
        (entity(ip="10.0.0.1", user="anna"), setting("connection_creation_rate", 5.0)),
        (entity(client_id=None),),
    ]
    codes = [0, 0, *[INVALID_REQUEST] * 5, 0, INVALID_REQUEST, 0]
    assert alter(quotas, *changes, only=True) == codes
    assert described(quotas) == {}
    assert alter(quotas, *changes) == codes
    assert described(quotas) == {
        (("user", "anna"),): {PRODUCE: 1024},
        (("client-id", None), ("user", "anna")): {PRODUCE: 1024},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 5},
    }


def test_an_entity_that_is_named_twice_is_not_changed(quotas):
    one, other = entity(user="a", client_id="b"), entity(client_id="b", user="a")
    assert alter(quotas, (one, setting()), (other, setting(FETCH))) == [INVALID_REQUEST]
    assert described(quotas) == {}


def test_filters(quotas):
    both = (("client-id", "c"), ("user", None))
    assert (
        alter(
            quotas,
            (entity(user=None, client_id="c"), setting()),
            (entity(user=None), setting()),
            (entity(user="<default>"), setting()),
            (entity(ip="::1"), setting("connection_creation_rate", 1.0)),
        )
        == [0] * 4
    )
    default, named, host = (("user", None),), (("user", "<default>"),), (("ip", "::1"),)
    assert set(described(quotas)) == {both, default, named, host}
    assert set(described(quotas, strict=True)) == set()
    assert set(described(quotas, part("user", ANY))) == {both, default, named}
    assert set(described(quotas, part("user", ANY), strict=True)) == {default, named}
    assert set(described(quotas, part("user", DEFAULT))) == {both, default}
    assert set(described(quotas, part("user", EXACT, "<default>"))) == {named}
    assert set(described(quotas, part("user", ANY), part("client-id", EXACT, "c"))) == {both}
    assert set(described(quotas, part("client-id", DEFAULT))) == set()
    assert set(described(quotas, part("ip", EXACT, "0:0::1"))) == {host}


@pytest.mark.parametrize("version", all_versions("DescribeClientQuotas"))
@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([part("ip", ANY), part("user", ANY)], INVALID_REQUEST),
        ([part("user", ANY), part("user", DEFAULT)], INVALID_REQUEST),
        ([part("", ANY)], INVALID_REQUEST),
        ([part("user", EXACT)], INVALID_REQUEST),
        ([part("user", DEFAULT, "x")], INVALID_REQUEST),
        ([part("user", 9)], INVALID_REQUEST),
        ([part("group", ANY)], UNSUPPORTED_VERSION),
    ],
)
def test_what_is_no_filter(connection, version, components, code):
    answer = connection.ask("DescribeClientQuotas", version, components=components, strict=False)
    assert (answer["error_code"], answer["entries"]) == (code, None)


async def test_changes_of_two_brokers_at_once_are_both_kept():
    """Each decides on an image that the other has made old."""
    store = MemoryStore()
    one, other = ClusterMetadata(store, 1), ClusterMetadata(store, 2)
    anna, ben = (("user", "anna"),), (("user", "ben"),)
    await one.open()
    await other.open()
    await one.transact((), (put_quotas(ben, {PRODUCE: 1.0}),))
    await client_quotas.alter(one, {anna: {PRODUCE: 1.0}, ben: {FETCH: 3.0}})
    await client_quotas.alter(other, {anna: {FETCH: 2.0}, ben: {PRODUCE: None}})
    await one.catch_up()
    expected = {anna: {PRODUCE: 1.0, FETCH: 2.0}, ben: {FETCH: 3.0}}
    assert one.image.quotas == other.image.quotas == expected
    many = {(("user", f"u{n}"),): {PRODUCE: float(n + 1)} for n in range(200)}
    await client_quotas.alter(one, many)
    assert len(one.image.quotas) == 202
    revision = one.image.revision
    await client_quotas.alter(one, many)
    assert one.image.revision == revision  # nothing has changed
    for metadata in (one, other):
        await metadata.close()


def test_new_entities_are_bounded_and_the_others_go_on(start):
    broker = start({"max.quota.entities": 3})
    with broker.connect() as connection:
        names = [entity(user=f"user-{number}") for number in range(5)]
        codes = alter(connection, *((each, setting()) for each in names))
        assert codes == [0, 0, 0, POLICY_VIOLATION, POLICY_VIOLATION]
        assert len(described(connection)) == 3
        assert alter(connection, (names[4], setting()), only=True) == [POLICY_VIOLATION]
        assert alter(connection, (names[0], setting(value=5.0))) == [0]
        assert alter(connection, (names[4], removal())) == [0]
        assert alter(connection, (names[0], removal())) == [0]
        assert alter(connection, (names[4], setting())) == [0]
        assert broker.metric("tidelog_quota_entities") == 3
        assert alter(connection, (entity(user="u" * 1_025), setting())) == [INVALID_REQUEST]
