"""A safety setting that nothing enforces is warned about: at the start, and when it is changed."""

from __future__ import annotations

import pytest

from tests.broker.asking import BROKER, TOPIC, alter, create

NAME = "max.decompressed.message.bytes"


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
        ("max.connections.per.ip", "10", "nothing limits how many connections one address opens"),
        (NAME, "1000", "a compressed batch may unpack to more than this"),
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


def test_topics_that_set_it_are_named_at_once_and_at_the_next_start(start):
    broker = start()
    with broker.connect() as connection:
        create(connection, "made", max_decompressed_message_bytes="1000")
        create(connection, "changed")
        create(connection, "free")
        assert alter(connection, TOPIC, "changed", (NAME, 0, "1000"), validate_only=True)[0] == 0
        assert not warnings(broker, "topic=changed")
        assert alter(connection, TOPIC, "changed", (NAME, 0, "1000"))[0] == 0
        assert len(warnings(broker, f"setting={NAME}", "topic=made")) == 1
        assert len(warnings(broker, f"setting={NAME}", "topic=changed")) == 1
        assert alter(connection, TOPIC, "changed", (NAME, 1, None))[0] == 0
        assert alter(connection, BROKER, "", (NAME, 0, "2000"))[0] == 0
        assert len(warnings(broker)) == 3
    assert broker.stop() == 0
    broker.restart()
    # The log is that of both lives: the second warns of the broker's setting and of one topic.
    assert len(warnings(broker, "topic=made")) == 2
    assert len(warnings(broker, "topic=changed")) == 1
    assert len(warnings(broker)) == 5
