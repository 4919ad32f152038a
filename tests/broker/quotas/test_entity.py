"""Which quota holds for a client, and the keys of entities."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.quotas.entity import (
    CLIENT_ID,
    FETCH,
    IP,
    PRODUCE,
    USER,
    connection_rate,
    limit_of,
    read,
    written,
)

# Entities from the most to the least specific, as Kafka's ClientQuotaManager looks for them, and the bucket.
ORDER = [
    (((CLIENT_ID, "c"), (USER, "u")), ("u", "c")),
    (((CLIENT_ID, None), (USER, "u")), ("u", "c")),
    (((USER, "u"),), ("u", "")),
    (((CLIENT_ID, "c"), (USER, None)), ("u", "c")),
    (((CLIENT_ID, None), (USER, None)), ("u", "c")),
    (((USER, None),), ("u", "")),
    (((CLIENT_ID, "c"),), ("", "c")),
    (((CLIENT_ID, None),), ("", "c")),
]
names = st.none() | st.text(min_size=1)
entities = st.dictionaries(st.sampled_from([USER, CLIENT_ID]), names, min_size=1) | st.builds(
    lambda name: {IP: name}, names
)


def test_the_most_specific_entity_wins():
    for length in range(len(ORDER)):
        quotas = {entity: {PRODUCE: float(n + 1)} for n, (entity, _) in enumerate(ORDER)}
        for entity, _ in ORDER[:length]:
            del quotas[entity]
        found = limit_of(quotas, PRODUCE, "u", "c")
        assert found == (length + 1, *ORDER[length])
    assert limit_of({}, PRODUCE, "u", "c") is None


def test_each_quota_is_found_for_itself():
    quotas = {ORDER[0][0]: {PRODUCE: 1.0}, ORDER[5][0]: {FETCH: 2.0}}
    assert limit_of(quotas, PRODUCE, "u", "c").entity == ORDER[0][0]
    assert limit_of(quotas, FETCH, "u", "c") == (2.0, ORDER[5][0], ("u", ""))


def test_a_default_has_a_bucket_for_each_name():
    quotas = {((CLIENT_ID, None),): {PRODUCE: 1.0}}
    assert [limit_of(quotas, PRODUCE, "u", name).bucket for name in ("a", "b")] == [
        ("", "a"),
        ("", "b"),
    ]
    quotas = {((USER, None),): {PRODUCE: 1.0}}
    assert len({limit_of(quotas, PRODUCE, "u", name).bucket for name in ("a", "b")}) == 1


def test_a_name_of_another_kind_has_no_quota():
    for entity, _ in ORDER:
        others = {entity: {PRODUCE: 1.0}}
        is_named = any(name is not None for _, name in entity)
        assert (limit_of(others, PRODUCE, "c", "u") is None) == is_named


def test_the_rate_of_an_address():
    quotas = {((IP, None),): {"connection_creation_rate": 5.0}}
    assert connection_rate(quotas, "::1") == 5
    quotas[((IP, "::1"),)] = {"connection_creation_rate": 2.0}
    assert [connection_rate(quotas, each) for each in ("::1", "10.0.0.1")] == [2, 5]
    assert connection_rate({((CLIENT_ID, "::1"),): {PRODUCE: 1.0}}, "::1") is None


@given(first=entities, second=entities)
def test_a_key_is_that_of_one_entity(first, second):
    one, other = (tuple(sorted(each.items())) for each in (first, second))
    assert read(written(one)) == one
    assert (written(one) == written(other)) == (one == other)


@pytest.mark.parametrize(
    "text",
    ["", "group=x", "user=", "user&user", "user=a&client-id=b", "user=a%2", "user=%FF", "user=a b"],
)
def test_what_is_no_key(text):
    with pytest.raises(ValueError, match=r"is no entity|decode"):
        read(text)


def test_defaults_and_names_that_look_like_them_are_different_keys():
    texts = [
        written(((USER, name),)) for name in (None, "<default>", "default", "&", "=", "a&b=c", "%")
    ]
    assert len(set(texts)) == len(texts)
    assert not any(a == b for a, b in itertools.combinations(texts, 2))
