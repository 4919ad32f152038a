"""A safety setting that nothing enforces is warned about: at the start, and when it is changed."""

from __future__ import annotations

import pytest


def warnings(broker, *parts):
    return broker.lines("level=warning", "a safety setting is not enforced", *parts)


@pytest.mark.parametrize(
    ("name", "value", "consequence"),
    [
        (
            "authorizer.class.name",
            "org.apache.kafka.x.StandardAuthorizer",
            "there are no access rules here: whoever reaches a listener may do everything",
        ),
        ("create.topic.policy.class.name", "org.example.Policy", "no policy checks the topics"),
        ("listener.name.plaintext.ssl.client.auth", "required", "settings of a single listener"),
    ],
)
def test_a_start_warns_of_each_in_a_line_of_its_own(start, name, value, consequence):
    broker = start({name: value, "client.quota.callback.class": "org.example.Quotas"})
    (line,) = warnings(broker, f"setting={name}")
    assert consequence in line
    assert len(warnings(broker)) == 2


def test_a_start_warns_of_nothing_that_asks_for_nothing(start):
    broker = start(
        {"authorizer.class.name": "", "replica.fetch.min.bytes": "1", "log.preallocate": "true"}
    )
    assert warnings(broker) == []
    for name in ("replica.fetch.min.bytes", "log.preallocate"):
        assert broker.lines("level=info", "setting accepted and ignored", f"setting={name}")
