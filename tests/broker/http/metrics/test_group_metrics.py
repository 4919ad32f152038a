"""Lag of groups, in records and in seconds by both times, exact with a manual clock."""

from __future__ import annotations

import json

from tests.broker.asking import delete_records, produce
from tests.broker.conftest import of_module
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


broker = of_module({"clock": "manual"})


def test_lag_is_exact(broker, connection, topic):
    for at, event_ms in enumerate([START_MS - 5_001, START_MS - 70_002, -3]):
        broker.clock.set(START_MS + at * 1_000)
        produce(connection, topic, recordset.batch([Rec(event_ms, b"v")]))
    broker.clock.set(START_MS + 10_250)
    now_s = (START_MS + 10_250) / 1_000
    for offset, event_s, append_s in (
        (0, 15.251, 10.25),
        (1, 80.252, 9.25),
        (2, now_s + 0.003, 8.25),
    ):
        commit(connection, "g", topic, offset)
        assert lags(broker, "g") == {"records": 3 - offset, "event": event_s, "append": append_s}
    commit(connection, "g", topic, 3)
    assert lags(broker, "g") == {"records": 0, "event": 0, "append": 0}
    produce(connection, topic, recordset.batch([Rec(-1, b"no time")]))
    broker.clock.step(40)
    assert lags(broker, "g") == {"records": 1, "event": 0, "append": 0.04}
    assert 'tidelog_group_lag_seconds{by="event",group="g",' not in broker.page("/metrics")


def test_a_step_back_of_the_clock_makes_no_lag_negative(broker, connection, topic, capsys):
    broker.clock.set(START_MS)
    produce(connection, topic, recordset.batch([Rec(START_MS + 5_000, b"v")]))
    commit(connection, "back", topic, 0)
    broker.clock.set(START_MS - 60_000)
    assert lags(broker, "back") == {"records": 1, "event": 0, "append": 0}
    told = ["groups", "describe", "back", "--json", "--broker", broker.bootstrap]
    assert main([*told, "--http", broker.http]) == 0
    ((lag,),) = (group["partitions"] for group in json.loads(capsys.readouterr().out))
    assert (lag["lag_records"], lag["lag_event_ms"], lag["lag_append_ms"]) == (1, 0, 0)


def test_what_is_gone_is_not_counted(broker, connection, topic):
    for at in range(4):
        produce(connection, topic, recordset.batch([Rec(START_MS + at, b"v")]))
    commit(connection, "gone", topic, 0)
    assert delete_records(connection, topic, 3) == (0, 3)
    assert lags(broker, "gone")["records"] == 1
    broker.clock.set(START_MS + 1_003)
    assert lags(broker, "gone")["event"] == 1.0


def test_groups_and_members_are_counted(broker, connection, topic):
    before = {state: broker.metric("tidelog_groups", state=state) for state in ("Stable", "Empty")}
    for number in range(4):
        commit(connection, f"alone{number}", topic, 0)
    one, two = RawMember(broker, "two"), RawMember(broker, "two")
    settled(one, two)
    assert broker.metric("tidelog_groups", state="Stable") == before["Stable"] + 1
    assert broker.metric("tidelog_groups", state="Empty") == before["Empty"] + 4
    assert broker.metric("tidelog_group_members", group="two") == 2
    one.close()
    two.close()


def test_each_group_has_a_label_of_its_own(broker, connection, topic):
    produce(connection, topic, recordset.batch([Rec(1, b"v") for _ in range(5)]))
    for number in range(4):
        commit(connection, f"labelled{number}", topic, number)
    found = [lags(broker, f"labelled{number}")["records"] for number in range(4)]
    assert found == [5, 4, 3, 2]
