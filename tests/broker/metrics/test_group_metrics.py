"""Lag of groups, in records and in seconds by both times, exact with a manual clock."""

from __future__ import annotations

import json

from tests.broker.asking import create, produce
from tests.broker.members import RawMember, commit, settled
from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tidelog.cli.parser import main

START_MS = 1_700_000_000_000


def lags(broker, group):
    found = {"records": broker.metric("tidelog_group_lag_records", group=group)}
    for by in ("event", "append"):
        found[by] = broker.metric("tidelog_group_lag_seconds", group=group, by=by)
    return found


def test_lag_is_exact(start):
    broker = start({"clock": "manual", "control.listener": "127.0.0.1:0"})
    with broker.connect() as connection:
        create(connection, "t")
        for at, event_ms in enumerate([START_MS - 5_001, START_MS - 70_002, -3]):
            broker.clock.set(START_MS + at * 1_000)
            produce(connection, "t", recordset.batch([Rec(event_ms, b"v")]))
        broker.clock.set(START_MS + 10_250)
        now_s = (START_MS + 10_250) / 1_000
        commit(connection, "g", "t", 0)
        assert lags(broker, "g") == {"records": 3, "event": 15.251, "append": 10.25}
        commit(connection, "g", "t", 1)
        assert lags(broker, "g") == {"records": 2, "event": 80.252, "append": 9.25}
        commit(connection, "g", "t", 2)
        assert lags(broker, "g") == {"records": 1, "event": now_s + 0.003, "append": 8.25}
        commit(connection, "g", "t", 3)
        assert lags(broker, "g") == {"records": 0, "event": 0, "append": 0}
        produce(connection, "t", recordset.batch([Rec(-1, b"no time")]))
        broker.clock.step(40)
        assert lags(broker, "g") == {"records": 1, "event": 0, "append": 0.04}
        assert 'by="event"' not in broker.page("/metrics").partition("tidelog_group_lag_s")[2]


def test_a_step_back_of_the_clock_makes_no_lag_negative(start, capsys):
    broker = start({"clock": "manual", "control.listener": "127.0.0.1:0"})
    with broker.connect() as connection:
        create(connection, "t")
        broker.clock.set(START_MS)
        produce(connection, "t", recordset.batch([Rec(START_MS + 5_000, b"v")]))
        commit(connection, "g", "t", 0)
    broker.clock.set(START_MS - 60_000)
    assert lags(broker, "g") == {"records": 1, "event": 0, "append": 0}
    told = ["groups", "describe", "g", "--json", "--broker", broker.bootstrap]
    assert main([*told, "--http", broker.http]) == 0
    ((lag,),) = (group["partitions"] for group in json.loads(capsys.readouterr().out))
    assert (lag["lag_records"], lag["lag_event_ms"], lag["lag_append_ms"]) == (1, 0, 0)


def test_what_is_gone_is_not_counted(start):
    broker = start({"clock": "manual", "control.listener": "127.0.0.1:0"})
    with broker.connect() as connection:
        create(connection, "t")
        for at in range(4):
            produce(connection, "t", recordset.batch([Rec(START_MS + at, b"v")]))
        commit(connection, "g", "t", 0)
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 3}]}]
        connection.ask("DeleteRecords", 2, topics=topics, timeout_ms=5_000)
        assert lags(broker, "g")["records"] == 1
        broker.clock.set(START_MS + 1_003)
        assert lags(broker, "g")["event"] == 1.0


def test_groups_and_members_are_counted(start):
    broker = start()
    with broker.connect() as connection:
        create(connection, "t")
        commit(connection, "alone", "t", 0)
        one, two = RawMember(broker, "g"), RawMember(broker, "g")
        settled(one, two)
        assert broker.metric("tidelog_groups", state="Stable") == 1
        assert broker.metric("tidelog_groups", state="Empty") == 1
        assert broker.metric("tidelog_group_members", group="g") == 2
        one.close()
        two.close()
