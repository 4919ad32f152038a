"""`tidelog quotas`: what is set is listed and holds, and what is wrong is refused in a sentence."""

from __future__ import annotations

import json

import pytest


def listed(run, *options):
    """The quotas by entity."""
    status, out, err = run("quotas", "list", *options, "--json")
    assert (status, err) == (0, "")
    return {tuple(each["entity"].items()): each["quotas"] for each in json.loads(out)}


def test_quotas_are_set_listed_and_removed(run):
    one, both = ("--client-id", "reports"), ("--user", "alice", "--default-client-id")
    status, out, err = run("quotas", "set", *one, "consumer_byte_rate=2e6", "request_percentage=10")
    assert (status, err) == (0, "")
    assert out == "Set consumer_byte_rate=2e6, request_percentage=10 of client id reports.\n"
    assert run("quotas", "set", *both, "producer_byte_rate=1000")[0] == 0
    assert run("quotas", "set", "--ip", "10.0.0.7", "connection_creation_rate=20")[0] == 0
    of_one, of_both = (("client-id", "reports"),), (("client-id", None), ("user", "alice"))
    found = listed(run)
    assert found[of_one] == {"consumer_byte_rate": 2e6, "request_percentage": 10.0}
    found = {tuple(sorted(entity, key=str)): quotas for entity, quotas in found.items()}
    assert found[of_both] == {"producer_byte_rate": 1000.0}
    assert found[("ip", "10.0.0.7"),] == {"connection_creation_rate": 20.0}
    assert list(listed(run, *one)) == [of_one]
    assert len(listed(run, "--user", "alice")) == 1
    assert listed(run, "--default-user") == {}
    out = run("quotas")[1]
    assert "every client id, user alice" in out or "user alice, every client id" in out
    assert "2000000" in out
    assert run("quotas", "unset", *one, "consumer_byte_rate")[0] == 0
    assert listed(run, *one) == {of_one: {"request_percentage": 10.0}}


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("set consumer_byte_rate=1", 2, "whose quota?"),
        ("set --user a consumer_byte_rate", 2, "consumer_byte_rate: expected QUOTA=NUMBER"),
        ("set --user a consumer_byte_rate=much", 2, "expected a number"),
        ("unset --user a consumer_byte_rate=1", 2, "expected QUOTA alone"),
        ("set --user a --default-user consumer_byte_rate=1", 2, "not allowed with"),
        (
            "set --user a consumer_bite_rate=1",
            2,
            "'consumer_bite_rate'; did you mean consumer_byte_rate?",
        ),
        (
            "unset --user nobody consumer_byte_rate",
            1,
            "user nobody has no quota consumer_byte_rate",
        ),
        ("set --user a consumer_byte_rate=-1", 2, "consumer_byte_rate"),
        ("set --ip 10.0.0.7 --user a connection_creation_rate=1", 2, ""),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(run, line, status, said):
    before = listed(run)
    found, out, err = run("quotas", *line.split())
    assert (found, out, err.count("\n")) == (status, "", 1)
    assert said in err
    assert listed(run) == before
