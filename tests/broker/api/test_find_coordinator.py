"""FindCoordinator: nobody coordinates yet; each kind of key gets the error its clients cope with."""

from __future__ import annotations

import pytest

from tests.broker.asking import all_versions

COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST = 15, 42
GROUP, TRANSACTION = 0, 1


def ask(connection, version, key_type, *keys):
    return connection.ask(
        "FindCoordinator", version, key=keys[0], key_type=key_type, coordinator_keys=list(keys)
    )


def test_the_oldest_version_names_this_broker(broker, connection):
    """The Java consumers of 0.9 and 0.10 read nothing before they have a coordinator."""
    answer = ask(connection, 0, GROUP, "g")
    found = (answer["error_code"], answer["node_id"], answer["host"], answer["port"])
    assert found == (0, 1, "127.0.0.1", broker.port)


@pytest.mark.parametrize("version", list(all_versions("FindCoordinator"))[1:])
@pytest.mark.parametrize(
    ("key_type", "code"), [(GROUP, COORDINATOR_NOT_AVAILABLE), (TRANSACTION, INVALID_REQUEST)]
)
def test_there_is_no_coordinator(connection, version, key_type, code):
    answer = ask(connection, version, key_type, "a", "b")
    if version >= 4:
        found = answer["coordinators"]
        assert [each["key"] for each in found] == ["a", "b"]
    else:
        found = [answer]
    for each in found:
        assert (each["error_code"], each["node_id"], each["host"], each["port"]) == (
            code,
            -1,
            "",
            -1,
        )
        assert each["error_message"]
