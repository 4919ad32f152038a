"""Brokers for the tests of this directory.

`broker` is one process for them all: give topics names of their own. When the session ends it must be
alive, must have met no error it did not foresee, and must stop in order. `start` starts brokers with
settings of their own, and `of_module` makes a fixture of one for a whole module, held to the same. No
round of retention comes to any by the machine's clock unless a test asks for one: most records here are
of 1970, and would go after five minutes.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import pytest

from tests.broker.asking import new_topic
from tests.broker.subject import Subject

DAY_MS = 86_400_000


@contextmanager
def healthy(directory, settings=None):
    """A broker that is judged by its end."""
    settings = dict(settings or {})
    if settings.get("clock") != "manual":
        settings.setdefault("log.retention.check.interval.ms", DAY_MS)
    with Subject(directory / "data", settings) as subject:
        yield subject
        if subject.is_running:
            assert subject.unexpected_errors == 0, subject.log()[-8000:]
            assert subject.stop() == 0, subject.log()[-8000:]
        assert "Traceback" not in subject.log(), subject.log()[-8000:]


def of_module(settings=None):
    """A fixture for one module: a broker with settings of its own."""

    @pytest.fixture(scope="module")
    def broker(tmp_path_factory):
        with healthy(tmp_path_factory.mktemp("broker"), settings) as subject:
            yield subject

    return broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    with healthy(tmp_path_factory.mktemp("broker")) as subject:
        yield subject


@pytest.fixture
def connection(broker):
    with broker.connect() as connection:
        yield connection


@pytest.fixture
def topic(connection):
    """The name of an empty topic with one partition."""
    return new_topic(connection)


@pytest.fixture
def start(tmp_path_factory):
    with ExitStack() as brokers:

        def start_one(settings=None):
            return brokers.enter_context(healthy(tmp_path_factory.mktemp("broker"), settings))

        yield start_one
