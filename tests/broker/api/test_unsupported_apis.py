"""Access rules, quotas, passwords and transactions: there are none, and each API says so in its own way."""

from __future__ import annotations

import pytest

from tests.broker.asking import ACL, ACL_FILTER, all_versions

UNSUPPORTED_VERSION, INVALID_REQUEST, SECURITY_DISABLED = 35, 42, 54
RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE = 91, 92
TRANSACTIONAL_ID_NOT_FOUND, INVALID_REGULAR_EXPRESSION = 105, 128


@pytest.mark.parametrize("version", all_versions("DescribeAcls"))
def test_access_rules(connection, version):
    described = connection.ask("DescribeAcls", version, **ACL_FILTER)
    assert (described["error_code"], described["resources"]) == (SECURITY_DISABLED, [])
    assert len(described["error_message"]) > 10
    created = connection.ask("CreateAcls", version, creations=[ACL, ACL])["results"]
    assert [each["error_code"] for each in created] == [SECURITY_DISABLED] * 2
    deleted = connection.ask("DeleteAcls", version, filters=[ACL_FILTER] * 3)["filter_results"]
    assert [each["error_code"] for each in deleted] == [SECURITY_DISABLED] * 3


def part(kind, how, name=None):
    return {"entity_type": kind, "match_type": how, "match": name}


@pytest.mark.parametrize("version", all_versions("DescribeClientQuotas"))
@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([], 0),
        ([part("user", 0, "somebody"), part("client-id", 1)], 0),
        ([part("ip", 2)], 0),
        ([part("ip", 2), part("user", 2)], INVALID_REQUEST),
        ([part("user", 2), part("user", 1)], INVALID_REQUEST),
        ([part("", 2)], INVALID_REQUEST),
        ([part("user", 0)], INVALID_REQUEST),
        ([part("user", 1, "x")], INVALID_REQUEST),
        ([part("user", 9)], INVALID_REQUEST),
        ([part("group", 2)], UNSUPPORTED_VERSION),
    ],
)
def test_quotas(connection, version, components, code):
    answer = connection.ask("DescribeClientQuotas", version, components=components, strict=False)
    assert answer["error_code"] == code
    assert answer["entries"] == (None if code else [])


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


@pytest.mark.parametrize("version", all_versions("ListTransactions"))
def test_transactions_listed(connection, version):
    answer = connection.ask(
        "ListTransactions",
        version,
        state_filters=["Ongoing", "Asleep"],
        producer_id_filters=[1],
        duration_filter=-1,
        transactional_id_pattern=None,
    )
    assert (answer["error_code"], answer["transaction_states"]) == (0, [])
    assert answer["unknown_state_filters"] == ["Asleep"]


@pytest.mark.parametrize(("pattern", "code"), [("a.*", 0), ("(", INVALID_REGULAR_EXPRESSION)])
def test_a_pattern_of_transactions(connection, pattern, code):
    answer = connection.ask(
        "ListTransactions",
        2,
        state_filters=[],
        producer_id_filters=[],
        duration_filter=-1,
        transactional_id_pattern=pattern,
    )
    assert answer["error_code"] == code


def test_transactions_described(connection):
    answer = connection.ask("DescribeTransactions", 0, transactional_ids=["never", ""])
    found = [
        (each["transactional_id"], each["error_code"]) for each in answer["transaction_states"]
    ]
    assert found == [("never", TRANSACTIONAL_ID_NOT_FOUND), ("", INVALID_REQUEST)]
