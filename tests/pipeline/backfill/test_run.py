"""What plan.json and errors say about the table of a backfill: no password."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pipeline.backfill import run, tables


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:postgresql://h:5432/d?user=u&password=pw&ssl=true", "?user=u&password=***&ssl=true"),
        ("jdbc:sqlserver://h;user=u;Password=pw;encrypt=true", ";Password=***;encrypt=true"),
        ("jdbc:some://h/d?uid=u&pwd=pw", "?uid=u&pwd=***"),
        ("jdbc:mysql://u:p/w@h/d", "jdbc:mysql://u:***@h/d"),
        ("jdbc:oracle:thin:u/pw@//h:1521/d", "jdbc:oracle:thin:u/***@//h:1521/d"),
        ("jdbc:oracle:thin:@//h:1521/d", "jdbc:oracle:thin:@//h:1521/d"),
        ("jdbc:derby:/tmp/db;create=true", "jdbc:derby:/tmp/db;create=true"),
    ],
)
def test_passwords_are_hidden(url, shown):
    option = [("password", "pw"), ("fetchsize", "10")]
    given = SimpleNamespace(table="t", input=None, jdbc=url, option=option)
    said = run._table_arguments(given)
    assert said["jdbc"].endswith(shown)
    assert "pw" not in said["jdbc"].replace("pwd", "")
    assert said["option"] == [("fetchsize", "10"), ("password", "***")]


def test_a_sentence_hides_the_password_in_its_url():
    said = "the schema registry http://u:pw@h:8081: [Errno 111] Connection refused"
    shown = "the schema registry http://u:***@h:8081: [Errno 111] Connection refused"
    assert tables.without_password(said) == shown
