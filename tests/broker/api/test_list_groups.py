"""ListGroups: no groups, in every version's shape; old clients probe with version 0."""

from __future__ import annotations

import pytest

from tests.broker.asking import all_versions


@pytest.mark.parametrize("version", all_versions("ListGroups"))
def test_there_are_none(connection, version):
    answer = connection.ask(
        "ListGroups", version, states_filter=["Stable"], types_filter=["classic"]
    )
    assert (answer["error_code"], answer["groups"]) == (0, [])
