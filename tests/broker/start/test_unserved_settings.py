"""A broker does not start as if a setting were served that is not, and says where it is open."""

from __future__ import annotations

import pytest

from tests.broker.subject import Subject
from tidelog.process import BrokerFailed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.enabled.mechanisms", "SCRAM-SHA-512"),
        ("listener.name.plaintext.ssl.key.password", "hunter2"),
    ],
)
def test_a_start_is_refused_with_a_sentence(tmp_path, name, value):
    """Which settings are refused is stated in tests/config/test_unserved.py."""
    with pytest.raises(BrokerFailed, match="the broker ended with status 2") as caught:
        Subject(tmp_path / "data", {name: value})
    (line,) = (line for line in str(caught.value).splitlines() if "tidelog serve: " in line)
    assert name in line
    assert "hunter2" not in str(caught.value)


def test_values_that_ask_for_nothing_start_and_say_nothing(start):
    broker = start(
        {
            "authorizer.class.name": "",
            "security.inter.broker.protocol": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "replica.fetch.min.bytes": "1",
            "log.preallocate": "true",
        }
    )
    assert broker.lines("level=warning") == []
    for name in ("replica.fetch.min.bytes", "log.preallocate"):
        assert broker.lines("level=info", "setting accepted and ignored", f"setting={name}")


def test_a_start_warns_once_of_listeners_that_others_reach(start):
    listeners = "A://0.0.0.0:0,B://0.0.0.0:0"
    broker = start(
        {"listeners": listeners, "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}
    )
    assert len(broker.lines("level=warning", "reachable from other machines")) == 1
