"""Settings in force, where an older tidelog has stored what is refused now."""

from __future__ import annotations

import difflib
from types import SimpleNamespace

import pytest

from tidelog.broker import settings as subject
from tidelog.config import BrokerConfig

OLD = {f"confluent.{number}": "x" for number in range(40)} | {"no.such.setting": "1"}


def image(configs):
    return SimpleNamespace(broker_configs=configs, own_configs={})


@pytest.fixture
def settings(monkeypatch):
    def search(*_args, **_options):
        raise AssertionError("a search for similar names takes milliseconds on the event loop")

    monkeypatch.setattr(difflib, "get_close_matches", search)
    return subject.Settings(BrokerConfig())


def test_stored_names_that_are_no_settings_are_not_searched_for(settings):
    settings.use(image({**OLD, "log.retention.ms": "7"}))
    assert settings.broker.topic_defaults.retention_ms == 7
    settings.check_own(image(OLD), OLD, {"max.connections": "50"})
    assert settings.settled_broker(OLD, {"num.io.threads": "5"}) == {"num.io.threads": "5"}


def test_what_is_in_use_is_not_computed_again(settings, monkeypatch):
    settings.use(image({"log.retention.ms": "7"}))
    monkeypatch.setattr(subject, "usable", None)
    settings.use(image({"log.retention.ms": "7"}))
    assert settings.broker.topic_defaults.retention_ms == 7


def test_the_cordon_holds_whatever_is_stored_beside_it(settings):
    assert settings.cordoned(image({**OLD, "cordoned.brokers": "2,3"})) == {2, 3}
