"""Which quotas can be set. The same requests are compared with Kafka in tests/oracle/cases/quotas.py."""

from __future__ import annotations

import math

import pytest

from tidelog.broker.quotas.checks import checked_changes, checked_entity
from tidelog.broker.quotas.entity import CLIENT_ID, CONNECTION, IP, MUTATION, PRODUCE, REQUEST, USER
from tidelog.protocol.errors import InvalidRequest

ANNA = ((USER, "anna"),)
HOST = ((IP, "10.0.0.1"),)


def test_entities():
    assert checked_entity([(USER, "anna"), (CLIENT_ID, None)]) == (
        (CLIENT_ID, None),
        (USER, "anna"),
    )
    assert checked_entity([(IP, "::FFFF:0:0")]) == ((IP, "::ffff:0:0"),)
    assert checked_entity([(IP, None)]) == ((IP, None),)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ([], "no parts"),
        ([("group", "a")], "of the kind 'group'"),
        ([(USER, "a"), (USER, "b")], "more than one user"),
        ([(USER, "")], "is empty"),
        ([(IP, "10.0.0.1"), (USER, "a")], "cannot be combined"),
        ([(IP, "localhost")], "not looked up"),
        ([(IP, "10.0.0")], "no address"),
    ],
)
def test_what_can_have_no_quota(parts, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        checked_entity(parts)


def test_changes():
    ops = [(PRODUCE, 1e9), (REQUEST, 0.5), (MUTATION, None), ("no_such", None)]
    assert checked_changes(ANNA, ops) == dict(ops)
    assert checked_changes(HOST, [(CONNECTION, 5.0)]) == {CONNECTION: 5.0}


@pytest.mark.parametrize(
    ("entity", "ops", "sentence"),
    [
        (ANNA, [("no_such", 1.0)], "a user has no quota 'no_such'"),
        (ANNA, [(CONNECTION, 1.0)], "has no quota"),
        (((CLIENT_ID, None),), [(CONNECTION, 1.0)], "a client has no quota"),
        (HOST, [(PRODUCE, 1.0)], "an address has no quota"),
        (ANNA, [(PRODUCE, 1.0), (PRODUCE, 2.0)], "more than once"),
        (ANNA, [(PRODUCE, None), (PRODUCE, 2.0)], "more than once"),
        (ANNA, [(PRODUCE, 1.5)], "whole number"),
        (ANNA, [(PRODUCE, 2.0**63)], "whole number|at most"),
        (ANNA, [(PRODUCE, 1e300)], "at most"),
        (HOST, [(CONNECTION, 2.0**31)], "at most"),
        *(
            (ANNA, [(REQUEST, value)], "greater than 0")
            for value in (0.0, -1.0, math.nan, math.inf)
        ),
    ],
)
def test_what_is_no_change(entity, ops, sentence):
    with pytest.raises(InvalidRequest, match=sentence):
        checked_changes(entity, ops)
