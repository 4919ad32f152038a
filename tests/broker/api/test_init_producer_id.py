"""InitProducerId: ids that nobody has had, in every version, across restarts and kills."""

from __future__ import annotations

import pytest

from tests.broker.asking import all_versions
from tests.broker.subject import eventually

POLICY_VIOLATION = 44


def ask(connection, version=4, transactional_id=None):
    return connection.ask(
        "InitProducerId",
        version,
        transactional_id=transactional_id,
        transaction_timeout_ms=1_000,
        producer_id=-1,
        producer_epoch=-1,
    )


@pytest.mark.parametrize("version", all_versions("InitProducerId"))
def test_every_version_gives_a_fresh_id(connection, version):
    first, second = ask(connection, version), ask(connection, version)
    for answer in (first, second):
        assert (answer["error_code"], answer["producer_epoch"]) == (0, 0)
        assert answer["producer_id"] >= 0
    assert first["producer_id"] != second["producer_id"]


def test_more_ids_than_one_block_holds(connection):
    given = [ask(connection)["producer_id"] for _ in range(2_500)]
    assert len(set(given)) == 2_500


def test_new_transactional_ids_are_bounded_and_the_others_go_on(start):
    broker = start({"max.transactional.ids": 2})
    with broker.connect() as connection:

        def code(transactional_id):
            return ask(connection, transactional_id=transactional_id)["error_code"]

        for known in ("a", "b"):
            eventually(lambda known=known: code(known) == 0, what="the coordinator")
        assert [code("c"), code("d"), code("a")] == [POLICY_VIOLATION, POLICY_VIOLATION, 0]
        assert broker.metric("tidelog_transactional_ids") == 2
        assert ask(connection)["error_code"] == 0
