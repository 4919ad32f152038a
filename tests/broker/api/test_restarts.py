"""What the APIs have answered is there after a stop and after a kill of the broker's process."""

from __future__ import annotations

import pytest

from tests.broker.api import test_alter_client_quotas as quotas
from tests.broker.api.test_alter_configs import replace
from tests.broker.api.test_create_partitions import grow
from tests.broker.api.test_describe_log_dirs import on_disk, sizes, weigh
from tests.broker.api.test_init_producer_id import ask as init_producer_id
from tests.broker.api.test_produce import Sequence
from tests.broker.asking import (
    BROKER,
    batch_of,
    create,
    delete_records,
    fetch,
    list_offset,
    own,
    produce,
    read_values,
    topic_id_of,
)
from tests.broker.members import RawMember, all_fetched, commit, settled
from tests.broker.subject import eventually

NONE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, OUT_OF_ORDER = 0, 1, 3, 45
LATEST, EARLIEST = -1, -2
KEPT_MS = {"log.retention.ms": "2222", "log.roll.jitter.ms": "5"}


@pytest.fixture(params=["stop", "kill"])
def again(request, start):
    """A broker, and what ends it and starts it again."""
    broker = start({"log.roll.ms": "700000"})

    def again():
        if request.param == "kill":
            broker.kill()
        else:
            assert broker.stop() == 0
        broker.restart()
        return broker.connect()

    return broker, again


def test_topics_settings_quotas_and_logs(again):
    broker, again = again
    with broker.connect() as connection:
        settings = {"retention_ms": "12345", "message_timestamp_type": "LogAppendTime"}
        topic_id = create(connection, "kept", **settings)
        assert grow(connection, ("kept", 3)) == [(0, None)]
        for name in ("gone", "trimmed", "emptied"):
            create(connection, name)
            for text in "abc":
                assert produce(connection, name, batch_of(text, text))["error_code"] == NONE
        assert produce(connection, "kept", batch_of("x"), partition=2)["error_code"] == NONE
        connection.ask("DeleteTopics", 4, topic_names=["gone"], timeout_ms=10_000)
        assert delete_records(connection, "trimmed", 3) == (NONE, 3)
        assert delete_records(connection, "emptied", -1) == (NONE, 6)
        assert replace(connection, BROKER, "1", list(KEPT_MS.items()))[0] == NONE
        anna = quotas.entity(user="anna")
        assert quotas.alter(connection, (anna, quotas.setting())) == [NONE]
        before = [fetch(connection, "kept", partition=index) for index in range(3)]
    with again() as connection:
        found = sizes(weigh(connection))  # of logs that nobody has opened
        assert found == {name: on_disk(broker, *name) for name in found}
        assert found["kept", 2] > 60
        assert {name for name, _ in found} == {"kept", "trimmed", "emptied"}
        assert topic_id_of(connection, "kept") == topic_id
        assert own(connection, "kept") == {
            name.replace("_", "."): value for name, value in settings.items()
        }
        assert own(connection, "1", BROKER, source=2) == KEPT_MS
        assert quotas.described(connection) == {(("user", "anna"),): {quotas.PRODUCE: 1024}}
        assert [fetch(connection, "kept", partition=index) for index in range(3)] == before
        assert fetch(connection, "gone")["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
        for name, first in (("trimmed", 3), ("emptied", 6)):
            assert list_offset(connection, name, EARLIEST)["offset"] == first
            assert list_offset(connection, name, LATEST)["offset"] == 6
            assert fetch(connection, name, first - 1)["error_code"] == OFFSET_OUT_OF_RANGE
            assert delete_records(connection, name, 0) == (NONE, first)
            assert produce(connection, name, batch_of("next"))["base_offset"] == 6


def test_producers_offsets_and_members(again):
    broker, again = again
    with broker.connect() as connection:
        create(connection, "t", segment_bytes="300")
        create(connection, "dropped")
        given = {init_producer_id(connection)["producer_id"] for _ in range(30)}
        mine = Sequence(connection, "t")
        for number in range(8):
            assert mine.send(number) == (NONE, number)
        for at in range(20):
            assert commit(connection, f"g{at}", "t", at) == NONE
            assert commit(connection, f"g{at}", "dropped", at) == NONE
        connection.ask("DeleteGroups", 2, groups_names=["g7"])
        connection.ask("DeleteTopics", 1, topic_names=["dropped"], timeout_ms=10_000)
        one = RawMember(broker, "live", session_ms=60_000)
        settled(one)
        assert one.commit("t", 5) == NONE
        one.close()
    with again() as connection:
        one.connection = mine.connection = connection
        for number in range(3, 8):
            assert mine.send(number) == (NONE, number), "the last five batches are known"
        assert mine.send(9)[0] == OUT_OF_ORDER
        assert mine.send(8) == (NONE, 8)
        assert len(read_values(connection, "t")) == 9
        assert init_producer_id(connection)["producer_id"] not in given | {mine.producer_id}
        eventually(lambda: one.sync_now()["error_code"] == NONE)
        assert one.heartbeat() == NONE
        assert one.sync_now()["assignment"] == b"part of " + one.member_id.encode()
        for at in range(20):
            wanted = {} if at == 7 else {("t", 0): at}
            assert all_fetched(connection, f"g{at}") == wanted
        assert one.commit("t", 6) == NONE
