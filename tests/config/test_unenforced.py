"""Safety settings without effect are named; values that ask for nothing are not."""

from __future__ import annotations

import pytest

from config import BROKER_SETTINGS, TOPIC_SETTINGS, unenforced
from config.ignored import is_ignored
from config.unenforced import _UNENFORCED


@pytest.mark.parametrize(
    ("name", "value", "consequence"),
    [
        ("authorizer.class.name", "org.example.Rules", "no access rules"),
        ("client.quota.callback.class", "org.example.Quotas", "on quotas"),
        ("create.topic.policy.class.name", "org.example.Policy", "topics that are created"),
        ("alter.config.policy.class.name", "org.example.Policy", "changes of settings"),
        ("ssl.client.auth", "required", "certificate"),
        ("listener.name.internal.ssl.client.auth", "required", "a single listener"),
    ],
)
def test_what_promises_safety_says_what_stays_open(name, value, consequence):
    found = unenforced({name: value, "broker.rack": "r", "segment.bytes": "100"})
    assert list(found) == [name]
    assert consequence in found[name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorizer.class.name", " "),
        ("client.quota.callback.class", None),
        ("ssl.client.auth", "none"),
    ],
)
def test_a_value_that_asks_for_nothing_is_no_broken_promise(name, value):
    assert unenforced({name: value}) == {}


@pytest.mark.parametrize("name", _UNENFORCED)
def test_a_setting_that_has_an_effect_is_not_among_them(name):
    """Whoever makes one work takes it out of the list."""
    declared = [s for s in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()) if name in s.names]
    assert is_ignored(name) or [setting.effective for setting in declared] == [False]
